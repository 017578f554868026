"""Commands run in the process of the tests, and the stored schemas that their `--json` output follows."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from symphony.cli.main import main

__all__ = ["call", "schema"]

_SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def call(*arguments: str) -> Result:
    """Run `symphony` with these arguments; an error is raised instead of printed."""
    done = CliRunner().invoke(main, arguments, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done


def schema(name: str) -> Any:
    """The stored schema of a document."""
    return json.loads((_SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))

"""The how-tos show settings that `symphony check` accepts, and prompts that can be rendered."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from symphony.config import read_workflow_file
from symphony.daemon.admission import admit

PAGES = Path(__file__).parents[3] / "docs" / "how-to"
BASE: Mapping[str, Any] = {
    "tracker": {"kind": "markdown"},
    "workspace": {"repo": "."},
    "agent": {"budget": {"max_tokens_per_issue": 5_000_000}},
}
PROVIDER = {"linear": {"project_slug": "website-1a2b3c4d5e6f", "api_key": "$LINEAR_API_KEY"}}
ENVIRONMENT = {
    "HOME": "/home/reader",
    "LINEAR_API_KEY": "a-key-that-is-not-real",
    "FORGE_TOKEN": "a-token-that-is-not-real",
}


def _blocks(language: str) -> Iterator[Any]:
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(rf"^ *```{language}\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, block.start()) + 1
            yield pytest.param(textwrap.dedent(block[1]), id=f"{page.name}:{line}")


def _admit(folder: Path, settings: Mapping[str, Any], prompt: str) -> tuple[str, ...]:
    """The codes of the warnings; raises WorkflowError where the file is refused."""
    file = folder / "WORKFLOW.md"
    file.write_text(f"---\n{yaml.safe_dump(dict(settings))}---\n{prompt}\n", encoding="utf-8")
    workflow = admit(read_workflow_file(file), environment=ENVIRONMENT, acknowledged=False)
    return tuple(str(warning.code) for warning in workflow.warnings)


@pytest.mark.parametrize("shown", [*_blocks("yaml")])
def test_settings_that_are_shown_are_accepted(tmp_path: Path, shown: str) -> None:
    settings = {**BASE}
    for section, values in yaml.safe_load(shown).items():
        is_list = isinstance(values, list)
        settings[section] = values if is_list else {**settings.get(section, {}), **values}
    settings["agent"] = {**BASE["agent"], **settings["agent"]}
    kind = settings["tracker"].get("kind", "markdown")
    settings["tracker"] = {"kind": kind, "provider": PROVIDER.get(kind, {}), **settings["tracker"]}
    assert _admit(tmp_path, settings, "Work on {{ issue.identifier }}.") == ()


@pytest.mark.parametrize("shown", [*_blocks("markdown")])
def test_prompts_that_are_shown_can_be_rendered(tmp_path: Path, shown: str) -> None:
    assert _admit(tmp_path, BASE, shown) == ()

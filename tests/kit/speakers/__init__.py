"""The scripted agent of `symphony.testing` as a speaker of other protocols than Codex's."""

import shlex
import sys
from pathlib import Path

import symphony

__all__ = ["PLACE", "scripted_acp", "scripted_claude"]

PLACE = Path(__file__).parents[2]
"""Where the speakers lie; a sandbox may hide it."""

_IMPORTED_FROM = f"{PLACE}:{Path(symphony.__file__).parents[1]}"


def scripted_claude(*switches: str) -> str:
    """The shell command for `claude.command`: the agent speaks Claude Code's protocol."""
    return _command("kit.speakers.claude", switches)


def scripted_acp(*switches: str) -> str:
    """The shell command for `acp.command`: the agent speaks the Agent Client Protocol."""
    return _command("kit.speakers.acp", switches)


def _command(module: str, switches: tuple[str, ...]) -> str:
    path = f"PYTHONPATH={shlex.quote(_IMPORTED_FROM)}"
    return f"{path} {shlex.join([sys.executable, '-P', '-m', module, *switches])}"

"""The real agents that a test of the whole program drives, each against the loopback model server."""

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.project import Project
from harness.real import require_claude, require_codex
from kit import model_server as models
from kit.claude_home import claude_home
from kit.codex_home import codex_home


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A real agent: its sections of WORKFLOW.md, its home, and the names of its tools."""

    sections: dict[str, Any]
    home: Callable[[str], AbstractContextManager[Any]]
    run: Callable[[str], models.Block]
    write: Callable[[Path, str], models.Block]
    moves: Callable[[str], models.Block]


def codex(_: Project) -> Agent:
    return Agent(
        sections={
            "command": f"{shlex.quote(str(require_codex()))} app-server",
            "codex": {"read_timeout_ms": 30_000},
        },
        home=codex_home,
        run=lambda command: models.shell(command).blocks[0],
        write=lambda path, text: models.patch(f"*** Add File: {path.name}\n+{text}").blocks[0],
        moves=lambda state: models.FunctionCall(name="board_move", arguments={"state": state}),
    )


def claude(_: Project) -> Agent:
    command = shlex.quote(str(require_claude()))
    return Agent(
        sections={
            "agent": {"kind": "claude", "max_retry_backoff_ms": 50},
            "claude": {"command": command, "model": "sonnet", "permission_mode": "acceptEdits"},
        },
        home=claude_home,
        run=lambda command: models.FunctionCall(
            name="Bash", arguments={"command": command, "description": "Do it"}
        ),
        write=lambda path, text: models.FunctionCall(
            name="Write", arguments={"file_path": str(path), "content": f"{text}\n"}
        ),
        moves=lambda state: models.FunctionCall(name="mcp__symphony__board_move", arguments={"state": state}),
    )


BOTH = (
    pytest.param(codex, marks=pytest.mark.real_codex, id="codex"),
    pytest.param(claude, marks=pytest.mark.real_claude, id="claude"),
)

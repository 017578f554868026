"""The worked example of docs/agents/command.md for `codex exec`, with the real Codex."""

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness.real import require_codex
from harness.sessions import briefed
from kit.codex_home import codex_home
from kit.model_server import ModelServer, say, shell
from symphony.agents.base import BackendContext, Briefing, SessionRequest, Turn
from symphony.agents.command.backend import CommandBackend
from symphony.agents.events import Text, TurnEnd, TurnStatus
from symphony.config import CommandSettings
from symphony.domain import ToolResult
from symphony.processes.local import LocalHost

pytestmark = [pytest.mark.asyncio, pytest.mark.real_codex]

PAGE = Path(__file__).parents[3] / "docs" / "agents" / "command.md"
COMMIT = "printf 'hello\\n' > hello.txt && git add . && git commit --quiet -m 'Say hello'"


async def no_tool(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    raise AssertionError((name, arguments))


def shown_command() -> str:
    """The command as the page shows it."""
    lines = PAGE.read_text(encoding="utf-8").split("command: >-\n")
    folded = next(part for part in lines if part.lstrip().startswith("codex exec")).split("\n\n")[0]
    indent = len(folded) - len(folded.lstrip())
    taken = [line.strip() for line in folded.splitlines() if line.startswith(" " * indent)]
    return " ".join(taken)


def subject(workspace: Path) -> str:
    """The first line of the newest commit."""
    command = ["git", "log", "-1", "--format=%s"]
    return subprocess.run(command, cwd=workspace, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def workspace() -> Iterator[Path]:
    """Outside of the temp directory, which the sandbox leaves writable."""
    place = Path(tempfile.mkdtemp(prefix="symphony-exec-", dir="/var/tmp"))
    path = place / "workspace"
    path.mkdir()
    (path / "README.md").write_text("# Project\n")
    for words in ("init -q -b main", "config user.name T", "config user.email t@localhost"):
        subprocess.run(["git", *words.split()], cwd=path, check=True)
    subprocess.run("git add . && git commit -q -m Begin", cwd=path, check=True, shell=True)  # noqa: S602
    yield path
    shutil.rmtree(place, ignore_errors=True)


async def test_codex_exec_commits_in_its_sandbox(workspace: Path) -> None:
    codex = require_codex()
    with ModelServer({"work": (shell(COMMIT), say("Done."))}) as server, codex_home(server.base_url) as home:
        context = BackendContext(
            host=LocalHost(),
            environ={**home.env, "PATH": f"{codex.parent}:{home.env['PATH']}"},
            secret_names=frozenset(),
            homes=workspace.parent / "homes",
        )
        settings = CommandSettings(command=shown_command(), env=("CODEX_HOME", "LOCAL_KEY"))
        request = SessionRequest(
            run_id=f"test-{uuid4().hex}",
            cwd=workspace,
            briefing=briefed(Briefing(envelope="## Available skills")),
            run_tool=no_tool,
            stderr_path=workspace.parent / "stderr.log",
        )
        async with CommandBackend(settings=settings, context=context).open(request) as session:
            events = [
                event
                async for event in session.run_turn(Turn(prompt="[[work]] Say hello.", title="SYM-1: Hello"))
            ]
        told = str(server.requests[0].body)
    assert events[-1] == TurnEnd(status=TurnStatus.COMPLETED), shlex.quote(str(events))
    assert Text(message="Done.") in events
    assert "## Available skills" in told
    assert subject(workspace) == "Say hello"

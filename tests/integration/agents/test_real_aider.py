"""The real aider against a model server on the loopback interface."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness.real import require_aider, require_bubblewrap
from harness.sessions import briefed
from kit.model_server import HttpError, ModelServer, say, unauthorized
from symphony.agents.base import BackendContext, Briefing, SessionRequest, Turn
from symphony.agents.command.backend import CommandBackend
from symphony.agents.command.profiles import PROFILES
from symphony.agents.events import AgentEvent, Text, TurnEnd, TurnStatus
from symphony.agents.isolation import Isolation
from symphony.config import CommandSettings
from symphony.domain import Category, ToolResult
from symphony.processes.local import LocalHost

pytestmark = [pytest.mark.asyncio, pytest.mark.real_aider]

EDIT = say("hello.txt\n```\nhello from aider\n```\n")
NO_MODEL = HttpError(status=404, body={"error": {"message": "no such model", "code": "model_not_found"}})


async def no_tool(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    raise AssertionError((name, arguments))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    scenarios = {"edit": (EDIT,), "idle": (say("Nothing to do."),)}
    with ModelServer({**scenarios, "locked": (unauthorized(),), "unknown": (NO_MODEL,)}) as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    (tmp_path / "home").mkdir()
    (place / "README.md").write_text("# Project\n")
    for words in ("init -q -b main", "add .", "commit -q -m Begin"):
        git(place, *words.split())
    return place


def git(place: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Tester", "-c", "user.email=tester@localhost")
    done = subprocess.run(["git", *who, *arguments], cwd=place, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def backend(
    workspace: Path, server: ModelServer, isolation: Isolation | None = None, **settings: Any
) -> CommandBackend:
    aider = require_aider()
    environ = {
        "PATH": f"{aider.parent}:{os.environ['PATH']}",
        "HOME": str(workspace.parent / "home"),
        "OPENAI_API_KEY": "sk-local",
        "OPENAI_API_BASE": server.base_url,
        "TRACKER_TOKEN": "a-secret",
        "GEMINI_API_KEY": "a-key-of-another",
    }
    context = BackendContext(
        host=LocalHost(),
        environ=environ,
        secret_names=frozenset({"TRACKER_TOKEN"}),
        homes=workspace.parent / "homes",
        isolation=isolation,
    )
    chosen = CommandSettings(profile="aider", model="openai/local", **settings)
    return CommandBackend(settings=chosen, context=context)


async def work(
    workspace: Path,
    server: ModelServer,
    prompt: str,
    isolation: Isolation | None = None,
    **settings: Any,
) -> list[AgentEvent]:
    git(workspace, "config", "user.name", "Tester")
    git(workspace, "config", "user.email", "tester@localhost")
    request = SessionRequest(
        run_id=f"test-{uuid4().hex}",
        cwd=workspace,
        briefing=briefed(Briefing(envelope="## Available skills\n\n- greet — when greeting")),
        run_tool=no_tool,
        stderr_path=workspace.parent / "stderr.log",
    )
    async with backend(workspace, server, isolation, **settings).open(request) as session:
        return [event async for event in session.run_turn(Turn(prompt=prompt, title="SYM-1: Say hello"))]


async def test_it_edits_and_commits_and_leaves_nothing_else(workspace: Path, server: ModelServer) -> None:
    events = await work(workspace, server, "[[edit]] Write hello.txt.")
    assert events[-1] == TurnEnd(status=TurnStatus.COMPLETED)
    assert git(workspace, "show", "HEAD:hello.txt") == "hello from aider"
    assert git(workspace, "status", "--porcelain", "--ignored") == ""
    first = str(server.requests[0].body)
    assert "- greet — when greeting" in first
    assert "[[edit]] Write hello.txt." in first
    assert server.requests[0].body["model"] == "local"
    assert any("Applied edit to hello.txt" in event.message for event in events if isinstance(event, Text))


@pytest.mark.parametrize("home", ["operator", "private"])
async def test_it_works_inside_an_isolation(workspace: Path, server: ModelServer, home: str) -> None:
    require_bubblewrap()
    isolation = Isolation(hidden=(workspace.parent,))
    events = await work(workspace, server, "[[edit]] Write hello.txt.", isolation, home=home)
    assert events[-1] == TurnEnd(status=TurnStatus.COMPLETED)
    assert git(workspace, "show", "HEAD:hello.txt") == "hello from aider"


async def test_an_answer_without_an_edit_changes_nothing(workspace: Path, server: ModelServer) -> None:
    events = await work(workspace, server, "[[idle]] Look around.")
    assert events[-1] == TurnEnd(status=TurnStatus.COMPLETED)
    assert git(workspace, "log", "--format=%s") == "Begin"
    assert git(workspace, "status", "--porcelain", "--ignored") == ""


@pytest.mark.parametrize(
    ("scenario", "category"), [("locked", Category.AGENT_AUTH), ("unknown", Category.TURN_FAILED)]
)
async def test_what_it_only_says_is_no_success(
    workspace: Path, server: ModelServer, scenario: str, category: Category
) -> None:
    last = (await work(workspace, server, f"[[{scenario}]] Write hello.txt."))[-1]
    assert isinstance(last, TurnEnd)
    assert last.failure is not None
    assert last.failure.category is category
    assert not last.failure.retryable
    assert last.failure.hint


async def test_the_profile_is_of_the_version_that_is_there(workspace: Path, server: ModelServer) -> None:
    found = await backend(workspace, server).preflight(workspace.parent, run_id=f"test-{uuid4().hex}")
    assert (found.agent, found.version) == ("aider", PROFILES["aider"].observed)

"""A shell call in an agent prints its environment: no secret of the tracker, no key of another agent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.claude import COMMENT, ClaudeBench
from harness.real import require_claude
from harness.secrets_probe import PROBE, TRACKER_SECRETS, plant
from integration.agents.conftest import Bench, RealBench
from kit.claude_home import claude_home
from kit.model_server import ModelServer, say, shell, tool
from kit.speakers import scripted_claude
from symphony.agents.base import BackendContext
from symphony.agents.codex.backend import CodexBackend
from symphony.agents.events import ItemFinished, TurnEnd, TurnStatus
from symphony.config import CodexSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.agents.conftest import Bench, RealBench

pytestmark = pytest.mark.asyncio

COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)
CODEX = frozenset({"OPENAI_API_KEY", "CODEX_API_KEY"})


def backend(bench: Bench, command: str, **settings: object) -> CodexBackend:
    return CodexBackend(
        settings=CodexSettings.model_validate({"command": command, "read_timeout_ms": 20_000, **settings}),
        context=BackendContext(
            host=bench.host,
            environ=bench.environ,
            secret_names=TRACKER_SECRETS,
            homes=bench.workspace.parent / "homes",
            grace_ms=bench.grace_ms,
        ),
    )


async def shown_by(bench: Bench, codex: CodexBackend) -> str:
    """Everything that the scripted agent's shell prints."""
    steps = bench.script({"run": ["sh", "-c", f"({PROBE}) > shown.txt"]})
    async with codex.open(bench.request()) as session:
        events = await bench.turn(session, steps)
    assert [event.exit_code for event in events if isinstance(event, ItemFinished)] == [0]
    return (bench.workspace / "shown.txt").read_text()


@pytest.mark.conformance("A-14")
async def test_neither_the_daemon_nor_a_login_profile_shows_what_is_not_the_agents(bench: Bench) -> None:
    planted = plant(Path(bench.environ["HOME"]), own=CODEX)
    bench.environ.update(planted.environ)
    shown = await shown_by(bench, backend(bench, bench.scripted()))
    assert planted.leaks(shown) == []
    assert "OPENAI_API_KEY=planted" in shown, "its own it has, or the test proves nothing"


async def test_a_key_that_the_workflow_names_for_the_agent_is_its_own(bench: Bench) -> None:
    planted = plant(Path(bench.environ["HOME"]), own=CODEX | {"GEMINI_API_KEY", "NPM_TOKEN"})
    bench.environ.update(planted.environ)
    shown = await shown_by(bench, backend(bench, bench.scripted(), env=("GEMINI_API_KEY", "NPM_TOKEN")))
    assert planted.leaks(shown) == []
    assert "GEMINI_API_KEY=planted" in shown
    assert "NPM_TOKEN=planted" in shown


@pytest.mark.real_codex
async def test_a_shell_of_the_real_codex_shows_not_even_its_own_key(
    real: Callable[..., RealBench],
) -> None:
    bench = real({"work": (shell(PROBE), say("Done."))})
    planted = plant(bench.home.path)
    bench.environ.update(planted.environ)
    async with backend(bench, bench.command).open(bench.request()) as session:
        events = await bench.turn(session, "[[work]] please")
    assert events[-1] == TurnEnd(status=TurnStatus.COMPLETED)
    bodies = [json.dumps(request.body) for request in bench.server.requests]
    assert "SYMPHONY_RUN_ID=" in bodies[-1], "the shell was seen"
    assert planted.leaks(bodies) == []


async def test_the_shell_of_a_claude_sees_its_own_key_and_no_other(tmp_path: Path) -> None:
    own = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    planted = plant(tmp_path / "home", own=own)
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], **planted.environ}
    bench = ClaudeBench.at(tmp_path, environ, command=scripted_claude(), tools=(COMMENT,))
    context = {"secret_names": TRACKER_SECRETS}
    async with bench.backend(context=context).open(bench.request()) as session:
        steps = {"run": ["sh", "-c", f"({PROBE}) > shown.txt"]}
        assert (await bench.turn(session, bench.script(steps)))[-1] == COMPLETED
    shown = (bench.workspace / "shown.txt").read_text()
    assert planted.leaks(shown) == []
    assert "ANTHROPIC_API_KEY=planted" in shown


@pytest.mark.real_claude
async def test_the_shell_of_the_real_claude_sees_its_own_key_and_no_other() -> None:
    program = require_claude()
    probe = tool("Bash", {"command": PROBE, "description": "Look"})
    with ModelServer({"work": (probe, say("Done."))}) as server, claude_home(server.base_url) as home:
        own = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
        planted = plant(home.path, own=own)
        bench = ClaudeBench.at(home.path, {**planted.environ, **home.env}, command=str(program))
        context = {"secret_names": TRACKER_SECRETS}
        backend = bench.backend(context=context, on_approval="accept")
        async with backend.open(bench.request()) as session:
            assert (await bench.turn(session, "[[work]] please"))[-1] == COMPLETED
        bodies = [json.dumps(request.body) for request in server.requests]
    assert "SYMPHONY_RUN_ID=" in bodies[-1], "the shell was seen"
    assert planted.leaks(bodies) == []

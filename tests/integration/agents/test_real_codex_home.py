"""The real Codex and what lies in its home: private ones, models, servers of tools that ask a person."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.agents.conftest import RealBench
from kit.model_server import HttpError, say, shell, tool
from symphony.agents.base import BackendContext
from symphony.agents.codex.backend import CodexBackend
from symphony.agents.events import AgentEvent, ApprovalAnswered, InputRequired, LogNotice, TurnEnd, TurnStatus
from symphony.config import CodexSettings
from symphony.domain import Blame

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.agents.conftest import RealBench

    Make = Callable[..., RealBench]

pytestmark = [pytest.mark.asyncio, pytest.mark.real_codex]

COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)
ASKER = Path(__file__).parents[2] / "harness" / "asking_mcp_server.py"
UNKNOWN_MODEL = HttpError(
    status=404,
    body={
        "error": {
            "message": "The model `no-such-model` does not exist or you do not have access to it.",
            "type": "invalid_request_error",
            "code": "model_not_found",
        }
    },
)


def private(bench: RealBench, **settings: Any) -> CodexBackend:
    return CodexBackend(
        settings=CodexSettings(
            **{"command": bench.command, "read_timeout_ms": 20_000, "home": "private", **settings}
        ),
        context=BackendContext(
            host=bench.host,
            environ=bench.environ,
            secret_names=frozenset(),
            homes=bench.workspace.parents[1] / "homes",
            grace_ms=2_000,
        ),
        name="mine",
    )


async def turn(bench: RealBench, backend: CodexBackend, prompt: str) -> list[AgentEvent]:
    async with backend.open(bench.request()) as session:
        return await bench.turn(session, prompt)


async def test_a_private_home_inherits_nothing_and_keeps_what_a_person_wrote_there(real: Make) -> None:
    """The operator's home has instructions, a skill and a server of tools; the agent's has a provider."""
    bench = real({"work": (shell("env"), say("Done."))})
    operator, own = bench.home.path, bench.workspace.parents[1] / "homes" / "mine"
    own.mkdir(parents=True)
    (own / "config.toml").write_text((operator / "config.toml").read_text())
    (operator / "AGENTS.md").write_text("Operator's instruction zebra.")
    (operator / "skills" / "okapi").mkdir(parents=True)
    (operator / "skills" / "okapi" / "SKILL.md").write_text("---\nname: okapi\ndescription: Okapi.\n---\n")
    with (operator / "config.toml").open("a") as config:
        config.write(f'\n[mcp_servers.asker]\ncommand = "{sys.executable}"\nargs = ["{ASKER}", "form"]\n')

    backend = private(bench)
    found = await backend.preflight(bench.workspace.parent, run_id=bench.run_id)
    assert (found.agent, found.notices) == ("codex", ())
    assert (await turn(bench, backend, "[[work]] please"))[-1] == COMPLETED

    told = json.dumps([request.body for request in bench.server.requests])
    for word in ("zebra", "okapi", "asker"):
        assert word not in told
    printed = json.dumps(bench.server.requests[-1].body["input"])
    assert f"CODEX_HOME={own}" in printed
    assert f"HOME={operator}\\\\n" not in printed
    assert list((own / "sessions").rglob("rollout-*.jsonl")), "its threads are there"
    assert str(own / "skills") in map(str, backend.skill_roots.host)


async def test_a_private_home_without_a_login_is_told_where_to_log_in(real: Make) -> None:
    bench = real({})
    backend = private(bench)
    with pytest.raises(Exception, match="Codex is not logged in") as caught:
        await backend.preflight(bench.workspace.parent, run_id=bench.run_id)
    home = bench.workspace.parents[1] / "homes" / "mine"
    assert f"CODEX_HOME={home} codex login" in str(getattr(caught.value, "failure", None))
    assert "yours" in (home / "config.toml").read_text()


async def test_an_unknown_model_is_noted_before_and_named_when_it_fails(real: Make) -> None:
    bench = real({"work": (UNKNOWN_MODEL,)})
    backend = bench.backend(bench.command, model="no-such-model", effort="high")
    found = await backend.preflight(bench.workspace.parent, run_id=bench.run_id)
    assert "codex.model no-such-model is none that this Codex knows: gpt-" in found.notices[0]
    async with backend.open(bench.request()) as session:
        events = await bench.turn(session, "[[work]] please")
    ended = events[-1]
    assert isinstance(ended, TurnEnd)
    assert ended.failure is not None
    assert (ended.failure.blame, ended.failure.retryable) == (Blame.CONFIG, False)
    assert "codex.model" in str(ended.failure.hint)
    assert any(isinstance(event, LogNotice) and "no-such-model" in event.message for event in events)
    assert bench.server.requests[-1].body["reasoning"]["effort"] == "high"


async def test_an_effort_that_the_model_does_not_have_is_noted(real: Make) -> None:
    bench = real({})
    backend = bench.backend(bench.command, model="gpt-5.5", effort="utmost")
    (told,) = (await backend.preflight(bench.workspace.parent, run_id=bench.run_id)).notices
    assert told.startswith("codex.effort utmost is none of this model: ")


def asking(real: Make, mode: str) -> RealBench:
    bench = real({"work": (tool("ask", {}, namespace="mcp__asker"), say("Done."))})
    with (bench.home.path / "config.toml").open("a") as config:
        config.write(f'\n[mcp_servers.asker]\ncommand = "{sys.executable}"\nargs = ["{ASKER}", "{mode}"]\n')
    return bench


@pytest.mark.parametrize("mode", ["form", "url"])
async def test_a_form_for_a_person_is_declined_and_needs_one(real: Make, mode: str) -> None:
    bench = asking(real, mode)
    settings = {"approval_policy": "on-request", "on_approval": "accept"}
    async with bench.session(bench.command, **settings) as session:
        events = await bench.turn(session, "[[work]] please")
    assert ApprovalAnswered(kind="mcpToolCall", decision="accept") in events
    question = events[-1]
    assert isinstance(question, InputRequired)
    assert ("Which colour?" if mode == "form" else "Sign in there") in question.reason


async def test_whether_a_servers_tool_may_run_is_declined_and_the_turn_goes_on(real: Make) -> None:
    bench = asking(real, "form")
    async with bench.session(bench.command, approval_policy="on-request") as session:
        events = await bench.turn(session, "[[work]] please")
    assert ApprovalAnswered(kind="mcpToolCall", decision="decline") in events
    assert events[-1] == COMPLETED
    assert "came back" not in json.dumps(bench.server.requests[-1].body)


async def test_codex_refuses_a_servers_tool_by_itself_where_nothing_may_be_asked(real: Make) -> None:
    bench = asking(real, "form")
    async with bench.session(bench.command) as session:
        events = await bench.turn(session, "[[work]] please")
    assert events[-1] == COMPLETED
    assert "approval policy is never" in json.dumps(bench.server.requests[-1].body["input"][-1])

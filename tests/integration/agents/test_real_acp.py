"""Real agents that speak the Agent Client Protocol against the model server; `make agents` runs all of them.

One suite for all: what an agent cannot do is told by its profile, and is expected of it here.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from harness.acp import COMMENT, ENVELOPE, AcpBench
from harness.acp_agents import DRIVEN, Driven, furnish, place
from harness.real import require_acp
from kit.model_server import HttpError, ModelServer, Recorded, Scenario, say
from symphony.agents.acp.profiles import PROFILES
from symphony.agents.base import AgentError
from symphony.agents.events import (
    AgentEvent,
    ApprovalAnswered,
    InputRequired,
    ItemFinished,
    ItemStarted,
    SessionStarted,
    Text,
    ToolCalled,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.domain import Category
from symphony.scheduler import Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kit.model_server import Recorded
    from symphony.agents.events import AgentEvent

    Make = Callable[..., "Bench"]

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.timeout(400),
    pytest.mark.parametrize(
        "driven",
        [pytest.param(each, id=name, marks=pytest.mark.real_acp(name)) for name, each in DRIVEN.items()],
    ),
]

COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)
SHELLS = ("run_shell_command", "exec_command", '"bash"', '"Bash"')
SECRET = "tracker-secret-value"


@dataclass
class Bench(AcpBench):
    """A bench with the model server that its agent talks to."""

    server: ModelServer = field(kw_only=True)

    def asked(self) -> list[Recorded]:
        """The requests of the turns, without those that an agent makes for itself (titles, summaries)."""
        found = [each for each in self.server.requests if each.scenario is not None]
        return [each for each in found if any(word in json.dumps(each.body) for word in SHELLS)]


@pytest.fixture
def real(driven: Driven) -> Iterator[Make]:
    """Make a bench; `scenarios` is given the directory in which it will be."""
    command = require_acp(driven)
    with ExitStack() as stack:

        def make(scenarios: Callable[[Driven, Path], dict[str, Scenario]], **settings: Any) -> Bench:
            top = stack.enter_context(place())
            server = stack.enter_context(ModelServer(scenarios(driven, top)))
            environ = furnish(driven, top, server.base_url)
            values = {"profile": driven.profile, "command": command, **settings}
            return Bench.at(top, environ, settings=values, grace_ms=10_000, server=server)

        yield make


def work(driven: Driven, top: Path) -> dict[str, Scenario]:
    """A file, a commit, a word."""
    return {
        "work": (
            driven.write(top / "root/MT-1/a.txt", "hello\n"),
            driven.command("git add --all && git commit --quiet --message 'add a'"),
            say("All done."),
        ),
        "more": (say("There was no more."),),
    }


def kinds(events: Sequence[AgentEvent]) -> set[str]:
    return {event.kind for event in events if isinstance(event, ItemFinished)}


async def test_a_file_is_written_and_committed_and_the_envelope_arrives_once(
    real: Make, driven: Driven
) -> None:
    bench = real(work, on_approval="accept")
    found = await bench.backend().preflight(bench.root, run_id=bench.run_id)
    assert found.version in str(PROFILES[driven.profile].observed)
    async with bench.session({"envelope": ENVELOPE}) as session:
        events = await bench.turn(session, "[[work]] please")
    assert events[-1] == COMPLETED
    assert (bench.workspace / "a.txt").read_text("utf-8") == "hello\n"
    assert bench.git("log", "-1", "--format=%s") == "add a"
    assert bench.git("status", "--porcelain") == ""
    assert "execute" in kinds(events)
    assert any(isinstance(event, Text) and "All done." in event.message for event in events)
    assert all(json.dumps(each.body).count("- greet ") == 1 for each in bench.asked())
    assert len(bench.asked()) >= 3
    assert bench.living() == ()


async def test_tokens_are_told_as_the_profile_says(real: Make, driven: Driven) -> None:
    bench = real(work, on_approval="accept")
    async with bench.session() as session:
        events = await bench.turn(session, "[[work]] please")
    told = [
        (event.tokens.input_tokens, event.tokens.total_tokens)
        for event in events
        if isinstance(event, UsageUpdate)
    ]
    calls = 1 if PROFILES[driven.profile].usage == "last_call" else 3
    assert told == [(100 * calls, 110 * calls)]


async def test_what_is_declined_is_not_done(real: Make, driven: Driven) -> None:
    def scenarios(_: Driven, top: Path) -> dict[str, Scenario]:
        return {"escape": (driven.write(top / "outside.txt", "x"), say("I could not."))}

    bench = real(scenarios, on_approval="decline")
    async with bench.session() as session:
        events = await bench.turn(session, "[[escape]] please")
    assert not (bench.top / "outside.txt").exists()
    assert isinstance(events[-1], TurnEnd)
    asked = [event.decision for event in events if isinstance(event, ApprovalAnswered)]
    assert set(asked) <= {"decline"}


async def test_a_permission_can_wait_for_a_person(real: Make, driven: Driven) -> None:
    if driven.profile == "codex-acp":
        pytest.skip("its model judges what would be asked: the codex backend shows this")
    bench = real(work, on_approval="block")
    async with bench.session() as session:
        events = await bench.turn(session, "[[work]] please")
    assert isinstance(events[-1], InputRequired)
    assert events[-1].approval
    assert not (bench.workspace / "a.txt").exists()


async def test_a_tool_of_ours_makes_the_round_trip_without_being_asked_about(
    real: Make, driven: Driven
) -> None:
    call = driven.tool("board_comment", {"text": "hi"})
    bench = real(lambda *_: {"comment": (call, say("Commented."))}, on_approval="decline")
    async with bench.session({"tools": (COMMENT,)}) as session:
        events = await bench.turn(session, "[[comment]] please")
    assert bench.calls == [("board_comment", {"text": "hi"})]
    assert ToolCalled(name="board_comment", success=True) in events
    assert events[-1] == COMPLETED
    assert "echo" in json.dumps(bench.server.requests[-1].body)


async def test_a_conversation_is_gone_on_with_and_told_the_new_envelope(real: Make, driven: Driven) -> None:
    bench = real(work, on_approval="accept")
    async with bench.session({"envelope": ENVELOPE}) as session:
        first = await bench.turn(session, "[[more]] first words")
    thread_id = next(event.thread_id for event in first if isinstance(event, SessionStarted))
    newer = ENVELOPE.replace("greet", "wave")
    changes = {"envelope": newer, "resume": Thread(thread_id=thread_id)}
    async with bench.session(changes) as session:
        refused = session.resume_refused
        second = await bench.turn(session, "[[more]] second words")
    assert second[-1] == COMPLETED
    told = json.dumps(bench.asked()[-1].body)
    assert "- wave" in told
    if PROFILES[driven.profile].load:
        assert refused is None
        assert "first words" in told
        assert not any(isinstance(event, Text) and "first" in event.message for event in second)
    else:
        assert refused is not None
        assert "first words" not in told


async def test_a_turn_is_interrupted_and_leaves_nothing(real: Make, driven: Driven) -> None:
    begin = driven.command("touch began; sleep 1000")
    bench = real(lambda *_: {"hang": (begin, say("Never."))}, on_approval="accept")
    async with bench.session() as session:
        with anyio.CancelScope() as turn:
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    while not await anyio.Path(bench.workspace / "began").exists():  # noqa: ASYNC110 - a process
                        await anyio.sleep(0.05)
                    turn.cancel()

                tasks.start_soon(watch)
                await bench.turn(session, "[[hang]] please")
        assert bench.living() != ()
        left = await session.stop()
    ends = [event.status for event in left if isinstance(event, TurnEnd)]
    assert ends == [TurnStatus.INTERRUPTED]
    assert bench.living() == ()


async def test_a_wrong_key_is_told_as_such(real: Make, driven: Driven) -> None:
    body = {"error": {"message": "Incorrect API key provided", "type": "authentication_error", "code": 401}}
    bench = real(lambda *_: {"locked": (HttpError(status=401, body=body),)})
    async with bench.session() as session:
        events = await bench.turn(session, "[[locked]] please")
    ended = events[-1]
    assert isinstance(ended, TurnEnd)
    assert ended.failure is not None
    assert (ended.failure.category, ended.failure.hint) == (
        Category.AGENT_AUTH,
        PROFILES[driven.profile].login_hint,
    )


async def test_a_mode_that_does_not_exist_is_told_at_the_check(real: Make, driven: Driven) -> None:
    del driven
    bench = real(lambda *_: {}, mode="no-such-mode")
    with pytest.raises(AgentError) as caught:
        await bench.backend().preflight(bench.root, run_id=bench.run_id)
    assert caught.value.failure.category is Category.AGENT_PREFLIGHT
    assert "no mode 'no-such-mode'" in caught.value.failure.message
    assert "it offers" in (caught.value.failure.hint or "")


async def test_a_shell_shows_no_secret_and_no_key_of_others(real: Make, driven: Driven) -> None:
    show = driven.command("env > shown")
    bench = real(lambda *_: {"env": (show, say("Shown."))}, on_approval="accept")
    others = {"LINEAR_API_KEY": SECRET, "MISTRAL_API_KEY": f"{SECRET}-of-another", "GITHUB_TOKEN": SECRET}
    bench.environ.update(others)
    bench.secret_names = frozenset({"LINEAR_API_KEY"})
    profile = anyio.Path(bench.environ["HOME"]) / ".bash_profile"
    await profile.write_text(
        "".join(f"export {name}={SECRET}\n" for name in others if name != "GITHUB_TOKEN")
    )
    async with bench.session() as session:
        events = await bench.turn(session, "[[env]] please")
    assert events[-1] == COMPLETED
    shown = await anyio.Path(bench.workspace / "shown").read_text("utf-8")
    assert f"SYMPHONY_RUN_ID={bench.run_id}" in shown
    assert SECRET not in shown
    assert any(isinstance(event, ItemStarted) for event in events)

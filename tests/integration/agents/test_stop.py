from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from symphony.agents.base import Turn
from symphony.agents.events import SessionStarted, Text, TurnEnd, TurnStatus, UsageUpdate

if TYPE_CHECKING:
    from integration.agents.conftest import Bench
    from symphony.agents.codex.session import CodexSession

pytestmark = pytest.mark.asyncio


async def begin(session: CodexSession, prompt: str, text: str) -> None:
    """Run a turn until the agent has said something, and leave it running."""
    turn = session.run_turn(Turn(prompt=prompt, title="MT-1: try"))
    async for event in turn:
        if isinstance(event, Text) and text in event.message:
            return
    pytest.fail("the turn ended before")


async def test_stop_interrupts_the_turn_and_returns_the_final_totals(bench: Bench) -> None:
    bench.grace_ms = 60_000  # for its answer, also on a busy machine
    async with bench.session(bench.scripted()) as session:
        await begin(session, bench.script({"say": "working"}, {"sleep_ms": 60_000}), "working")
        left = await session.stop()
    assert [event.status for event in left if isinstance(event, TurnEnd)] == [TurnStatus.INTERRUPTED]
    assert any(isinstance(event, UsageUpdate) for event in left)
    assert bench.living() == ()


async def test_stop_is_idempotent_and_tells_its_story_once(bench: Bench) -> None:
    bench.grace_ms = 60_000  # for its answer, also on a busy machine
    async with bench.session(bench.scripted()) as session:
        await begin(session, bench.script({"say": "working"}, {"sleep_ms": 60_000}), "working")
        assert await session.stop() != ()
        assert await session.stop() == ()


async def test_stop_without_a_turn_ends_the_process(bench: Bench) -> None:
    async with bench.session(bench.scripted()) as session:
        await session.stop()
        assert not bench.host.is_alive(bench.spawned[0])


@pytest.mark.conformance("A-17")
@pytest.mark.parametrize(
    "switches",
    [
        ("--ignore-eof",),
        ("--ignore-eof", "--ignore-sigterm"),
        ("--own-session-child",),
        ("--ignore-eof", "--ignore-sigterm", "--own-session-child"),
    ],
)
async def test_nothing_survives_whatever_the_agent_ignores(bench: Bench, switches: tuple[str, ...]) -> None:
    async with bench.session(bench.scripted(*switches)) as session:
        await begin(session, bench.script({"say": "working"}, {"sleep_ms": 60_000}), "working")
        alive = bench.living()
        assert len(alive) >= 1 + ("--own-session-child" in switches)
        with anyio.fail_after(60):
            await session.stop()
    assert bench.living() == ()
    assert not any(bench.host.is_alive(identity) for identity in alive)


@pytest.mark.conformance("A-17")
async def test_a_tool_shell_that_left_the_group_and_its_parent_is_swept(bench: Bench) -> None:
    steps = ({"run": "setsid -f sleep 86400 >/dev/null 2>&1"}, {"say": "up"}, {"sleep_ms": 60_000})
    async with bench.session(bench.scripted()) as session:
        await begin(session, bench.script(*steps), "up")
        others = [identity for identity in bench.living() if identity.pid != session.pid]
        assert others
        await session.stop()
        assert not any(bench.host.is_alive(identity) for identity in others)


async def test_cancelling_a_turn_and_leaving_the_context_ends_everything(bench: Bench) -> None:
    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with bench.session(bench.scripted("--ignore-eof", "--ignore-sigterm")) as session:
            async for event in session.run_turn(Turn(prompt=bench.script({"sleep_ms": 60_000}))):
                if isinstance(event, SessionStarted):
                    scope.cancel()
    assert scope.cancelled_caught
    assert bench.living() == ()


async def test_an_agent_that_was_killed_is_stopped_without_complaint(bench: Bench) -> None:
    async with bench.session(bench.scripted()) as session:
        await bench.host.end(bench.spawned, grace_ms=0)
        await session.stop()
    assert bench.living() == ()


async def test_what_was_written_before_the_stop_is_not_lost(bench: Bench) -> None:
    bench.grace_ms = 60_000  # for its answer, also on a busy machine
    steps = [{"say": f"line {number}"} for number in range(300)]
    async with bench.session(bench.scripted()) as session:
        turn = session.run_turn(Turn(prompt=bench.script(*steps, {"sleep_ms": 60_000})))
        await anext(aiter(turn))
        left = await session.stop()
    said = [event.message for event in left if isinstance(event, Text)]
    assert said
    assert any(isinstance(event, UsageUpdate) for event in left)

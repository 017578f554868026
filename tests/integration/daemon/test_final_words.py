from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from harness.binding import NoOwnSkills
from harness.project import Project
from harness.serving import move, serving
from symphony.agents.base import Preflight, SessionRequest, Turn
from symphony.agents.events import AgentEvent, RateLimits, SessionStarted, Text, UsageUpdate
from symphony.domain import Tokens
from symphony.scheduler import RunEnded, StopReason, StopRun

pytestmark = pytest.mark.asyncio


def used(total: int) -> UsageUpdate:
    return UsageUpdate(absolute=True, tokens=Tokens(total - 1, 1, total))


class Talker(NoOwnSkills):
    """An agent in this process: says something, then nothing, and has more to say when it is stopped."""

    pid = 1
    thread_id = "t"

    def __init__(self) -> None:
        self.stops = 0

    @property
    def capabilities(self) -> None:
        return None

    async def preflight(self, _: object, *, run_id: str) -> Preflight:
        assert run_id
        return Preflight(agent="talker", version="1")

    @asynccontextmanager
    async def open(self, _: SessionRequest) -> AsyncIterator["Talker"]:
        yield self

    async def run_turn(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        yield SessionStarted(session_id="t-1", thread_id="t", turn_id="1")
        yield used(100)
        yield Text(message=f"{turn.title}: {turn.prompt}")
        await anyio.sleep_forever()

    async def stop(self) -> tuple[AgentEvent, ...]:
        self.stops += 1
        await anyio.lowlevel.checkpoint()
        return (
            used(2_000),
            RateLimits(payload={"primary": {"used_percent": 9}}),
            Text(message="the last words"),
            used(5_000),
        )


@pytest.mark.conformance("O-4", "S-6")
async def test_what_the_agent_had_written_counts_although_its_issue_was_done_in_mid_turn(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    talker = Talker()
    monkeypatch.setattr("symphony.daemon.context.create_backend", lambda *_, **__: talker)
    project.workflow()
    issue = project.issue("SYM-1")
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until(lambda: any(run.report.facts.session_id for run in watcher.running))
        await move(issue, "Done")
        await watcher.until_seen(RunEnded)
        state = watcher.states[-1]
    assert [stop.reason for stop in watcher.all(StopRun)] == [StopReason.TERMINAL]
    assert talker.stops == 1
    assert state.totals.usage.tokens == Tokens(4_999, 1, 5_000)
    assert state.rate_limits == {"primary": {"used_percent": 9}}

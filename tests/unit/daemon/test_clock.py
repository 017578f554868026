from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from symphony.daemon.clock import Timers, monotonic_ms
from symphony.scheduler import SetTimer, Timer, TimerFired, TimerKind

pytestmark = pytest.mark.asyncio

POLL = Timer(TimerKind.POLL)


class Clock:
    """A clock that stands still, and counts how often somebody looks at it."""

    def __init__(self) -> None:
        self.now = 1_000
        self.looks = 0

    def __call__(self) -> int:
        self.looks += 1
        return self.now


class Desk:
    """Timers on a clock of the test; `fired` holds (id or kind, token) in order."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.fired: list[tuple[str, int]] = []
        self.changed = anyio.Event()
        self.timers = Timers(self._note, self.clock)

    def _note(self, fact: TimerFired) -> None:
        self.fired.append((fact.timer.id or fact.timer.kind.value, fact.token))
        self.changed.set()
        self.changed = anyio.Event()

    def arm(self, timer: Timer, token: int, due_ms: int) -> None:
        self.timers.set(SetTimer(timer=timer, token=token, due_ms=due_ms))

    def advance(self, now: int) -> None:
        """Move the clock and nudge the task, as setting any timer does."""
        self.clock.now = now
        self.arm(Timer(TimerKind.DRAIN, "far"), 99, 10**12)

    async def until(self, count: int) -> None:
        with anyio.fail_after(60):
            while len(self.fired) < count:
                await self.changed.wait()


@asynccontextmanager
async def running() -> AsyncIterator[Desk]:
    desk = Desk()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.timers.run)
        await anyio.wait_all_tasks_blocked()
        yield desk
        tasks.cancel_scope.cancel()


def retry(issue_id: str) -> Timer:
    return Timer(TimerKind.RETRY, issue_id)


async def test_a_replaced_timer_fires_once_and_with_its_newest_token() -> None:
    async with running() as desk:
        desk.arm(POLL, 1, 2_000)
        desk.arm(POLL, 2, 3_000)
        desk.arm(POLL, 3, 1_500)
        desk.advance(1_500)
        await desk.until(1)
        desk.advance(9_000)
        await anyio.wait_all_tasks_blocked()
        assert desk.fired == [("poll", 3)]


async def test_a_timer_that_was_put_off_does_not_fire_at_its_old_time() -> None:
    async with running() as desk:
        desk.arm(POLL, 1, 2_000)
        desk.arm(POLL, 2, 3_000)
        desk.advance(2_500)
        await anyio.wait_all_tasks_blocked()
        assert desk.fired == []
        desk.advance(3_000)
        await desk.until(1)
        assert desk.fired == [("poll", 2)]


async def test_timers_fire_in_the_order_in_which_they_come_due_and_then_of_their_setting() -> None:
    async with running() as desk:
        for token, (name, due_ms) in enumerate([("c", 3_000), ("a", 2_000), ("b", 2_000), ("d", 4_000)]):
            desk.arm(retry(name), token, due_ms)
        desk.advance(3_000)
        await desk.until(3)
        await anyio.wait_all_tasks_blocked()
        assert [name for name, _ in desk.fired] == ["a", "b", "c"]


async def test_a_timer_in_the_past_fires_at_once() -> None:
    async with running() as desk:
        desk.arm(POLL, 1, 0)
        await desk.until(1)
        assert desk.fired == [("poll", 1)]


async def test_a_timer_set_while_timers_fire_is_not_overlooked() -> None:
    fired: list[int] = []
    ended = anyio.Event()

    def again(fact: TimerFired) -> None:
        fired.append(fact.token)
        if fact.token < 3:
            timers.set(SetTimer(timer=POLL, token=fact.token + 1, due_ms=0))
        else:
            ended.set()

    timers = Timers(again, lambda: 1_000)
    timers.set(SetTimer(timer=POLL, token=1, due_ms=0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        with anyio.fail_after(60):
            await ended.wait()
        tasks.cancel_scope.cancel()
    assert fired == [1, 2, 3]


async def test_waiting_costs_no_look_at_the_clock() -> None:
    async with running() as desk:
        desk.arm(POLL, 1, 10_000_000)
        await anyio.wait_all_tasks_blocked()
        before = desk.clock.looks
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert desk.clock.looks == before, "it sleeps until something changes"


async def test_a_timer_on_the_real_clock_fires_not_before_its_time() -> None:
    moments: list[int] = []
    ended = anyio.Event()

    def note(_: TimerFired) -> None:
        moments.append(monotonic_ms())
        ended.set()

    timers = Timers(note)
    due_ms = monotonic_ms() + 20
    timers.set(SetTimer(timer=POLL, token=1, due_ms=due_ms))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        with anyio.fail_after(60):
            await ended.wait()
        tasks.cancel_scope.cancel()
    assert moments[0] >= due_ms


async def test_timers_of_ended_runs_go_before_they_are_due() -> None:
    async with running() as desk:
        armed = SetTimer(timer=retry("1"), token=0, due_ms=2_000)
        desk.timers.set(armed)
        before = desk.timers.pending
        for number in range(1, 10_001):
            desk.arm(Timer(TimerKind.STALL, f"e-{number}"), number, 300_000 + number)
            desk.timers.keep({armed.timer: armed})
            assert desk.timers.pending <= before + 70
        desk.advance(2_000)
        await desk.until(1)
        assert desk.fired == [("1", 0)], "the one that is armed is kept"


async def test_as_many_armed_timers_as_there_are_stay() -> None:
    async with running() as desk:
        armed = [SetTimer(timer=retry(str(token)), token=token, due_ms=2_000) for token in range(500)]
        for command in armed:
            desk.timers.set(command)
            desk.timers.keep({each.timer: each for each in armed[: command.token + 1]})
        desk.advance(2_000)
        await desk.until(500)
        assert [token for _, token in desk.fired] == list(range(500))

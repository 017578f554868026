"""Moves that the daemon makes beside the work: where they still fit, once, and read back."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from harness.binding import SECRET, FakeTracker, MovingTracker, make_context
from harness.scheduling import make_failure, make_issue
from symphony.daemon.moves import Moves
from symphony.domain import Issue
from symphony.scheduler import MoveIssue, MoveReason
from symphony.trackers.base import TrackerError

pytestmark = pytest.mark.asyncio
ONE = make_issue("1")


class Desk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.wakes = 0
        self.moves = Moves(self.moved_back)

    def moved_back(self) -> None:
        self.wakes += 1

    async def do(self, tracker: FakeTracker, *commands: MoveIssue) -> list[str]:
        """Carry the moves out, the last of them being what counts; the events that were logged."""
        context = make_context(self.path, tracker)
        with capture_logs() as lines:
            for command in commands:
                self.moves.request(command)
            for command in commands:
                await self.moves.move(context, command)
        assert SECRET not in str(lines)
        return [f"{line['log_level']} {line['event']}" for line in lines]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _move(reason: MoveReason = MoveReason.START, state: str = "In Progress", *only: str) -> MoveIssue:
    return MoveIssue(issue=ONE, state=state, reason=reason, only_from=frozenset(only or ("todo",)))


async def test_an_issue_is_moved(desk: Desk) -> None:
    tracker = MovingTracker(issues=(ONE,))
    assert await desk.do(tracker, _move()) == ["info issue_moved"]
    assert tracker.moved == [("1", "In Progress")]
    assert desk.wakes == 0


async def test_who_waits_for_a_move_back_is_woken(desk: Desk) -> None:
    assert await desk.do(MovingTracker(issues=(ONE,)), _move(MoveReason.BACK)) == ["info issue_moved"]
    assert desk.wakes == 1


@pytest.mark.parametrize("issues", [(), (make_issue("1", state="Done"),)], ids=["gone", "moved"])
async def test_what_somebody_else_did_stands(desk: Desk, issues: tuple[Issue, ...]) -> None:
    tracker = MovingTracker(issues=issues)
    assert await desk.do(tracker, _move()) == ["debug move_skipped"]
    assert tracker.moved == []


async def test_a_move_that_is_overtaken_is_not_made(desk: Desk) -> None:
    tracker = MovingTracker(issues=(ONE,))
    told = await desk.do(tracker, _move(), _move(MoveReason.BLOCK, "Human Review"))
    assert told == ["debug move_skipped", "info issue_moved"]
    assert tracker.moved == [("1", "Human Review")]


async def test_a_move_for_a_run_that_is_over_comes_too_late(desk: Desk) -> None:
    tracker = MovingTracker(issues=(ONE,))
    context = make_context(desk.path, tracker)
    for reason, moved in ((MoveReason.START, 0), (MoveReason.BLOCK, 1)):
        command = _move(reason)
        desk.moves.request(command)
        desk.moves.run_ended("1")
        await desk.moves.move(context, command)
        assert len(tracker.moved) == moved
    desk.moves.run_ended("2")


async def test_a_move_that_is_late_does_not_take_the_issue_from_a_run(desk: Desk) -> None:
    tracker = MovingTracker(issues=(ONE,))
    desk.moves.request(command := _move(MoveReason.BLOCK))
    desk.moves.cancel("1")
    await desk.moves.move(make_context(desk.path, tracker), command)
    assert tracker.moved == []


async def test_a_failure_is_told_once_with_a_hint_until_a_move_succeeds(desk: Desk) -> None:
    failure = make_failure(f"refused for {SECRET}", hint="ask an administrator")
    tracker = MovingTracker(issues=(ONE,), failure=TrackerError(failure))
    assert await desk.do(tracker, _move()) == ["warning move_failed"]
    assert await desk.do(tracker, _move()) == ["debug move_failed"]
    tracker.failure = TrackerError(make_failure("something else"))
    assert await desk.do(tracker, _move()) == ["warning move_failed"]
    tracker.failure = None
    assert await desk.do(tracker, _move()) == ["info issue_moved"]
    tracker.issues = (ONE,)
    tracker.failure = TrackerError(make_failure("something else"))
    assert await desk.do(tracker, _move()) == ["warning move_failed"]


async def test_a_service_that_accepts_and_ignores_has_failed(desk: Desk) -> None:
    tracker = MovingTracker(issues=(ONE,), goes_to="Todo")
    with capture_logs() as lines:
        desk.moves.request(command := _move())
        await desk.moves.move(make_context(desk.path, tracker), command)
    (line,) = lines
    assert "still in 'Todo'" in line["reason"]
    assert line["hint"]


async def test_a_tracker_that_cannot_move_says_so(desk: Desk) -> None:
    assert await desk.do(FakeTracker(issues=(ONE,)), _move()) == ["warning move_failed"]


async def test_a_bug_and_a_silence_cost_a_warning(desk: Desk) -> None:
    tracker = MovingTracker(issues=(ONE,), failure=ZeroDivisionError(SECRET))
    assert await desk.do(tracker, _move()) == ["warning move_failed"]
    desk.moves = Moves(desk.moved_back, timeout_s=0.0)

    @dataclass
    class Silent(MovingTracker):
        @override
        async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
            await anyio.sleep_forever()
            raise AssertionError(ids)

    assert await desk.do(Silent(), _move()) == ["warning move_failed"]


async def test_the_number_of_remembered_warnings_is_bounded(desk: Desk) -> None:
    desk.moves = Moves(desk.moved_back, max_reported=1)
    tracker = MovingTracker(issues=(ONE,), failure=TrackerError(make_failure("no")))
    assert await desk.do(tracker, _move()) == ["warning move_failed"]
    assert await desk.do(tracker, _move(MoveReason.BLOCK, "Other")) == ["warning move_failed"]
    assert await desk.do(tracker, _move()) == ["warning move_failed"]


@asynccontextmanager
async def _held(tracker: MovingTracker, gate: anyio.Event) -> AsyncIterator[None]:
    tracker.before_answer = gate.wait
    yield


async def test_moves_of_one_issue_come_one_after_the_other(desk: Desk) -> None:
    gate, tracker = anyio.Event(), MovingTracker(issues=(ONE,))
    context = make_context(desk.path, tracker)
    first, second = _move(), _move(MoveReason.BLOCK, "Human Review")
    async with _held(tracker, gate), anyio.create_task_group() as tasks:
        for command in (first, second):
            desk.moves.request(command)
            tasks.start_soon(desk.moves.move, context, command)
        await anyio.wait_all_tasks_blocked()
        assert len(tracker.asked) == 1
        gate.set()
    assert tracker.moved == [("1", "Human Review")]

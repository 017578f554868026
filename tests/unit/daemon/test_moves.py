"""Moves that the daemon makes beside the work: where they still fit, once, read back, and not too late."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from harness.binding import SECRET, FakeTracker, MovingTracker, make_context
from harness.outbox import Outbox, make_state
from harness.scheduling import make_failure, make_issue
from kit.virtual_time import in_virtual_time
from symphony.daemon.moves import queue_move
from symphony.domain import Issue
from symphony.scheduler import MoveIssue, MoveReason, Resume, ResumeReason, WakeAsked
from symphony.trackers.base import TrackerError

pytestmark = pytest.mark.asyncio
ONE = make_issue("1")
ON_START = '{"tracker": {"kind": "markdown", "on_start": "Doing"}}'
_STATES = {
    MoveReason.START: make_state(running=["1"]),
    MoveReason.BLOCK: make_state(blocked=["1"]),
    MoveReason.BACK: make_state(blocked=["1"], unblocked=True),
    MoveReason.VERIFY_FAILED: make_state(
        running=["1"], resume=Resume(reason=ResumeReason.VERIFY_FAILED, handed_over_to="todo")
    ),
}


class Desk:
    def __init__(self, path: Path, tracker: FakeTracker, more: str = "{}") -> None:
        self.outbox = Outbox(make_context(path, tracker, more=more))

    def queue(self, *commands: MoveIssue) -> None:
        for command in commands:
            self.outbox.state = _STATES[command.reason]
            queue_move(self.outbox.jobs, self.outbox.context, command)

    async def do(self, *commands: MoveIssue) -> list[str]:
        """Try the moves, the last of them being what counts; the events that were logged."""
        with capture_logs() as lines:
            self.queue(*commands)
            await self.outbox.once()
        assert SECRET not in str(lines)
        return [f"{line['log_level']} {line['event']}" for line in lines]


def _move(reason: MoveReason = MoveReason.START, state: str = "In Progress", *only: str) -> MoveIssue:
    return MoveIssue(issue=ONE, state=state, reason=reason, only_from=frozenset(only or ("todo",)))


@pytest.mark.parametrize("reason", MoveReason)
@in_virtual_time
async def test_an_issue_is_moved_and_who_waits_for_a_move_back_is_woken(
    tmp_path: Path, reason: MoveReason
) -> None:
    tracker = MovingTracker(issues=(ONE,))
    desk = Desk(tmp_path, tracker)
    assert await desk.do(_move(reason)) == ["info issue_moved"]
    assert tracker.moved == [("1", "In Progress")]
    assert desk.outbox.wakes == (reason is MoveReason.BACK)
    assert desk.outbox.journal == {}


@pytest.mark.parametrize("issues", [(), (make_issue("1", state="Done"),)], ids=["gone", "moved"])
@in_virtual_time
async def test_what_somebody_else_did_stands(tmp_path: Path, issues: tuple[Issue, ...]) -> None:
    tracker = MovingTracker(issues=issues)
    assert await Desk(tmp_path, tracker).do(_move()) == ["debug move_skipped"]
    assert tracker.moved == []


@in_virtual_time
async def test_an_issue_that_is_there_already_is_not_moved_again(tmp_path: Path) -> None:
    tracker = MovingTracker(issues=(replace(ONE, state="Review"),))
    move = _move(MoveReason.BLOCK, "Review", "todo", "review")
    assert await Desk(tmp_path, tracker).do(move) == ["debug move_skipped"]
    assert tracker.moved == []


@in_virtual_time
async def test_a_move_that_is_overtaken_is_not_made(tmp_path: Path) -> None:
    tracker = MovingTracker(issues=(ONE,))
    assert await Desk(tmp_path, tracker).do(_move(), _move(MoveReason.BLOCK, "Human Review")) == [
        "info issue_moved"
    ]
    assert tracker.moved == [("1", "Human Review")]


@pytest.mark.parametrize("reason", MoveReason)
@in_virtual_time
async def test_a_move_whose_reason_is_over_is_not_made(tmp_path: Path, reason: MoveReason) -> None:
    """The run ended, the issue is worked on again, or it was released."""
    tracker = MovingTracker(issues=(ONE,))
    desk = Desk(tmp_path, tracker)
    desk.queue(_move(reason))
    desk.outbox.state = make_state(running=[] if reason is MoveReason.START else ["1"])
    await desk.outbox.once()
    assert tracker.moved == []
    assert desk.outbox.journal == {}


@in_virtual_time
async def test_a_move_whose_reason_ends_while_the_tracker_answers_is_not_made(tmp_path: Path) -> None:
    tracker = MovingTracker(issues=(ONE,))
    desk = Desk(tmp_path, tracker)

    async def unblocked() -> None:
        desk.outbox.state = make_state(running=["1"])

    tracker.before_answer = unblocked
    assert await desk.do(_move(MoveReason.BLOCK)) == ["debug move_skipped"]
    assert tracker.moved == []


class TestAnOutage:
    @pytest.mark.parametrize("reason", MoveReason)
    @in_virtual_time
    async def test_a_move_is_made_when_it_is_over(self, tmp_path: Path, reason: MoveReason) -> None:
        tracker = MovingTracker(issues=(ONE,), failure=TrackerError(make_failure("down")))
        desk = Desk(tmp_path, tracker)
        assert await desk.do(_move(reason)) == ["warning job_failed"]
        tracker.failure = None
        await desk.outbox.settle()
        assert tracker.moved == [("1", "In Progress")]

    @in_virtual_time
    async def test_a_successor_makes_the_move_of_a_block(self, tmp_path: Path) -> None:
        tracker = MovingTracker(issues=(ONE,), failure=TrackerError(make_failure("down")))
        desk = Desk(tmp_path, tracker)
        await desk.do(_move(MoveReason.BLOCK))
        tracker.failure = None
        later = desk.outbox.successor()
        later.state = desk.outbox.state
        await later.settle()
        assert tracker.moved == [("1", "In Progress")]
        assert later.journal == {}

    @pytest.mark.parametrize(
        ("now", "moved"), [("Todo", True), ("Doing", True), ("Rework", False), ("Done", False)]
    )
    @in_virtual_time
    async def test_a_late_move_never_undoes_a_newer_state(
        self, tmp_path: Path, now: str, *, moved: bool
    ) -> None:
        """`Rework` is an active state: in time, the agent may have moved its issue there."""
        tracker = MovingTracker(issues=(ONE,), failure=TrackerError(make_failure("down")))
        desk = Desk(tmp_path, tracker, ON_START)
        await desk.do(_move(MoveReason.BLOCK, "Human Review", "todo", "doing", "rework"))
        tracker.failure, tracker.issues = None, (replace(ONE, state=now),)
        await desk.outbox.settle()
        assert bool(tracker.moved) is moved

    @in_virtual_time
    async def test_in_time_it_is_made_from_each_state_that_fits(self, tmp_path: Path) -> None:
        tracker = MovingTracker(issues=(replace(ONE, state="Rework"),))
        await Desk(tmp_path, tracker, ON_START).do(_move(MoveReason.BLOCK, "Human Review", "todo", "rework"))
        assert tracker.moved == [("1", "Human Review")]


class TestAFailure:
    @in_virtual_time
    async def test_it_is_told_once_until_it_is_another_one(self, tmp_path: Path) -> None:
        failure = make_failure(f"refused for {SECRET}", hint="ask an administrator")
        tracker = MovingTracker(issues=(ONE,), failure=TrackerError(failure))
        desk = Desk(tmp_path, tracker)
        told = []
        with capture_logs() as lines:
            async with desk.outbox.at_work():
                for state, error in (("Doing", failure), ("Doing", failure), ("Done", make_failure("other"))):
                    tracker.failure = TrackerError(error)
                    desk.queue(_move(state=state))
                    desk.outbox.jobs.retry("move:1")
                    await anyio.sleep(0.1)
                    told.append([line["log_level"] for line in lines if line["event"] == "job_failed"])
                    lines.clear()
        assert told == [["warning"], ["debug"], ["warning"]]

    @in_virtual_time
    async def test_a_service_that_accepts_and_ignores_has_failed(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, MovingTracker(issues=(ONE,), goes_to="Todo"))
        desk.queue(_move())
        with capture_logs() as lines:
            await desk.outbox.once()
        (line,) = lines
        assert "still in 'Todo'" in line["reason"]
        assert line["hint"]

    @in_virtual_time
    async def test_a_tracker_that_cannot_move_is_not_asked_again(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, FakeTracker(issues=(ONE,)))
        assert await desk.do(_move()) == ["warning job_failed", "warning job_given_up"]
        assert await desk.do(_move()) == ["debug job_failed", "debug job_given_up"]
        (job,) = desk.outbox.jobs.jobs
        assert job.state == "given_up"
        before, desk.outbox.state = desk.outbox.state, make_state()
        desk.outbox.jobs(before, WakeAsked(reason="poll"), desk.outbox.state, ())
        assert desk.outbox.journal == {}, "its run is over, and with it the reason to move"

    @in_virtual_time
    async def test_a_bug_is_a_failure_too(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, MovingTracker(issues=(ONE,), failure=ZeroDivisionError("one")))
        told = await desk.do(_move())
        assert told == ["error job_crashed", "warning job_failed"]
        assert [job.attempts for job in desk.outbox.jobs.jobs] == [1]

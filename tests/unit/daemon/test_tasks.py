"""Issues read from the tracker for their pages: rarely, within a deadline, and never at the page's cost."""

from pathlib import Path
from typing import NoReturn

import anyio
import pytest

from harness.binding import SECRET, CommentingTracker, FakeTracker, make_context, nothing
from harness.scheduling import make_failure, make_issue
from kit.virtual_time import in_virtual_time
from symphony.api.task import TrackerAnswer
from symphony.daemon.tasks import FRESH_MS, TaskReader
from symphony.trackers.base import TrackerError
from symphony.trackers.memory import MemoryTracker

pytestmark = pytest.mark.asyncio
ISSUE = make_issue(description="What to do")


class Desk:
    """A reader with a clock that a test sets, and a tracker."""

    def __init__(self, tmp_path: Path, tracker: FakeTracker) -> None:
        self.now_ms = 1_000_000
        self.context = make_context(tmp_path, tracker)
        self.reader = TaskReader(now_ms=lambda: self.now_ms, deadline_s=60)

    async def read(self, *, paused: bool = False) -> TrackerAnswer:
        return await self.reader.read(self.context, "1", paused=paused)


async def refuse() -> NoReturn:
    raise TrackerError(make_failure(f"no, {SECRET} is wrong"))


async def crash() -> NoReturn:
    raise RuntimeError(SECRET)


async def test_a_page_that_refreshes_itself_asks_the_tracker_now_and_then(tmp_path: Path) -> None:
    tracker = CommentingTracker(issues=(ISSUE,), comments={"c1": "said"})
    desk = Desk(tmp_path, tracker)
    first = await desk.read()
    assert (first.issue, [one.body for one in first.comments], first.failure) == (ISSUE, ["said"], None)
    asked = len(tracker.asked)
    assert await desk.read() is first
    assert len(tracker.asked) == asked
    desk.reader.changed("1")
    await desk.read()
    assert len(tracker.asked) == 2 * asked, "the daemon wrote a comment meanwhile"
    await desk.read()
    assert len(tracker.asked) == 2 * asked
    desk.now_ms += FRESH_MS
    await desk.read()
    assert len(tracker.asked) == 3 * asked


async def test_an_answer_from_before_a_change_does_not_count(tmp_path: Path) -> None:
    async def change() -> None:
        desk.reader.changed("1")

    tracker = CommentingTracker(issues=(ISSUE,), comments={"c1": "said"})
    desk = Desk(tmp_path, tracker)
    tracker.before_answer = change
    await desk.read()
    tracker.before_answer = nothing
    asked = len(tracker.asked)
    await desk.read()
    assert len(tracker.asked) > asked, "it is asked again"


async def test_many_who_open_a_page_ask_once(tmp_path: Path) -> None:
    tracker = FakeTracker(issues=(ISSUE,), before_answer=anyio.lowlevel.checkpoint)
    desk = Desk(tmp_path, tracker)
    async with anyio.create_task_group() as tasks:
        for _ in range(9):
            tasks.start_soon(desk.read)
    assert len(tracker.asked) == 1


@pytest.mark.parametrize("step", [refuse, crash, anyio.sleep_forever])
@in_virtual_time
async def test_a_tracker_that_fails_or_hangs_costs_what_is_new_and_says_so(
    tmp_path: Path, step: object
) -> None:
    tracker = CommentingTracker(issues=(ISSUE,), comments={"c1": "said"})
    tracker.before_answer = step  # type: ignore[assignment]  # never returns
    desk = Desk(tmp_path, tracker)
    nothing_known = await desk.read()
    assert (nothing_known.issue, nothing_known.answered) == (None, False), "it is not gone"
    assert nothing_known.failure is not None
    assert SECRET not in nothing_known.failure
    asked = len(tracker.asked)
    assert await desk.read() == nothing_known
    assert len(tracker.asked) == asked, "it is not asked again at once"

    tracker.before_answer = nothing
    desk.reader.changed("1")
    known = await desk.read()
    assert known.failure is None
    tracker.before_answer = step  # type: ignore[assignment]
    desk.now_ms += FRESH_MS
    old = await desk.read()
    assert (old.issue, old.comments, old.failure) == (ISSUE, known.comments, nothing_known.failure)


async def test_a_tracker_whose_circuit_is_open_is_not_asked(tmp_path: Path) -> None:
    tracker = FakeTracker(issues=(ISSUE,))
    answer = await Desk(tmp_path, tracker).read(paused=True)
    assert (tracker.asked, answer.failure is None) == ([], False)


async def test_an_issue_that_is_gone(tmp_path: Path) -> None:
    answer = await Desk(tmp_path, CommentingTracker()).read()
    assert (answer.issue, answer.answered, answer.failure) == (None, True, None)


async def test_what_another_tracker_said_is_not_shown(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FakeTracker(issues=(ISSUE,)))
    await desk.read()
    desk.context = make_context(tmp_path, FakeTracker(before_answer=refuse))
    assert (await desk.read()).issue is None


async def test_the_states_of_a_tracker_are_known_after_a_look(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FakeTracker())
    assert desk.reader.states(desk.context) == ()
    board = MemoryTracker([ISSUE])
    answer = await desk.reader.read(
        make_context(tmp_path, board),  # type: ignore[arg-type]  # any tracker will do
        "1",
        paused=False,
    )
    assert (answer.issue, answer.failure) == (ISSUE, None)
    assert desk.reader.states(desk.context) == (), "of another tracker"

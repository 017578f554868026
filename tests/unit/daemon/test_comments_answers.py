"""Reading answers: bounded, fit to be passed on; a question that is missing is asked again, now and then."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.binding import FakeTracker, make_context
from harness.outbox import Outbox
from harness.scheduling import make_issue
from symphony.daemon.comments import AnswerReader, draft_of, queue_comment
from symphony.scheduler import MAX_ANSWER_CHARS, IssueComment, PostComment, join_comments
from symphony.trackers.memory import MemoryTracker

pytestmark = pytest.mark.asyncio
NOTE = PostComment(issue=make_issue(), kind="blocked", body="Red or blue?", occasion="d1-7")


class World:
    """An issue of a board in memory, and a daemon that reads its comments."""

    def __init__(self, tmp_path: Path) -> None:
        self.now_ms = 0
        self.tracker = MemoryTracker([make_issue()])
        self.context = replace(make_context(tmp_path, FakeTracker()), tracker=self.tracker)
        self.outbox = Outbox(self.context)
        self.answers = AnswerReader(self.outbox.jobs, now_ms=lambda: self.now_ms)

    def lose_comments(self) -> None:
        self.tracker = MemoryTracker([make_issue()])
        self.context = self.outbox.context = replace(self.context, tracker=self.tracker)

    async def ask(self) -> None:
        await self.outbox.post(draft_of(NOTE))

    async def read(self) -> tuple[tuple[IssueComment, ...], tuple[IssueComment, ...]]:
        found = await self.answers.read(self.context, NOTE)
        await self.outbox.once()
        return found

    async def bodies(self) -> list[str]:
        return [comment.body for comment in await self.tracker.list_comments("1")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_what_was_written_before_the_question_is_no_answer(world: World) -> None:
    world.tracker.comment("1", "before")
    await world.ask()
    world.tracker.comment("1", "Blue", author="ann")
    answers, others = await world.read()
    assert [(one.author, one.text) for one in answers] == [("ann", "Blue")]
    assert others == ()


async def test_a_megabyte_is_cut_and_control_characters_are_gone(world: World) -> None:
    await world.ask()
    world.tracker.comment("1", "B\x1b[31ml\x00ue\n" + "x" * 1_000_000, author="ann\nann\x1b]0;x\x07")
    for number in range(10):
        world.tracker.comment("1", f"more {number}")
    answers, _ = await world.read()
    assert len(answers) == 1, "the first one is more than there is room for"
    assert answers[0].author == "ann ann"
    assert answers[0].text.startswith("Bl ue\nx")
    assert join_comments(answers).endswith("(cut: the rest is on the issue)")
    assert len(join_comments(answers)) < MAX_ANSWER_CHARS + 100


async def test_of_others_the_newest_are_told_by_their_first_lines(world: World) -> None:
    await world.ask()
    for number in range(12):
        world.tracker.comment("1", f"line {number}\nmore", author="mallory", may_answer=None)
    world.tracker.comment("1", "checks passed", author="ci", may_answer=False)
    answers, others = await world.read()
    assert answers == ()
    assert [one.text for one in others] == [f"line {number}" for number in range(2, 12)]


async def test_a_question_that_is_missing_is_asked_again_now_and_then(world: World) -> None:
    await world.ask()
    (asked,) = await world.tracker.list_comments("1")
    world.lose_comments()
    world.tracker.comment("1", "Blue")
    assert await world.read() == ((), ())
    assert sum("Red or blue?" in body for body in await world.bodies()) == 1
    world.tracker.comment("1", "Blue, I said")
    answers, _ = await world.read()
    assert [one.text for one in answers] == ["Blue, I said"]
    world.lose_comments()
    world.now_ms = 599_999
    await world.read()
    assert await world.bodies() == []
    world.now_ms = 600_000
    await world.read()
    assert len(await world.bodies()) == 1
    assert asked.mine


async def test_a_tracker_that_cannot_tell_who_may_answer_is_not_read(world: World, tmp_path: Path) -> None:
    context = make_context(tmp_path, FakeTracker())
    assert await world.answers.read(context, NOTE) == ((), ())


async def test_a_question_that_is_on_its_way_is_not_asked_anew(world: World) -> None:
    """Else each reading would make it new, and it would never be given up."""
    queue_comment(world.outbox.jobs, world.context, draft_of(NOTE))
    before = world.outbox.jobs.jobs
    assert await world.answers.read(world.context, NOTE) == ((), ())
    assert world.outbox.jobs.jobs == before
    await world.outbox.once()
    assert len(await world.bodies()) == 1

"""The comment about malformed skills: what it says, when, and what is kept until it does."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from anyio import to_thread
from anyio.lowlevel import checkpoint
from structlog.testing import capture_logs

from harness.binding import SECRET, CommentingTracker, FakeTracker, make_context, nothing
from harness.outbox import Outbox
from harness.scheduling import make_failure, make_issue
from kit.virtual_time import in_virtual_time
from symphony import skills
from symphony.daemon.comments import SkillComments
from symphony.journal.model import SkillsComment, decode, encode
from symphony.skills import Severity, SkillOptions, SkillSet
from symphony.trackers.base import TrackerError

pytestmark = pytest.mark.asyncio

ISSUE = make_issue()
BROKEN = "no front matter\n"
NAMELESS = "---\ndescription: d\n---\n"
GOOD = "---\nname: x\ndescription: d\n---\n"
ODD = "---\nname: y\ndescription: d\n---\n"


async def found(workspace: Path, text: str | None, **options: Any) -> SkillSet:
    """The skills of a workspace whose one SKILL.md has this text, or is gone."""
    return await to_thread.run_sync(partial(_found, workspace, text, SkillOptions(**options)))


def _found(workspace: Path, text: str | None, options: SkillOptions) -> SkillSet:
    path = workspace / options.path / "x" / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    return skills.load(workspace, options)


class Desk:
    """One daemon's comments on a tracker, and the journal that outlives it."""

    def __init__(
        self, path: Path, tracker: FakeTracker | None = None, left: "Desk | None" = None, max_kept: int = 10
    ) -> None:
        self.tracker = tracker or CommentingTracker()
        self.context = make_context(path, self.tracker)
        self.journal: dict[str, SkillsComment] = {} if left is None else dict(left.journal)
        self.outbox: Outbox = Outbox(
            self.context, () if left is None else tuple(left.outbox.journal.values())
        )
        self.comments = SkillComments(
            self.outbox.jobs,
            tuple(self.journal.values()),
            record=self._remember,
            recorded=checkpoint,
            max_kept=max_kept,
        )

    def _remember(self, note: SkillsComment) -> None:
        self.journal[note.issue_id] = decode(encode(replace(note, at_wall_ms=7)), SkillsComment)

    async def report(self, seen: SkillSet, *, at_least: Severity | None = Severity.ERROR) -> None:
        await self.comments.update(self.context, ISSUE, seen, at_least=at_least)
        await self.outbox.once()

    @property
    def bodies(self) -> list[str]:
        assert isinstance(self.tracker, CommentingTracker)
        return list(self.tracker.comments.values())

    def successor(self, path: Path) -> "Desk":
        return Desk(path, self.tracker, self)


async def refuse() -> NoReturn:
    raise TrackerError(make_failure("no"))


async def test_malformed_skills_are_named_by_path_in_one_comment(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for _ in range(2):
        await desk.report(await found(tmp_path, BROKEN))
    assert isinstance(desk.tracker, CommentingTracker)
    assert len(desk.tracker.puts) == 1
    await desk.report(await found(tmp_path, NAMELESS))
    (body,) = desk.bodies
    assert ".symphony/skills/x/SKILL.md" in body
    assert "missing_name" in body, "edited in place"


@pytest.mark.parametrize(
    ("at_least", "named"), [(Severity.ERROR, False), (Severity.WARNING, True), (None, False)]
)
async def test_the_gate_says_how_bad_it_must_be(
    tmp_path: Path, at_least: Severity | None, *, named: bool
) -> None:
    desk = Desk(tmp_path)
    await desk.report(await found(tmp_path, ODD), at_least=at_least)
    assert bool(desk.bodies) is named
    assert all("could not be loaded" not in body for body in desk.bodies), "a warning is called one"
    assert bool(desk.tracker.asked) is named, "what was never reported is not looked for"


class TestWhatIsOver:
    async def test_what_was_mended_is_called_mended(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        for text in (BROKEN, GOOD):
            await desk.report(await found(tmp_path, text))
        (body,) = desk.bodies
        assert "are fixed" in body
        assert "`.symphony/skills/x/SKILL.md`" in body

    async def test_a_warning_that_is_gone_is_mended_and_one_that_is_asked_for_no_more_is_not(
        self, tmp_path: Path
    ) -> None:
        desk = Desk(tmp_path)
        await desk.report(await found(tmp_path, ODD), at_least=Severity.WARNING)
        await desk.report(await found(tmp_path, ODD), at_least=Severity.ERROR)
        assert all("mended" not in body.lower() for body in desk.bodies)
        assert all("No longer reported" in body for body in desk.bodies)
        await desk.report(await found(tmp_path, GOOD), at_least=Severity.ERROR)
        assert all("are fixed" in body for body in desk.bodies), "it is seen later that it was mended"

    @pytest.mark.parametrize(
        ("text", "options", "at_least"),
        [
            (None, {}, Severity.ERROR),
            (BROKEN, {"disabled_skills": ("x",)}, Severity.ERROR),
            (BROKEN, {}, None),
        ],
        ids=["removed", "switched off", "never"],
    )
    async def test_what_was_not_mended_is_not_called_mended(
        self, tmp_path: Path, text: str | None, options: dict[str, Any], at_least: Severity | None
    ) -> None:
        desk = Desk(tmp_path)
        await desk.report(await found(tmp_path, BROKEN))
        await desk.report(await found(tmp_path, text, **options), at_least=at_least)
        (body,) = desk.bodies
        assert "mended" not in body.lower()
        assert "No longer reported" in body

    async def test_without_a_journal_the_comment_stays_until_there_are_problems(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        await desk.report(await found(tmp_path, BROKEN))
        successor = Desk(tmp_path, desk.tracker)
        before = desk.bodies
        await successor.report(await found(tmp_path, GOOD))
        assert desk.bodies == before
        await successor.report(await found(tmp_path, ODD), at_least=Severity.WARNING)
        await successor.report(await found(tmp_path, GOOD))
        (body,) = desk.bodies
        assert "are fixed" in body

    async def test_a_set_that_breaks_again_is_told_in_the_same_comment(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        for text in (BROKEN, GOOD, BROKEN):
            await desk.report(await found(tmp_path, text))
        (body,) = desk.bodies
        assert "missing_front_matter" in body

    async def test_without_an_earlier_comment_nothing_is_written_and_the_tracker_not_asked(
        self, tmp_path: Path
    ) -> None:
        desk = Desk(tmp_path)
        for _ in range(2):
            await desk.report(await found(tmp_path, GOOD))
        await desk.successor(tmp_path).report(await found(tmp_path, GOOD))
        assert desk.bodies == []
        assert desk.tracker.asked == []

    async def test_a_tracker_without_comments_is_not_told_that_nothing_is_wrong(self, tmp_path: Path) -> None:
        with capture_logs() as logs:
            await Desk(tmp_path, FakeTracker()).report(await found(tmp_path, GOOD))
        assert logs == []


class TestWhatTheTrackerDidNotTake:
    @in_virtual_time
    async def test_a_restart_does_not_lose_it(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        await desk.report(await found(tmp_path, BROKEN))
        desk.tracker.before_answer = refuse
        await desk.report(await found(tmp_path, GOOD))
        assert "missing_front_matter" in desk.bodies[0], "the edit has failed"
        desk.tracker.before_answer = nothing
        await desk.successor(tmp_path).outbox.settle()
        assert "are fixed" in desk.bodies[0]

    @in_virtual_time
    async def test_it_is_in_the_journal_before_the_tracker_is_asked(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        broken = await found(tmp_path, BROKEN)
        await desk.comments.update(desk.context, ISSUE, broken, at_least=Severity.ERROR)
        assert [job.key for job in desk.outbox.journal.values()] == [f"comment:{ISSUE.id}:skills"]
        assert ISSUE.id in desk.journal
        assert desk.tracker.asked == []

    @in_virtual_time
    async def test_what_is_out_of_date_meanwhile_is_not_said(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, CommentingTracker(before_answer=refuse))
        for text in (BROKEN, NAMELESS, GOOD):
            await desk.report(await found(tmp_path, text))
        desk.tracker.before_answer = nothing
        await desk.outbox.settle()
        assert desk.bodies == []
        assert desk.journal[ISSUE.id].revise

    @in_virtual_time
    async def test_what_was_said_at_another_tracker_is_not_said_here(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        await desk.report(await found(tmp_path, BROKEN))
        desk.journal = {key: replace(one, tracker="another") for key, one in desk.journal.items()}
        later = Desk(tmp_path, left=desk)
        await later.report(await found(tmp_path, GOOD))
        assert later.bodies == []

    @in_virtual_time
    async def test_what_is_kept_is_bounded(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, max_kept=2)
        broken = await found(tmp_path, BROKEN)
        recorded = []
        for number in "123321":
            desk.journal.clear()
            await desk.comments.update(desk.context, make_issue(number), broken, at_least=Severity.ERROR)
            recorded.append(bool(desk.journal))
        assert recorded == [True, True, True, False, False, True], "the oldest is forgotten"


class TestACommentThatWasDeleted:
    async def test_it_is_not_written_again_while_nothing_changes(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        await desk.report(await found(tmp_path, BROKEN))
        assert isinstance(desk.tracker, CommentingTracker)
        desk.tracker.comments.clear()
        for one in (desk, desk.successor(tmp_path)):
            await one.report(await found(tmp_path, BROKEN))
        assert desk.bodies == []

    async def test_other_problems_make_a_new_one_and_their_end_does_not(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        await desk.report(await found(tmp_path, BROKEN))
        assert isinstance(desk.tracker, CommentingTracker)
        desk.tracker.comments.clear()
        await desk.report(await found(tmp_path, GOOD))
        assert desk.bodies == []
        await desk.report(await found(tmp_path, NAMELESS))
        assert "missing_name" in desk.bodies[0]


async def test_the_journal_and_the_comment_hold_no_secret(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.report(await found(tmp_path, BROKEN, path=f".symphony/{SECRET}"))
    assert SECRET not in desk.bodies[0]
    assert SECRET not in desk.journal[ISSUE.id].body

from pathlib import Path
from typing import NoReturn

import anyio
import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from harness.binding import SECRET, CommentingTracker, FakeTracker, make_context, nothing
from harness.outbox import Outbox, make_state
from harness.scheduling import make_failure, make_issue
from kit.virtual_time import in_virtual_time
from symphony.daemon.comments import (
    CommentDraft,
    CommentWriter,
    queue_comment,
    queue_persons_comment,
    unsent_comments,
)
from symphony.domain import Issue
from symphony.journal.model import CommentRecord
from symphony.trackers.base import TrackerError
from symphony.trackers.comments import attributed

pytestmark = pytest.mark.asyncio

ISSUE = make_issue()


def draft(body: str, *, kind: str = "blocked", issue: Issue = ISSUE) -> CommentDraft:
    return CommentDraft(issue_id=issue.id, issue_identifier=issue.identifier, kind=kind, body=body)


async def refuse() -> NoReturn:
    raise TrackerError(make_failure(f"no, {SECRET} is wrong"))


async def crash() -> NoReturn:
    raise RuntimeError


@pytest.mark.conformance("T-12")
async def test_a_note_is_posted_once_and_edited_in_place(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    context = make_context(tmp_path, tracker)
    with capture_logs() as logs:
        for body in ("first", "first", "second"):
            await Outbox(context).post(draft(body))
    assert [line["outcome"] for line in logs] == ["created", "unchanged", "edited"], "markers are enough"
    assert all((line["issue_identifier"], line["kind"]) == ("SYM-1", "blocked") for line in logs)
    (body,) = tracker.comments.values()
    assert body.endswith("second")
    assert len(tracker.puts) == 2


async def test_what_a_predecessor_posted_costs_no_request_again(tmp_path: Path) -> None:
    tracker, kept = CommentingTracker(), dict[tuple[str, str], CommentRecord]()

    def remember(issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
        kept[issue_id, kind] = CommentRecord(
            issue_id=issue_id, kind=kind, comment_id=comment_id, fingerprint=fingerprint, at_wall_ms=0
        )

    context = make_context(tmp_path, tracker)
    await Outbox(context, comments=CommentWriter(on_written=remember)).post(draft("first"))
    assert set(kept) == {("1", "blocked")}
    with capture_logs() as logs:
        later = Outbox(context, comments=CommentWriter(tuple(kept.values()), on_written=remember))
        await later.post(draft("first"))
        assert logs == []
        await later.post(draft("second"))
    assert [line["outcome"] for line in logs] == ["edited"]
    assert len(tracker.puts) == 2


async def test_of_too_much_that_a_predecessor_knew_the_oldest_is_forgotten(tmp_path: Path) -> None:
    kept: list[CommentRecord] = []

    def remember(issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
        record = CommentRecord(
            issue_id=issue_id, kind=kind, comment_id=comment_id, fingerprint=fingerprint, at_wall_ms=0
        )
        kept.insert(0, record)  # the newest first, as the journal tells them

    context = make_context(tmp_path, CommentingTracker())
    for number in "12":
        writer = CommentWriter(on_written=remember)
        await Outbox(context, comments=writer).post(draft("b", issue=make_issue(number)))
    later = Outbox(context, comments=CommentWriter(tuple(kept), max_known=2))
    await later.post(draft("b", issue=make_issue("3")))
    with capture_logs() as logs:
        await later.post(draft("b", issue=make_issue("2")))
        assert logs == [], "the newer of the two is known still"
        await later.post(draft("b", issue=make_issue("1")))
    assert [line["outcome"] for line in logs] == ["unchanged"]


async def test_notes_of_two_kinds_are_two_comments(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    context = make_context(tmp_path, tracker)
    await Outbox(context).post(draft("x"))
    await Outbox(context).post(draft("x", kind="skills"))
    assert len(tracker.comments) == 2


@pytest.mark.conformance("O-7")
async def test_a_secret_never_reaches_a_comment(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    outbox = Outbox(make_context(tmp_path, tracker))
    queue_comment(outbox.jobs, outbox.context, draft(f"it said {SECRET}"))
    assert SECRET not in str(outbox.journal)
    await outbox.once()
    (body,) = tracker.comments.values()
    assert SECRET not in body
    assert "it said ***" in body


async def test_a_tracker_without_comments_is_told_apart_from_a_failing_one(tmp_path: Path) -> None:
    with capture_logs() as logs:
        await Outbox(make_context(tmp_path, FakeTracker())).post(draft("x"))
    assert [(line["event"], line["log_level"]) for line in logs] == [("comment_skipped", "info")]


@pytest.mark.conformance("T-12")
@pytest.mark.parametrize(("step", "reason"), [(refuse, "turn_failed: no"), (crash, "RuntimeError")])
@in_virtual_time
async def test_a_failing_comment_is_a_warning_and_arrives_later(
    tmp_path: Path, step: object, reason: str
) -> None:
    tracker = CommentingTracker(before_answer=step)  # type: ignore[arg-type]  # never returns
    outbox = Outbox(make_context(tmp_path, tracker))
    with capture_logs() as logs:
        await outbox.post(draft("x"))
    (line,) = [line for line in logs if line["log_level"] == "warning"]
    assert line["event"] == "job_failed"
    assert reason in line["reason"]
    assert SECRET not in line["reason"]
    tracker.before_answer = nothing
    await outbox.settle()
    assert len(tracker.comments) == 1


@pytest.mark.conformance("T-12")
@in_virtual_time
async def test_a_hanging_comment_is_tried_again(tmp_path: Path) -> None:
    tracker = CommentingTracker(before_answer=anyio.sleep_forever)
    outbox = Outbox(make_context(tmp_path, tracker))
    with capture_logs() as logs:
        await outbox.post(draft("x"))
    assert [line["event"] for line in logs] == ["job_failed"]
    tracker.before_answer = nothing
    await outbox.settle()
    assert len(tracker.comments) == 1


class TestAnAnswerThatWasLost:
    """The tracker took the comment, and the daemon does not know it."""

    @pytest.mark.parametrize("killed", [False, True], ids=["answer lost", "kill -9"])
    @in_virtual_time
    async def test_the_comment_stands_once(self, tmp_path: Path, *, killed: bool) -> None:
        class Late(CommentingTracker):
            @override
            async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
                await super().put_comment(issue_id, body, key=key, comment_id=comment_id)
                await anyio.sleep(60 if len(self.puts) == 1 else 0)
                return "c1"

        tracker = Late()
        outbox = Outbox(make_context(tmp_path, tracker))
        queue_comment(outbox.jobs, outbox.context, draft("x", kind="delivery"))
        async with outbox.at_work():
            await anyio.sleep(10 if killed else 40)
        await outbox.successor().settle()
        assert len(tracker.comments) == 1
        assert len(tracker.puts) == 1, "it is found by its marker"


@pytest.mark.parametrize(("kind", "comes"), [("blocked", False), ("delivery", True)])
@in_virtual_time
async def test_a_late_comment_does_not_say_that_an_issue_is_blocked_which_goes_on(
    tmp_path: Path, kind: str, *, comes: bool
) -> None:
    tracker = CommentingTracker(before_answer=refuse)
    outbox = Outbox(make_context(tmp_path, tracker))
    await outbox.post(draft("x", kind=kind))
    tracker.before_answer, outbox.state = nothing, make_state(running=["1"])
    await outbox.settle()
    assert bool(tracker.comments) is comes


@in_virtual_time
async def test_comments_of_a_person_all_arrive_once_after_an_outage_and_a_restart(tmp_path: Path) -> None:
    tracker = CommentingTracker(before_answer=refuse)
    outbox, written = Outbox(make_context(tmp_path, tracker)), list[str]()
    for text in ("Blue", "And small", "Blue"):
        queue_persons_comment(outbox.jobs, outbox.context, "1", "SYM-1", text)
    await outbox.once()
    unsent = unsent_comments(outbox.jobs.jobs, outbox.context, "1", ())
    assert [one.text for one in unsent] == ["Blue", "And small", "Blue"]
    assert any(one.failure for one in unsent)
    assert unsent_comments(outbox.jobs.jobs, outbox.context, "2", ()) == ()
    tracker.before_answer, jobs = nothing, outbox.jobs.jobs
    await outbox.successor(comments=CommentWriter(on_persons=written.append)).settle()
    posted = await tracker.list_comments("1")
    assert unsent_comments(jobs, outbox.context, "1", posted) == (), "though their jobs are not done"
    assert len(unsent_comments(jobs, outbox.context, "1", posted[1:])) == 1
    bodies = [attributed(one)[1].body for one in await tracker.list_comments("1")]
    assert sorted(bodies) == ["And small", "Blue", "Blue"]
    assert written == ["SYM-1"] * 3


@in_virtual_time
async def test_another_tracker_does_not_get_the_jobs_of_the_first(tmp_path: Path) -> None:
    first, second = CommentingTracker(before_answer=refuse), CommentingTracker()
    outbox = Outbox(make_context(tmp_path, first))
    await outbox.post(draft("x"))
    more = '{"tracker": {"kind": "markdown", "provider": {"path": "elsewhere"}}}'
    outbox.context = make_context(tmp_path, second, more=more)
    await outbox.settle()
    assert second.asked == []


@in_virtual_time
async def test_a_comment_of_a_person_waits_for_its_tracker(tmp_path: Path) -> None:
    first, second = CommentingTracker(before_answer=refuse), CommentingTracker()
    outbox = Outbox(make_context(tmp_path, first))
    queue_persons_comment(outbox.jobs, outbox.context, "1", "SYM-1", "Blue")
    more = '{"tracker": {"kind": "markdown", "provider": {"path": "elsewhere"}}}'
    outbox.context = make_context(tmp_path, second, more=more)
    await outbox.settle()
    assert second.asked == []
    (unsent,) = unsent_comments(outbox.jobs.jobs, outbox.context, "1", ())
    assert (unsent.text, unsent.given_up) == ("Blue", True)
    first.before_answer, outbox.context = nothing, make_context(tmp_path, first)
    (job,) = outbox.jobs.jobs
    outbox.jobs.retry(job.key)
    await outbox.settle()
    assert len(first.comments) == 1


class TestWhatIsKnown:
    async def test_an_unchanged_note_costs_no_request(self, tmp_path: Path) -> None:
        tracker = CommentingTracker()
        ours = Outbox(make_context(tmp_path, tracker))
        await ours.post(draft("x"))
        asked = len(tracker.asked)
        await ours.post(draft("x"))
        assert len(tracker.asked) == asked

    async def test_another_tracker_is_asked_again(self, tmp_path: Path) -> None:
        first, second = CommentingTracker(), CommentingTracker()
        ours = Outbox(make_context(tmp_path, first))
        await ours.post(draft("x"))
        ours.context = make_context(tmp_path, second)
        await ours.post(draft("x"))
        assert len(second.comments) == 1

    async def test_what_is_known_is_bounded(self, tmp_path: Path) -> None:
        tracker = CommentingTracker()
        ours = Outbox(make_context(tmp_path, tracker), comments=CommentWriter(max_known=1))
        for kind in ("blocked", "skills", "blocked"):
            await ours.post(draft("x", kind=kind))
        assert len(tracker.asked) == 5, "two to create each, one to look again"

    async def test_two_reports_at_once_are_one_comment_and_the_later_one_stands(self, tmp_path: Path) -> None:
        tracker = CommentingTracker()
        ours = Outbox(make_context(tmp_path, tracker))
        for body in ("first", "second"):
            queue_comment(ours.jobs, ours.context, draft(body))
        await ours.once()
        (body,) = tracker.comments.values()
        assert body.endswith("second")

from functools import partial
from pathlib import Path
from typing import NoReturn

import anyio
import pytest
from structlog.testing import capture_logs

from harness.binding import SECRET, CommentingTracker, FakeTracker, make_context, nothing
from harness.scheduling import make_failure, make_issue
from symphony.daemon.comments import CommentDraft, CommentWriter
from symphony.domain import Issue
from symphony.journal.model import CommentRecord
from symphony.trackers.base import TrackerError

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
            await CommentWriter().post(context, draft(body))
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
    await CommentWriter(on_written=remember).post(context, draft("first"))
    assert set(kept) == {("1", "blocked")}
    with capture_logs() as logs:
        later = CommentWriter(tuple(kept.values()), on_written=remember)
        await later.post(context, draft("first"))
        assert logs == []
        await later.post(context, draft("second"))
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
        await CommentWriter(on_written=remember).post(context, draft("b", issue=make_issue(number)))
    later = CommentWriter(tuple(kept), max_known=2)
    await later.post(context, draft("b", issue=make_issue("3")))
    with capture_logs() as logs:
        await later.post(context, draft("b", issue=make_issue("2")))
        assert logs == [], "the newer of the two is known still"
        await later.post(context, draft("b", issue=make_issue("1")))
    assert [line["outcome"] for line in logs] == ["unchanged"]


async def test_notes_of_two_kinds_are_two_comments(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    context = make_context(tmp_path, tracker)
    await CommentWriter().post(context, draft("x"))
    await CommentWriter().post(context, draft("x", kind="skills"))
    assert len(tracker.comments) == 2


@pytest.mark.conformance("O-7")
async def test_a_secret_never_reaches_a_comment(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    await CommentWriter().post(make_context(tmp_path, tracker), draft(f"it said {SECRET}"))
    (body,) = tracker.comments.values()
    assert SECRET not in body
    assert "it said ***" in body


async def test_a_tracker_without_comments_is_told_apart_from_a_failing_one(tmp_path: Path) -> None:
    with capture_logs() as logs:
        await CommentWriter().post(make_context(tmp_path, FakeTracker()), draft("x"))
    assert [(line["event"], line["log_level"]) for line in logs] == [("comment_skipped", "info")]


@pytest.mark.conformance("T-12")
@pytest.mark.parametrize(("step", "reason"), [(refuse, "turn_failed: no"), (crash, "RuntimeError")])
async def test_a_failing_comment_is_a_warning_and_nothing_more(
    tmp_path: Path, step: object, reason: str
) -> None:
    tracker = CommentingTracker(before_answer=step)  # type: ignore[arg-type]  # never returns
    with capture_logs() as logs:
        await CommentWriter().post(make_context(tmp_path, tracker), draft("x"))
    assert [(line["event"], line["log_level"]) for line in logs] == [("comment_failed", "warning")]
    assert logs[0]["reason"].startswith(reason)
    assert SECRET not in logs[0]["reason"]


@pytest.mark.conformance("T-12")
async def test_a_hanging_comment_is_given_up(tmp_path: Path) -> None:
    tracker = CommentingTracker(before_answer=anyio.sleep_forever)
    with capture_logs() as logs, anyio.fail_after(60):
        await CommentWriter(timeout_s=0.01).post(make_context(tmp_path, tracker), draft("x"))
    assert [(line["event"], line["reason"]) for line in logs] == [("comment_failed", "TimeoutError")]


class TestWhatIsKnown:
    async def test_an_unchanged_note_costs_no_request(self, tmp_path: Path) -> None:
        tracker = CommentingTracker()
        context, ours = make_context(tmp_path, tracker), CommentWriter()
        await ours.post(context, draft("x"))
        asked = len(tracker.asked)
        await ours.post(context, draft("x"))
        assert len(tracker.asked) == asked

    async def test_another_tracker_is_asked_again(self, tmp_path: Path) -> None:
        ours, first, second = CommentWriter(), CommentingTracker(), CommentingTracker()
        await ours.post(make_context(tmp_path, first), draft("x"))
        await ours.post(make_context(tmp_path, second), draft("x"))
        assert len(second.comments) == 1

    async def test_a_note_that_failed_is_tried_again(self, tmp_path: Path) -> None:
        tracker = CommentingTracker(before_answer=refuse)
        context, ours = make_context(tmp_path, tracker), CommentWriter()
        await ours.post(context, draft("x"))
        tracker.before_answer = nothing
        await ours.post(context, draft("x"))
        assert len(tracker.comments) == 1

    async def test_what_is_known_is_bounded(self, tmp_path: Path) -> None:
        tracker = CommentingTracker()
        context, ours = make_context(tmp_path, tracker), CommentWriter(max_known=1)
        for kind in ("blocked", "skills", "blocked"):
            await ours.post(context, draft("x", kind=kind))
        assert len(tracker.asked) == 5, "two to create each, one to look again"

    async def test_two_reports_at_once_are_one_comment_and_the_later_one_stands(self, tmp_path: Path) -> None:
        released = anyio.Event()
        tracker = CommentingTracker(before_answer=released.wait)
        context, ours = make_context(tmp_path, tracker), CommentWriter()
        async with anyio.create_task_group() as tasks:
            for body in ("first", "second"):
                tasks.start_soon(partial(ours.post, context, draft(body)))
            await anyio.wait_all_tasks_blocked()
            released.set()
        (body,) = tracker.comments.values()
        assert body.endswith("second")

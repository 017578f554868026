from pathlib import Path
from typing import NoReturn

import anyio
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.binding import SECRET, CommentingTracker, FakeTracker, make_bound
from harness.scheduling import make_failure, make_issue
from symphony import skills
from symphony.runtime import notes
from symphony.runtime.notes import post_note, post_skill_report
from symphony.skills import Problem, SkillOptions
from symphony.trackers.base import TrackerError

pytestmark = pytest.mark.asyncio

ISSUE = make_issue()


async def problems(workspace: Path, text: str) -> tuple[Problem, ...]:
    """What the loader says about a SKILL.md of that text."""
    return await to_thread.run_sync(_problems, workspace, text)


def _problems(workspace: Path, text: str) -> tuple[Problem, ...]:
    path = workspace / ".symphony" / "skills" / "x" / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return skills.load(workspace, SkillOptions()).problems


async def refuse() -> NoReturn:
    raise TrackerError(make_failure(f"no, {SECRET} is wrong"))


async def crash() -> NoReturn:
    raise RuntimeError


@pytest.mark.conformance("T-12")
async def test_a_note_is_posted_once_and_edited_in_place(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    bound = make_bound(tmp_path, tracker)
    with capture_logs() as logs:
        for body in ("first", "first", "second"):
            await post_note(bound, ISSUE, kind="blocked", body=body)
    assert [line["outcome"] for line in logs] == ["created", "unchanged", "edited"]
    assert all((line["issue_identifier"], line["kind"]) == ("SYM-1", "blocked") for line in logs)
    (body,) = tracker.comments.values()
    assert body.endswith("second")
    assert len(tracker.puts) == 2


async def test_notes_of_two_kinds_are_two_comments(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    bound = make_bound(tmp_path, tracker)
    await post_note(bound, ISSUE, kind="blocked", body="x")
    await post_note(bound, ISSUE, kind="skills", body="x")
    assert len(tracker.comments) == 2


@pytest.mark.conformance("O-7")
async def test_a_secret_never_reaches_a_comment(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    await post_note(make_bound(tmp_path, tracker), ISSUE, kind="blocked", body=f"it said {SECRET}")
    (body,) = tracker.comments.values()
    assert SECRET not in body
    assert "it said ***" in body


async def test_malformed_skills_are_named_by_path_in_one_comment(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    bound = make_bound(tmp_path, tracker)
    found = await problems(tmp_path, "no front matter\n")
    await post_skill_report(bound, ISSUE, found)
    await post_skill_report(bound, ISSUE, found)
    assert len(tracker.puts) == 1
    await post_skill_report(bound, ISSUE, await problems(tmp_path, "---\ndescription: d\n---\n"))
    (body,) = tracker.comments.values()
    assert ".symphony/skills/x/SKILL.md" in body
    assert "missing_name" in body, "edited in place"


async def test_what_is_no_error_is_not_worth_a_comment(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    mild = await problems(tmp_path, "---\nname: x\ndescription: d\n---\n")
    assert mild
    await post_skill_report(make_bound(tmp_path, tracker), ISSUE, mild)
    assert tracker.puts == []


async def test_a_tracker_without_comments_is_told_apart_from_a_failing_one(tmp_path: Path) -> None:
    with capture_logs() as logs:
        await post_note(make_bound(tmp_path, FakeTracker()), ISSUE, kind="blocked", body="x")
    assert [(line["event"], line["log_level"]) for line in logs] == [("comment_skipped", "info")]


@pytest.mark.conformance("T-12")
@pytest.mark.parametrize(("step", "reason"), [(refuse, "turn_failed: no"), (crash, "RuntimeError")])
async def test_a_failing_comment_is_a_warning_and_nothing_more(
    tmp_path: Path, step: object, reason: str
) -> None:
    tracker = CommentingTracker(before_answer=step)  # type: ignore[arg-type]  # never returns
    with capture_logs() as logs:
        await post_note(make_bound(tmp_path, tracker), ISSUE, kind="blocked", body="x")
    assert [(line["event"], line["log_level"]) for line in logs] == [("comment_failed", "warning")]
    assert logs[0]["reason"].startswith(reason)
    assert SECRET not in logs[0]["reason"]


@pytest.mark.conformance("T-12")
async def test_a_hanging_comment_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_TIMEOUT_S", 0.01)
    tracker = CommentingTracker(before_answer=anyio.sleep_forever)
    with capture_logs() as logs, anyio.fail_after(5):
        await post_note(make_bound(tmp_path, tracker), ISSUE, kind="blocked", body="x")
    assert [(line["event"], line["reason"]) for line in logs] == [("comment_failed", "TimeoutError")]

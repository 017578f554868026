import pytest

from contract.desk import Desk
from contract.vendor import Fault
from symphony.domain import Category
from symphony.trackers.base import CommentCapability, TrackerError
from symphony.trackers.comments import UpsertOutcome, upsert_comment

pytestmark = [pytest.mark.asyncio, pytest.mark.conformance("T-12")]


async def upsert(
    tracker: CommentCapability, issue_id: str, fingerprint: str, body: str | None = None
) -> UpsertOutcome:
    done = await upsert_comment(
        tracker,
        issue_id,
        kind="skills",
        scope="s",
        fingerprint=fingerprint,
        body=body or f"about {fingerprint}",
    )
    return done.outcome


def ours(desk: Desk) -> list[str]:
    """The last line of each comment that carries our marker."""
    return [body.splitlines()[-1] for body in desk.comments(1) if "symphony:skills" in body]


async def test_a_comment_is_made_once_and_edited_in_place(desk: Desk) -> None:
    issue_id = desk.put(1)
    desk.comment(1, "a person wrote this")
    outcomes = [await upsert(desk.tracker, issue_id, of) for of in ("a", "a", "b", "b")]
    assert outcomes == [
        UpsertOutcome.CREATED,
        UpsertOutcome.UNCHANGED,
        UpsertOutcome.EDITED,
        UpsertOutcome.UNCHANGED,
    ]
    assert len(desk.comments(1)) == 2
    assert ours(desk) == ["about b"]
    assert len(desk.vendor.writes()) == 2


async def test_a_restart_with_the_same_findings_writes_nothing(desk: Desk) -> None:
    issue_id = desk.put(1)
    await upsert(desk.tracker, issue_id, "a")
    written = len(desk.vendor.writes())
    assert await upsert(desk.another(), issue_id, "a") is UpsertOutcome.UNCHANGED
    assert len(desk.vendor.writes()) == written
    assert await upsert(desk.another(), issue_id, "b") is UpsertOutcome.EDITED
    assert ours(desk) == ["about b"]


async def test_a_create_that_was_done_and_not_answered_makes_one_comment(desk: Desk) -> None:
    issue_id = desk.put(1)
    await desk.tracker.list_comments(issue_id)
    desk.vendor.fail_next(Fault.LOST, skip=1)
    with pytest.raises(TrackerError) as caught:
        await upsert(desk.tracker, issue_id, "a")
    assert caught.value.failure.category is Category.TRACKER_REQUEST
    assert len(desk.vendor.writes()) == 1, "a write is never repeated by itself"
    assert await upsert(desk.tracker, issue_id, "b") is UpsertOutcome.EDITED
    assert ours(desk) == ["about b"]


async def test_a_comment_far_down_the_pages_is_found(desk: Desk) -> None:
    issue_id = desk.put(1)
    for number in range(60):
        desk.comment(1, f"talk {number}")
    await upsert(desk.tracker, issue_id, "a")
    for number in range(60):
        desk.comment(1, f"more talk {number}")
    desk.vendor.page_cap = 25
    assert await upsert(desk.another(), issue_id, "b") is UpsertOutcome.EDITED
    assert ours(desk) == ["about b"]


async def test_the_marker_of_somebody_else_is_not_ours(desk: Desk) -> None:
    issue_id = desk.put(1)
    await upsert(desk.tracker, issue_id, "a")
    (body,) = desk.comments(1)
    desk.put(2)
    desk.comment(2, body)
    (mine,) = await desk.tracker.list_comments(issue_id)
    (theirs,) = await desk.tracker.list_comments(desk.put(2))
    assert (mine.mine, theirs.mine) == (True, False)
    assert theirs.body.strip() == body.strip()


async def test_a_comment_that_was_deleted_is_made_anew(desk: Desk) -> None:
    issue_id = desk.put(1)
    await upsert(desk.tracker, issue_id, "a")
    (comment,) = await desk.tracker.list_comments(issue_id)
    desk.delete_comment(1, comment.id)
    for tracker in (desk.tracker, desk.another()):
        for _ in range(2):  # the first attempt may learn that the comment is gone
            try:
                await upsert(tracker, issue_id, "b")
            except TrackerError:
                continue
            break
    assert ours(desk) == ["about b"]


async def test_two_daemons_come_to_one_comment(desk: Desk) -> None:
    issue_id = desk.put(1)
    first, second = desk.tracker, desk.another()
    await upsert(first, issue_id, "a")
    (body,) = desk.comments(1)
    desk.comment(1, body, mine=True)
    assert await upsert(second, issue_id, "b") is UpsertOutcome.EDITED
    assert await upsert(first, issue_id, "b") is UpsertOutcome.UNCHANGED
    assert ours(desk) == ["about b"], "the other one is blanked"


async def test_a_credential_that_may_only_read_says_so_and_reads_on(desk: Desk) -> None:
    issue_id = desk.put(1)
    await desk.tracker.list_comments(issue_id)
    desk.vendor.fail_next(Fault.FORBIDDEN, skip=1)
    with pytest.raises(TrackerError) as caught:
        await upsert(desk.tracker, issue_id, "a")
    assert caught.value.failure.status == 403
    assert "may not do this" in str(caught.value.failure.hint)
    assert len(await desk.tracker.fetch_issues_by_states([desk.todo])) == 1


async def test_hostile_text_stays_text(desk: Desk) -> None:
    issue_id = desk.put(1)
    body = "```text\n@here #12\n/close\n--> <!-- x --> ```` \u202e\n```\n\n- " + "x" * 100_000
    await upsert(desk.tracker, issue_id, "a", body)
    assert await upsert(desk.another(), issue_id, "a", body) is UpsertOutcome.UNCHANGED
    (comment,) = await desk.tracker.list_comments(issue_id)
    assert len(comment.body) <= 32_000
    assert "cut: the comment was too long" in comment.body


async def test_comments_need_an_issue(desk: Desk) -> None:
    issue_id = desk.put(1)
    desk.remove(1)
    with pytest.raises(TrackerError):
        await desk.tracker.list_comments(issue_id)
    with pytest.raises(TrackerError):
        await desk.tracker.put_comment(issue_id, "x", key="k", comment_id=None)

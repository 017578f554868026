"""What is particular to Asana; what all trackers share is in `contract`."""

from typing import Any

import pytest

from contract.asana import OTHER, PROJECT, SECTIONS, AsanaDesk, gid_of, refusal
from contract.vendor import Fault, Given
from symphony.config import TrackerSettings
from symphony.domain import Category, Issue
from symphony.trackers.asana import DEPENDENCIES_PER_LIST, FULL_EVERY, AsanaSettings, from_story, to_story
from symphony.trackers.base import TrackerConfigError, TrackerError
from symphony.trackers.comments import upsert_comment

pytestmark = pytest.mark.asyncio


async def listed(desk: AsanaDesk, *states: str) -> dict[str, Issue]:
    found = await desk.tracker.fetch_issues_by_states(states or (desk.todo, desk.doing))
    return {issue.id: issue for issue in found}


async def one(desk: AsanaDesk, number: int) -> Issue:
    (issue,) = await desk.tracker.fetch_issues_by_ids([gid_of(number)])
    return issue


def asked(desk: AsanaDesk, part: str) -> int:
    """How many requests had this in their address."""
    return sum(part in each.address for each in desk.vendor.requests)


# --- states ---


async def test_the_state_is_the_section_of_the_project_among_others() -> None:
    desk = AsanaDesk()
    desk.put(1)
    issue = (await listed(desk))[gid_of(1)]
    assert (issue.state, issue.identifier) == ("Ready", f"ASANA-{gid_of(1)}")
    assert issue.native_ref == {"task_gid": gid_of(1), "project_gid": PROJECT, "section_gid": "501"}


async def test_a_completed_task_is_not_worked_on() -> None:
    desk = AsanaDesk()
    for number, state in ((1, "Ready"), (2, "Shipped")):
        desk.put(number, state=state, extra={"completed": True})
    assert await listed(desk) == {}
    first, second = await one(desk, 1), await one(desk, 2)
    assert (first.state, first.not_dispatchable_reason) == ("completed", "it is completed")
    assert (second.state, second.dispatchable) == ("Shipped", False)
    assert list(await listed(desk, "Completed")) == [gid_of(1)]
    assert list(await listed(desk, "Shipped")) == [gid_of(2)]


async def test_a_move_to_completed_completes_the_task() -> None:
    desk = AsanaDesk()
    issue_id = desk.put(1)
    assert await desk.tracker.move_issue(issue_id, "Completed") == "completed"
    assert desk.vendor.records[issue_id].fields["completed"] is True
    assert (await desk.tracker.account_info()).states == (*SECTIONS, "completed")


async def test_what_is_no_task_or_has_no_section_is_told() -> None:
    desk = AsanaDesk()
    desk.put(1, extra={"resource_subtype": "section"})
    assert (await listed(desk))[
        gid_of(1)
    ].not_dispatchable_reason == "it is a line between tasks, and no task"
    desk.put(2, broken="memberships")
    with pytest.raises(TrackerError) as caught:
        await one(desk, 2)
    assert "has no section" in caught.value.failure.message


# --- what did not change ---


async def test_a_poll_without_events_is_one_small_request() -> None:
    desk = AsanaDesk()
    for number in range(1, 151):
        desk.put(number, description="words " * 100)
    assert len(await listed(desk)) == 150
    before, desk.vendor.received = len(desk.vendor.requests), 0
    assert len(await listed(desk)) == 150
    assert (len(desk.vendor.requests), desk.vendor.received < 100) == (before + 1, True)
    await desk.tracker.move_issue(gid_of(1), "Shipped")
    assert len(await listed(desk)) == 149


async def test_a_list_is_read_as_a_whole_now_and_then() -> None:
    desk = AsanaDesk()
    desk.put(1)
    await listed(desk)
    del desk.vendor.records[gid_of(1)]  # and the feed misses it
    lists = [len(await listed(desk)) for _ in range(FULL_EVERY)]
    assert lists == [1] * (FULL_EVERY - 1) + [0]


async def test_more_events_than_one_answer_holds_are_news() -> None:
    desk = AsanaDesk()
    desk.put(1)
    await listed(desk)
    for _ in range(150):
        desk.vendor.stamp()
    before = asked(desk, "/tasks")
    for _ in range(3):
        await listed(desk)
    assert asked(desk, "/tasks") == before + 2


async def test_without_a_feed_every_list_is_whole() -> None:
    desk = AsanaDesk()
    desk.vendor.feed = False
    desk.put(1)
    for _ in range(3):
        assert len(await listed(desk)) == 1
    assert asked(desk, "/tasks") == 3


async def test_a_token_of_the_feed_that_is_too_old_is_renewed() -> None:
    desk = AsanaDesk()
    desk.put(1)
    await listed(desk)
    desk.vendor.fail_next(Given(status=412, body={"errors": [], "sync": "sync-1"}), when="/events")
    for _ in range(2):
        assert len(await listed(desk)) == 1
    assert asked(desk, "/tasks") == 2


# --- dependencies ---


async def test_dependencies_in_the_list_cost_nothing() -> None:
    desk = AsanaDesk()
    desk.put(1)
    desk.put(2, state="Later")
    desk.block(1, by=2)
    issue = (await listed(desk))[gid_of(1)]
    assert issue.not_dispatchable_reason == f"it is blocked by ASANA-{gid_of(2)}"
    assert [blocker.state for blocker in issue.blocked_by] == ["Later"]
    assert asked(desk, "/dependencies") == 0
    await desk.tracker.move_issue(gid_of(2), "Shipped")
    assert (await listed(desk))[gid_of(1)].dispatchable
    assert (await one(desk, 1)).dispatchable


async def test_a_dependency_that_is_completed_is_asked_about_once() -> None:
    desk = AsanaDesk()
    desk.put(1)
    desk.put(2, extra={"completed": True})
    desk.block(1, by=2)
    for _ in range(3):
        assert (await listed(desk))[gid_of(1)].dispatchable
        desk.vendor.stamp()
    assert asked(desk, "/dependencies") == 1


async def test_a_dependency_in_another_project_blocks_until_it_is_completed() -> None:
    desk = AsanaDesk()
    elsewhere = [desk.vendor.membership("Shipped", OTHER)]
    desk.put(1)
    desk.put(2, extra={"memberships": elsewhere})
    desk.block(1, by=2)
    for _ in range(2):
        (blocker,) = (await listed(desk))[gid_of(1)].blocked_by
        assert (blocker.id, blocker.state) == (gid_of(2), None)
        desk.vendor.stamp()
    desk.put(2, extra={"memberships": elsewhere, "completed": True})
    assert (await listed(desk))[gid_of(1)].dispatchable
    desk.put(2, extra={"memberships": elsewhere})
    assert not (await one(desk, 1)).dispatchable, "a refresh does not trust its memory"
    assert not (await listed(desk))[gid_of(1)].dispatchable


async def test_many_dependencies_are_asked_about_bit_by_bit() -> None:
    desk = AsanaDesk()
    count = DEPENDENCIES_PER_LIST + 10
    for number in range(1, count + 1):
        desk.put(number)
        desk.put(number + 1_000, extra={"completed": True})
        desk.block(number, by=number + 1_000)
    found = await listed(desk)
    assert sum(issue.dispatchable for issue in found.values()) == DEPENDENCIES_PER_LIST
    assert all(issue.dispatchable for issue in (await listed(desk)).values())
    assert asked(desk, "/dependencies") == count


# --- refreshes and comments ---


async def test_a_task_that_may_not_be_seen_is_the_culprit() -> None:
    desk = AsanaDesk()
    ids = [desk.put(1), desk.put(2)]
    desk.vendor.fail_next(refusal(403, "Forbidden"), when=ids[1])
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_ids(ids)
    assert caught.value.culprits == {ids[1]}
    assert caught.value.failure.status == 403


async def test_everything_gone_at_once_is_a_lost_project_and_no_lost_tasks() -> None:
    desk = AsanaDesk()
    ids = [desk.put(1), desk.put(2)]
    desk.vendor.fail_next(Fault.NOT_FOUND, times=3)
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_ids(ids)
    assert caught.value.failure.status == 404


async def test_the_marker_stands_at_the_end_where_it_can_be_seen() -> None:
    desk = AsanaDesk()
    issue_id = desk.put(1)
    desk.vendor.write(issue_id, "moved from Ready to Doing", "12", subtype="section_changed")
    await upsert_comment(desk.tracker, issue_id, kind="skills", scope="s", fingerprint="a", body="Look\nhere")
    *_, story = desk.vendor.records[issue_id].stories.values()
    first, second, empty, last = story["text"].splitlines()
    assert (first, second, empty) == ("Look", "here", "")
    assert last.startswith("symphony:skills v1 key=")
    (comment,) = await desk.tracker.list_comments(issue_id)
    assert comment.body.startswith("<!-- symphony:skills")
    assert from_story(to_story(comment.body)) == comment.body


@pytest.mark.parametrize("body", ["", "one line", "a\nb", "<!-- x -->\nb", "symphony:x\ny"])
async def test_text_without_a_marker_is_left_as_it_is(body: str) -> None:
    assert to_story(body) == body
    assert from_story(body) == body


async def test_answers_that_are_none_are_refused() -> None:
    desk = AsanaDesk()
    issue_id = desk.put(1)
    desk.vendor.fail_next(Given(status=201, body={"data": {}}))
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.put_comment(issue_id, "x", key="k", comment_id=None)
    assert caught.value.failure.category is Category.TRACKER_RESPONSE
    desk.vendor.fail_next(Given(body={"data": {"gid": ""}}))
    with pytest.raises(TrackerError):
        await desk.tracker.list_comments(issue_id)
    with pytest.raises(TrackerError):
        await desk.tracker.list_comments("x")


# --- tool and settings ---


async def test_the_scope_of_the_tool_is_kept() -> None:
    desk = AsanaDesk()
    desk.put(1)
    desk.put(2)
    issue = (await listed(desk))[gid_of(1)]
    own, other = f"/tasks/{gid_of(1)}", f"/tasks/{gid_of(2)}"
    project = f"/projects/{PROJECT}/tasks"
    cases: list[tuple[str, str, str, Any, bool]] = [
        ("project", "GET", own, None, True),
        ("project", "GET", project, None, True),
        ("project", "GET", other, None, False),
        ("issue", "GET", own, None, True),
        ("issue", "GET", project, None, False),
        ("issue", "POST", "/sections/503/addTask", {"data": {"task": gid_of(1)}}, True),
        ("issue", "POST", "/sections/503/addTask", {"data": {"task": gid_of(2)}}, False),
        ("issue", "POST", "/sections/599/addTask", {"data": {"task": gid_of(1)}}, False),
        ("issue", "GET", "/sections/503", None, False),
        ("issue", "GET", "/", None, False),
        ("token", "GET", other, None, True),
    ]
    for scope, method, path, body, allowed in cases:
        call = {"method": method, "path": path, "body": body}
        result = await desk.another(scope=scope).execute_agent_tool("asana_api", call, issue=issue)
        assert result.success is allowed, (scope, path, result.text)


async def test_the_settings_of_the_reference_are_enough() -> None:
    settings = TrackerSettings(
        kind="asana",
        provider={"project_gid": 1201234567890},
        active_states=("Ready",),
        terminal_states=("Shipped",),
    )
    config = AsanaSettings.read(settings, {"ASANA_PAT": "t-123456"})
    assert (config.access.base, config.project_gid) == ("https://app.asana.com/api/1.0", "1201234567890")
    assert "t-123456" not in repr(config)


@pytest.mark.conformance("C-2")
@pytest.mark.parametrize("provider", [{"project_gid": "website"}, {"project_gid": None}, {"scope": "world"}])
async def test_settings_that_do_not_fit_are_refused(provider: dict[str, Any]) -> None:
    with pytest.raises(TrackerConfigError) as caught:
        AsanaDesk().another(**provider)
    assert all(problem.failure.hint for problem in caught.value.problems)

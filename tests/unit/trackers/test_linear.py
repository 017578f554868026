"""What is particular to Linear; what all trackers share is in `contract`."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from contract.linear import ME, SECRET, SLUG, SOMEBODY, LinearDesk
from contract.vendor import Fault, Given
from symphony.config import TrackerSettings
from symphony.domain import Category, Issue
from symphony.trackers.base import TrackerError
from symphony.trackers.linear import FULL_EVERY, MAX_KNOWN, LinearSettings
from symphony.trackers.remote import MAX_COMMENTS, READ_AT_ONCE

pytestmark = pytest.mark.asyncio


def names(desk: LinearDesk) -> list[str]:
    return [asked.body["operationName"] for asked in desk.vendor.requests]


async def listed(desk: LinearDesk, **provider: Any) -> dict[str, Issue]:
    tracker = desk.another(**provider) if provider else desk.tracker
    return {issue.id: issue for issue in await tracker.fetch_issues_by_states(["Todo", "In Progress"])}


async def test_an_unchanged_project_costs_one_small_query_and_now_and_then_a_list() -> None:
    desk = LinearDesk()
    for number in range(1, 120):
        desk.put(number, description="words " * 100)
    await listed(desk)
    first, desk.vendor.received = desk.vendor.received, 0
    desk.vendor.requests.clear()
    for _ in range(FULL_EVERY - 1):
        assert len(await listed(desk)) == 119
    assert names(desk) == ["SymphonyNewest"] * (FULL_EVERY - 1)
    assert desk.vendor.received * 20 < first
    await listed(desk)
    assert "SymphonyIssues" in names(desk)


async def refreshed(desk: LinearDesk, *numbers: int) -> dict[str, Issue]:
    found = await desk.tracker.fetch_issues_by_ids([f"issue-{number}" for number in numbers])
    return {issue.id: issue for issue in found}


async def test_unchanged_issues_that_run_cost_two_small_queries_and_now_and_then_a_whole_one() -> None:
    desk = LinearDesk()
    for number in range(1, 11):
        desk.put(number, description="words " * 100)
    first = await refreshed(desk, *range(1, 11))
    whole, desk.vendor.received = desk.vendor.received, 0
    desk.vendor.requests.clear()
    for _ in range(FULL_EVERY - 1):
        assert await refreshed(desk, *range(1, 11)) == first
    assert names(desk) == ["SymphonyUpdates", "SymphonyBlockers"] * (FULL_EVERY - 1)
    assert desk.vendor.received / (FULL_EVERY - 1) * 10 < whole
    await refreshed(desk, *range(1, 11))
    assert "SymphonyIssuesById" in names(desk)


async def test_only_the_issues_that_changed_are_asked_for_whole() -> None:
    desk = LinearDesk()
    for number in (1, 2, 3, 4):
        desk.put(number, state="In Progress")
    await refreshed(desk, 1, 2, 3)
    desk.vendor.requests.clear()
    await desk.tracker.move_issue("issue-2", "Done")
    desk.vendor.records["issue-3"].project = "elsewhere"
    found = await refreshed(desk, 1, 2, 3, 4)
    assert {issue_id: issue.state for issue_id, issue in found.items()} == {
        "issue-1": "In Progress",
        "issue-2": "Done",
        "issue-4": "In Progress",
    }
    (asked,) = (
        each.body["variables"]["ids"]
        for each in desk.vendor.requests
        if each.body["operationName"] == "SymphonyIssuesById"
    )
    assert set(asked) == {"issue-2", "issue-3", "issue-4"}


async def test_a_new_blocker_of_an_unchanged_issue_holds_it_back() -> None:
    desk = LinearDesk()
    desk.put(1)
    desk.put(8, state="Backlog")
    assert (await refreshed(desk, 1))["issue-1"].dispatchable
    before = desk.vendor.records["issue-1"].fields["updatedAt"]
    desk.block(1, by=8)
    desk.vendor.records["issue-1"].fields["updatedAt"] = before
    assert (await refreshed(desk, 1))["issue-1"].not_dispatchable_reason == "it is blocked by BIL-8"


async def test_so_many_issues_are_remembered_and_no_more() -> None:
    desk = LinearDesk()
    for number in range(1, MAX_KNOWN + 2):
        desk.put(number)
        await refreshed(desk, number)
    desk.vendor.requests.clear()
    await refreshed(desk, 1)
    assert names(desk)[0] == "SymphonyIssuesById", "the first one is forgotten"
    desk.vendor.requests.clear()
    await refreshed(desk, MAX_KNOWN + 1)
    assert names(desk)[0] == "SymphonyUpdates"


async def test_a_malformed_answer_is_not_remembered() -> None:
    desk = LinearDesk()
    desk.put(1)
    desk.vendor.lax = True
    body = {"data": {"issues": {"nodes": [{"id": "issue-1"}], "pageInfo": {}}}}
    desk.vendor.fail_next(Given(body=body), when="SymphonyIssuesById")
    with pytest.raises(TrackerError):
        await refreshed(desk, 1)
    assert (await refreshed(desk, 1)).keys() == {"issue-1"}


async def test_only_work_that_has_not_begun_waits_for_blockers() -> None:
    desk = LinearDesk()
    for number, state in ((1, "Todo"), (2, "In Progress"), (3, "Todo"), (8, "Backlog"), (9, "Done")):
        desk.put(number, state=state)
    desk.block(1, by=8)
    desk.block(2, by=8)
    desk.block(3, by=9)
    found = await listed(desk)
    assert found["issue-1"].not_dispatchable_reason == "it is blocked by BIL-8"
    assert found["issue-2"].dispatchable
    assert found["issue-3"].dispatchable
    assert [blocker.state for blocker in found["issue-3"].blocked_by] == ["Done"]


async def test_relations_of_other_kinds_and_unseen_states() -> None:
    desk = LinearDesk()
    desk.put(1)
    relations = [
        {"type": "related", "issue": {"id": "a"}},
        {"type": "blocks", "issue": {"id": "b", "identifier": "X-1", "state": None}},
        {"type": "blocks", "issue": {}},
        {"type": "blocks", "issue": {"id": "c"}},
    ]
    page = {"nodes": [{"id": "issue-1", "inverseRelations": {"nodes": relations}}], "pageInfo": {}}
    desk.vendor.fail_next(Given(body={"data": {"issues": page}}), when="SymphonyBlockers")
    (issue,) = (await listed(desk)).values()
    assert issue.not_dispatchable_reason == "it is blocked by X-1, c"


@pytest.mark.parametrize(("assignee", "expected"), [("me", ME), (SOMEBODY, SOMEBODY)])
async def test_only_issues_of_the_assignee_are_dispatched(assignee: str, expected: str) -> None:
    desk = LinearDesk()
    for number, owner in ((1, ME), (2, SOMEBODY), (3, None)):
        desk.put(number)
        desk.vendor.records[f"issue-{number}"].assignee = owner
    found = await listed(desk, assignee=assignee)
    assert [issue.assignee_id for issue in found.values() if issue.dispatchable] == [expected]
    assert {issue.not_dispatchable_reason for issue in found.values() if not issue.dispatchable} == {
        "it is not assigned to this account"
    }


async def test_a_project_that_is_not_there_is_a_failure_and_no_empty_list() -> None:
    desk = LinearDesk()
    desk.vendor.fail_next(Given(body={"data": {"issues": {"nodes": []}}}), when="SymphonyNewest")
    empty = {"viewer": {"id": ME, "name": "x"}, "projects": {"nodes": []}}
    desk.vendor.fail_next(Given(body={"data": empty}), when="SymphonyAccount")
    with pytest.raises(TrackerError) as caught:
        await listed(desk)
    assert "project_slug" in str(caught.value.failure.hint)


async def test_any_error_in_an_answer_fails_it_with_the_words_meant_for_people() -> None:
    desk = LinearDesk()
    extensions = {"code": "INPUT_ERROR", "userPresentableMessage": "That filter is not allowed."}
    errors = [{"message": "Argument Validation Error", "extensions": extensions}]
    desk.vendor.fail_next(Given(body={"data": {"issues": {"nodes": []}}, "errors": errors}))
    with pytest.raises(TrackerError) as caught:
        await listed(desk)
    assert caught.value.failure.message == "Linear refused POST SymphonyNewest: That filter is not allowed."


@pytest.mark.parametrize(
    "body", [{"data": None}, {}, [], {"data": {}}, {"data": {"issues": {"nodes": [], "pageInfo": None}}}]
)
async def test_an_answer_of_another_shape_is_no_answer(body: Any) -> None:
    desk = LinearDesk()
    desk.vendor.fail_next(Given(body=body), when="SymphonyIssuesById")
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_ids(["issue-1"])
    assert caught.value.failure.category is Category.TRACKER_RESPONSE


async def test_a_refresh_that_brings_more_than_was_asked_for_is_refused() -> None:
    desk = LinearDesk()
    page = {"nodes": [], "pageInfo": {"hasNextPage": True, "endCursor": "x"}}
    desk.vendor.fail_next(Given(body={"data": {"issues": page}}), times=2)
    with pytest.raises(TrackerError):
        await desk.tracker.fetch_issues_by_ids(["issue-1"])


async def test_a_create_that_finds_its_own_comment_edits_it() -> None:
    desk = LinearDesk()
    issue_id = desk.put(1)
    first = await desk.tracker.put_comment(issue_id, "one", key="k", comment_id=None)
    again = await desk.another().put_comment(issue_id, "two", key="k", comment_id=None)
    assert (first, desk.comments(1)) == (again, ["two"])


async def test_a_create_that_is_refused_for_another_reason_says_so() -> None:
    desk = LinearDesk()
    issue_id = desk.put(1)
    desk.vendor.fail_next(Fault.SERVER_ERROR)
    desk.vendor.fail_next(Fault.SERVER_ERROR, when="SymphonyStates")
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.put_comment(issue_id, "one", key="k", comment_id=None)
    assert caught.value.failure.status == 500


async def test_a_write_that_was_not_carried_out_is_no_success() -> None:
    desk = LinearDesk()
    issue_id = desk.put(1)
    payload = {"commentCreate": {"success": False, "comment": None}}
    desk.vendor.fail_next(Given(body={"data": payload}))
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.put_comment(issue_id, "one", key="k", comment_id=None)
    assert caught.value.failure.category is Category.TRACKER_RESPONSE


async def test_limits_of_complexity_are_shown_and_spread_the_polls() -> None:
    desk = LinearDesk()
    desk.put(1)
    at = str(desk.clock.now + 3_600_000)
    left = 250_000

    def headers() -> dict[str, str]:
        name = "x-ratelimit-complexity"
        return {f"{name}-limit": "250000", f"{name}-remaining": str(left), f"{name}-reset": at}

    desk.vendor.extra_headers = headers()
    await listed(desk)
    left -= 50_000
    desk.vendor.extra_headers = headers()
    await listed(desk)
    (shown,) = desk.tracker.quota()
    assert (shown.name, shown.remaining) == ("complexity points", 200_000)
    asked = len(desk.vendor.requests)
    desk.put(2)
    assert list(await listed(desk)) == ["issue-1"], "the last list holds"
    assert len(desk.vendor.requests) == asked
    desk.clock.pass_ms(3_600_000)
    assert len(await listed(desk)) == 2


async def test_the_flat_keys_of_older_files_and_oauth_tokens_work() -> None:
    settings = TrackerSettings(kind="linear", provider={"project_slug": SLUG})
    config = LinearSettings.read(settings, {"LINEAR_API_KEY": "lin_oauth_0123456789"})
    assert config.access.headers == {"authorization": "Bearer lin_oauth_0123456789"}
    assert config.active_states == ("Todo", "In Progress")
    assert config.terminal_states == ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")
    assert config.access.base == "https://api.linear.app/graphql"
    assert SECRET not in repr(LinearSettings.read(settings, {"LINEAR_API_KEY": SECRET}))


async def test_errors_of_linear_are_an_answer_of_the_tool() -> None:
    desk = LinearDesk()
    desk.put(1)
    (issue,) = (await listed(desk)).values()
    errors = {"errors": [{"message": "Cannot query field"}]}
    desk.vendor.fail_next(Given(status=400, body=errors))
    result = await desk.tracker.execute_agent_tool("linear_graphql", {"query": "{ x }"}, issue=issue)
    assert not result.success
    assert "Cannot query field" in result.text


async def test_others_work_while_a_large_list_is_read() -> None:
    desk = LinearDesk()
    for number in range(1, 3 * READ_AT_ONCE + 1):
        desk.put(number)
    turns_of: list[int] = []

    async def other() -> None:
        while True:
            turns_of.append(len(desk.vendor.requests))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        assert len(await listed(desk)) == 3 * READ_AT_ONCE
        tasks.cancel_scope.cancel()
    assert turns_of.count(len(desk.vendor.requests)) >= 3, "after the last answer, while the records are read"


async def test_so_many_comments_are_remembered_and_no_more() -> None:
    desk = LinearDesk()
    desk.put(1)
    for number in range(MAX_COMMENTS + 1):
        await desk.tracker.put_comment("issue-1", "text", key=f"k{number}", comment_id=None)
    desk.vendor.requests.clear()
    await desk.tracker.put_comment("issue-1", "new", key=f"k{MAX_COMMENTS}", comment_id=None)
    assert names(desk) == ["SymphonyEditComment"], "it knows which one it wrote"
    desk.vendor.requests.clear()
    await desk.tracker.put_comment("issue-1", "new", key="k0", comment_id=None)
    assert names(desk)[0] == "SymphonyCreateComment"


async def test_with_ten_sessions_an_unchanged_board_costs_a_tenth_of_a_full_poll_at_most() -> None:
    desk = LinearDesk()
    for number in range(1, 501):
        desk.put(number)
    await listed(desk)
    full = desk.vendor.received
    await refreshed(desk, *range(1, 11))
    desk.vendor.received = 0
    for _ in range(2 * FULL_EVERY):
        await listed(desk)
        await refreshed(desk, *range(1, 11))
    assert desk.vendor.received / (2 * FULL_EVERY) <= full / 10

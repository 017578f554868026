"""What is particular to GitHub; what all trackers share is in `contract`."""

from collections.abc import Mapping
from typing import Any

import pytest

from contract.github import REPO, GithubDesk, GithubProjectDesk, GithubVendor
from contract.vendor import Fault, Given
from symphony.config import TrackerSettings
from symphony.domain import Issue
from symphony.services.github.issues import GithubSettings
from symphony.trackers.base import TrackerConfigError, TrackerError

pytestmark = pytest.mark.asyncio


class OwnStates(GithubDesk):
    """States by open and closed, as files of the reference have it."""

    todo, doing, done = "open", "open", "closed"

    def provider(self) -> dict[str, Any]:  # type: ignore[explicit-override]  # a desk of this file only
        return {key: value for key, value in super().provider().items() if key != "states"}


async def listed(desk: GithubDesk, *states: str) -> dict[str, Issue]:
    found = await desk.tracker.fetch_issues_by_states(states or (desk.todo, desk.doing))
    return {issue.id: issue for issue in found}


async def test_labels_that_contradict_each_other_hold_an_issue_back() -> None:
    desk = GithubDesk()
    desk.put(1, labels=["Status:In-Progress"])
    desk.put(2, labels=["status:done", "bug"])
    desk.put(3, labels=["status:todo"])
    found = await listed(desk)
    assert found["1"].not_dispatchable_reason == (
        "its labels contradict each other: `status:todo` and `Status:In-Progress`"
    )
    assert (found["2"].state, found["2"].dispatchable) == ("Todo", False), "what is not over is kept"
    assert found["3"].dispatchable, "the same label twice contradicts nothing"


async def test_a_closed_issue_is_over_whatever_its_labels_say() -> None:
    desk = GithubDesk()
    desk.put(1, extra={"state": "closed"})
    desk.put(2, state="Done", extra={"state": "closed"})
    assert await listed(desk) == {}
    states = [issue.state for issue in await desk.tracker.fetch_issues_by_ids(["1", "2"])]
    assert states == ["closed", "Done"]


async def test_open_can_be_an_active_state_beside_labels() -> None:
    desk = GithubDesk()
    desk.put(1)
    desk.vendor.records[1].labels.clear()
    desk.put(2)
    assert {issue.state for issue in (await listed(desk, "open", "Todo")).values()} == {"open", "Todo"}
    assert list(await listed(desk, "open")) == ["1"]
    assert list(await listed(desk, "closed", "Todo")) == ["2"]


async def test_other_labels_can_stand_for_states() -> None:
    desk = GithubDesk()
    states = {"source": "labels", "prefix": "state/", "labels": {"todo": "ready for work"}}
    tracker = desk.another(states=states)
    desk.put(1, labels=["Ready for Work"])
    desk.put(2, labels=["state/in-progress"])
    for number in (1, 2):
        desk.vendor.records[number].labels.pop(0)
    found = await tracker.fetch_issues_by_states(["Todo", "In Progress"])
    assert [(issue.id, issue.state) for issue in found] == [("1", "Todo"), ("2", "In Progress")]


async def test_a_state_that_only_has_a_label_is_one_to_move_to() -> None:
    """Where people look at finished work is neither active nor terminal."""
    desk = GithubDesk()
    tracker = desk.another(states={"source": "labels", "labels": {"Human Review": "needs-review"}})
    desk.put(1)
    assert await tracker.move_issue("1", "human review") == "Human Review"
    assert desk.vendor.records[1].labels == ["needs-review"]
    assert "Human Review" in (await tracker.account_info()).states
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue("1", "Human Review")
    assert "Todo, In Progress, Done, open, closed" in str(caught.value.failure.hint)


async def test_the_daemon_can_move_to_where_blocked_issues_rest() -> None:
    desk = GithubDesk()
    resting = desk.settings().model_copy(update={"on_block": "Blocked"})
    assert GithubSettings.read(resting, desk.environment()).label_of("blocked") == "status:blocked"
    again = resting.model_copy(update={"on_block": "todo"})
    assert list(GithubSettings.read(again, desk.environment()).labels) == ["Todo", "In Progress", "Done"]


async def test_an_issue_that_is_only_open_or_closed_can_rest_nowhere_else() -> None:
    desk = OwnStates()
    with pytest.raises(TrackerConfigError) as caught:
        GithubSettings.read(desk.settings().model_copy(update={"on_block": "Blocked"}), desk.environment())
    (problem,) = caught.value.problems
    assert problem.location == ("tracker", "on_block")
    GithubSettings.read(desk.settings().model_copy(update={"on_block": "open"}), desk.environment())
    with pytest.raises(TrackerError) as refused:
        await desk.tracker.move_issue(desk.put(1), "Blocked")
    assert "open, closed" in str(refused.value.failure.hint)
    assert desk.vendor.writes() == []


async def test_open_and_closed_are_the_states_of_the_reference() -> None:
    desk = OwnStates()
    desk.put(1, labels=["Bug"])
    desk.put(2, extra={"state": "closed"})
    assert list(await listed(desk)) == ["1"]
    assert sorted(await listed(desk, "open", "closed")) == ["1", "2"]
    assert await desk.tracker.move_issue("1", "closed") == "closed"
    assert await desk.tracker.move_issue("1", "open") == "open"
    assert (await desk.tracker.account_info()).states == ("open", "closed")


async def test_a_move_to_open_takes_the_status_labels_away_and_no_others() -> None:
    desk = GithubDesk()
    desk.put(1, labels=["bug"])
    assert await desk.tracker.move_issue("1", "open") == "open"
    assert desk.vendor.records[1].labels == ["bug"]
    assert await desk.tracker.move_issue("1", "In Progress") == "In Progress"
    assert desk.vendor.records[1].labels == ["bug", "status:in-progress"]


async def test_sub_issues_are_told_without_a_request_and_waited_for_on_demand() -> None:
    desk = GithubDesk()
    summary = {"sub_issues_summary": {"total": 3, "completed": 1, "percent_completed": 33}}
    desk.put(1, extra=summary)
    (issue,) = (await listed(desk)).values()
    assert issue.native_ref is not None
    assert issue.native_ref["sub_issues"] == {"total": 3, "completed": 1}
    assert issue.dispatchable
    (held,) = await desk.another(wait_for_sub_issues=True).fetch_issues_by_states(["Todo"])
    assert held.not_dispatchable_reason == "2 of its 3 sub-issues are open"
    desk.put(2, extra={"sub_issues_summary": {"total": 3, "completed": 3, "percent_completed": 100}})
    issues = await desk.another(wait_for_sub_issues=True).fetch_issues_by_states(["Todo"])
    assert [issue.dispatchable for issue in issues] == [False, True]


async def test_a_blocker_in_another_repository_is_named_with_it() -> None:
    desk = GithubDesk()
    desk.put(1)
    desk.put(2, extra={"repository_url": "https://github.example.test/api/v3/repos/octo-team/other"})
    desk.vendor.records[2].labels.clear()
    desk.block(1, by=2)
    (issue,) = (await listed(desk)).values()
    assert issue.not_dispatchable_reason == "it is blocked by octo-team/other#2"


async def test_unchanged_polls_are_confirmed_and_send_nothing() -> None:
    desk = GithubDesk()
    for number in range(1, 151):
        desk.put(number, description="words " * 100)
    await listed(desk)
    first, desk.vendor.received = desk.vendor.received, 0
    assert len(await listed(desk)) == 150
    assert desk.vendor.received == 0
    assert first > 100_000


async def test_an_installation_of_an_app_learns_its_name_from_graphql() -> None:
    desk = GithubProjectDesk()
    issue_id = desk.put(1)
    desk.vendor.fail_next(Given(status=403, body={"message": "Resource not accessible by integration"}))
    desk.vendor.fail_next(Given(body={"data": {"viewer": {"login": "Symphony-Bot"}}}), when="graphql")
    desk.comment(1, "ours", mine=True)
    (comment,) = await desk.tracker.list_comments(issue_id)
    assert comment.mine


async def test_everything_gone_at_once_is_a_lost_repository_and_no_lost_issues() -> None:
    desk = GithubDesk()
    ids = [desk.put(1), desk.put(2)]
    desk.vendor.fail_next(Fault.NOT_FOUND, times=3)
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_ids(ids)
    assert caught.value.failure.status == 404


async def test_a_transferred_issue_is_gone() -> None:
    desk = GithubDesk()
    moved = Given(status=301, headers={"location": f"{desk.vendor.base}/repositories/9/issues/1"})
    desk.vendor.fail_next(moved)
    assert list(await desk.tracker.fetch_issues_by_ids([desk.put(1)])) == []


async def test_writes_come_at_least_a_second_apart() -> None:
    desk = GithubDesk()
    issue_id = desk.put(1)
    for key in ("a", "b", "c"):
        await desk.tracker.put_comment(issue_id, "x", key=key, comment_id=None)
    assert sum(desk.clock.slept) == pytest.approx(2.0)


async def test_a_project_leaves_out_what_is_archived_or_of_another_repository() -> None:
    desk = GithubProjectDesk()
    desk.put(1)
    rows = {"isArchived": True, "fieldValueByName": {"name": "Todo"}, "content": None}
    other = {"number": 1, "repository": {"nameWithOwner": "octo-team/other"}}
    nodes = [rows, {**rows, "isArchived": False, "content": other}, None]
    page = {"nodes": nodes, "pageInfo": {"hasNextPage": False}}
    data = {"repositoryOwner": {"projectV2": {"items": page}}}
    desk.vendor.fail_next(Given(body={"data": data}), when="graphql")
    assert await listed(desk) == {}


@pytest.mark.parametrize("data", [{"repositoryOwner": None}, {"repositoryOwner": {"projectV2": None}}])
async def test_a_project_that_is_not_there_is_a_failure(data: Mapping[str, Any]) -> None:
    desk = GithubProjectDesk()
    desk.put(1)
    desk.vendor.fail_next(Given(body={"data": data}), when="graphql", times=2)
    with pytest.raises(TrackerError) as caught:
        await listed(desk)
    assert caught.value.failure.status == 404
    with pytest.raises(TrackerError):
        await desk.tracker.account_info()


async def test_the_scope_of_the_tool_is_kept() -> None:
    desk = GithubDesk()
    desk.put(1)
    desk.put(2)
    (issue, _) = (await listed(desk)).values()
    for scope, inside, outside in (
        ("project", f"/repos/octo-team/{REPO}/issues/2", "/user"),
        ("issue", f"/repos/octo-team/{REPO}/issues/1", f"/repos/octo-team/{REPO}/issues/2"),
    ):
        tracker = desk.another(scope=scope)
        for path, allowed in ((inside, True), (outside, False)):
            call = {"method": "GET", "path": path}
            result = await tracker.execute_agent_tool("github_api", call, issue=issue)
            assert result.success is allowed, path


@pytest.mark.parametrize(
    ("api_url", "graphql"),
    [
        ("https://api.github.com", "https://api.github.com/graphql"),
        ("https://ghe.example.test/api/v3/", "https://ghe.example.test/api/graphql"),
        ("https://proxy.example.test/github", "https://proxy.example.test/github/graphql"),
    ],
)
async def test_the_base_of_an_enterprise_server_is_kept(api_url: str, graphql: str) -> None:
    settings = TrackerSettings(
        kind="github",
        provider={"repo": "o/r", "api_url": api_url},
        active_states=("open",),
        terminal_states=("closed",),
    )
    config = GithubSettings.read(settings, {"GITHUB_TOKEN": "t-123456"})
    assert config.graphql == graphql
    assert config.access.base == api_url.rstrip("/")
    assert "t-123456" not in repr(config)


@pytest.mark.conformance("C-2")
@pytest.mark.parametrize(
    "provider",
    [
        {"repo": "website"},
        {"repo": "../website"},
        {"repo": "o/r/x"},
        {"states": "labels"},
        {"states": {"source": "boards"}},
        {"states": {"source": []}},
        {"states": {"source": "labels", "odd": 1}},
        {"states": {"source": "labels", "prefix": ""}},
        {"states": {"source": "labels", "labels": {"Todo": 7}}},
        {"states": {"source": "labels", "labels": {"Todo": "x", "Done": "X"}}},
        {"states": {"source": "project"}},
        {"states": {"source": "project", "project": 0}},
        {"states": {"source": "project", "project": 5, "field": ""}},
        {"states": {"source": "issue"}},
        {"scope": "world"},
        {"wait_for_sub_issues": "yes"},
    ],
)
async def test_settings_that_do_not_fit_are_refused(provider: dict[str, Any]) -> None:
    with pytest.raises(TrackerConfigError) as caught:
        GithubDesk().another(**provider)
    assert all(problem.failure.hint for problem in caught.value.problems)


async def test_vendors_without_graphql_are_asked_no_graphql() -> None:
    desk = GithubDesk()
    desk.put(1)
    await listed(desk)
    assert isinstance(desk.vendor, GithubVendor)
    assert all("graphql" not in asked.address for asked in desk.vendor.requests)

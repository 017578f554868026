"""What is particular to Forgejo and Gitea; what all trackers share is in `contract`."""

from collections.abc import Mapping
from typing import Any

import pytest

from contract.forgejo import OWNER, REPO, ForgejoDesk, GiteaDesk
from contract.vendor import ELSEWHERE, Fault, Given
from symphony.config import TrackerSettings
from symphony.domain import Category, Issue
from symphony.services.forgejo.issues import DEPENDENCIES_PER_LIST, FULL_EVERY, ForgejoSettings, GiteaSettings
from symphony.trackers.base import TrackerConfigError, TrackerError

pytestmark = pytest.mark.asyncio


class OwnStates(ForgejoDesk):
    """States by open and closed."""

    todo, doing, done = "open", "open", "closed"

    def provider(self) -> dict[str, Any]:  # type: ignore[explicit-override]  # a desk of this file only
        return {key: value for key, value in super().provider().items() if key != "states"}


async def listed(desk: ForgejoDesk, *states: str) -> dict[str, Issue]:
    found = await desk.tracker.fetch_issues_by_states(states or (desk.todo, desk.doing))
    return {issue.id: issue for issue in found}


def asked(desk: ForgejoDesk, part: str) -> int:
    """How many requests had this in their address."""
    return sum(part in each.address for each in desk.vendor.requests)


# --- states ---


async def test_labels_that_contradict_each_other_hold_an_issue_back() -> None:
    desk = ForgejoDesk()
    desk.put(1, labels=["status/in-progress"])
    desk.put(2)
    found = await listed(desk)
    assert found["1"].not_dispatchable_reason == (
        "its labels contradict each other: `status/todo` and `status/in-progress`"
    )
    assert found["2"].dispatchable


async def test_a_closed_issue_is_over_whatever_its_labels_say() -> None:
    desk = ForgejoDesk()
    desk.put(1, extra={"state": "closed"})
    desk.put(2, state="Done", extra={"state": "closed"})
    assert await listed(desk) == {}
    states = [issue.state for issue in await desk.tracker.fetch_issues_by_ids(["1", "2"])]
    assert states == ["closed", "Done"]
    assert sorted(await listed(desk, "closed", "Done")) == ["1", "2"]
    assert sorted(await listed(desk, "open", "closed")) == ["1"], "in Done, and closed as well"


async def test_a_label_that_is_not_there_filters_nothing_and_finds_nothing() -> None:
    desk = ForgejoDesk()
    desk.vendor.known_labels.remove("status/in-progress")
    desk.put(1)
    desk.put(2, state="Backlog")
    assert list(await listed(desk, "In Progress")) == []
    assert list(await listed(desk)) == ["1"]


async def test_open_and_closed_need_no_labels() -> None:
    desk = OwnStates()
    desk.put(1, labels=["Bug"])
    desk.put(2, extra={"state": "closed"})
    assert list(await listed(desk)) == ["1"]
    assert sorted(await listed(desk, "open", "closed")) == ["1", "2"]
    assert list(await listed(desk, "Todo")) == []
    assert await desk.tracker.move_issue("1", "closed") == "closed"
    assert await desk.tracker.move_issue("1", "open") == "open"
    assert desk.vendor.records[1].labels == ["status/open", "Bug"], "labels mean nothing here"
    assert (await desk.tracker.account_info()).states == ("open", "closed")
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue("1", "Done")
    assert caught.value.failure.hint == "states: open, closed"


async def test_a_move_to_open_takes_the_status_labels_away_and_no_others() -> None:
    desk = ForgejoDesk()
    desk.put(1, labels=["bug"])
    assert await desk.tracker.move_issue("1", "open") == "open"
    assert desk.vendor.records[1].labels == ["bug"]
    assert await desk.tracker.move_issue("1", "In Progress") == "In Progress"
    assert desk.vendor.records[1].labels == ["bug", "status/in-progress"]


async def test_exclusive_labels_need_no_second_write() -> None:
    desk = ForgejoDesk()
    desk.vendor.exclusive = True
    desk.put(1, labels=["bug"])
    assert await desk.tracker.move_issue("1", "In Progress") == "In Progress"
    assert [each.method for each in desk.vendor.writes()] == ["POST"]


async def test_a_label_that_is_not_there_is_named_when_a_move_needs_it() -> None:
    desk = ForgejoDesk()
    desk.vendor.known_labels.remove("status/in-progress")
    desk.put(1)
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue("1", "In Progress")
    assert "no label 'status/in-progress'" in caught.value.failure.message
    assert desk.vendor.records[1].labels == ["status/todo"]


# --- what did not change ---


async def test_a_poll_without_changes_is_one_small_request() -> None:
    for desk in (ForgejoDesk(), GiteaDesk()):
        for number in range(1, 121):
            desk.put(number, description="words " * 100)
        desk.put(121, state="Done", extra={"state": "closed"})
        for _ in range(3):
            assert len(await listed(desk)) == 120
        before, desk.vendor.received = len(desk.vendor.requests), 0
        assert len(await listed(desk)) == 120
        assert len(desk.vendor.requests) == before + 1, desk.kind
        assert desk.vendor.received < 3_000
        desk.vendor.touch(5)
        desk.vendor.records[5].labels = ["status/done"]
        assert len(await listed(desk)) == 119, desk.kind


async def test_a_list_is_read_as_a_whole_now_and_then() -> None:
    desk = ForgejoDesk()
    desk.put(1)
    desk.put(2)
    await listed(desk)
    desk.remove(1)
    lists = [sorted(await listed(desk)) for _ in range(FULL_EVERY)]
    assert lists[:-1] == [["1", "2"]] * (FULL_EVERY - 1)
    assert lists[-1] == ["2"]


async def test_times_that_cannot_be_read_cost_a_whole_list_each_time() -> None:
    desk = ForgejoDesk()
    desk.put(1, extra={"updated_at": "lately"})
    for expected in (2, 4, 6):
        assert len(await listed(desk)) == 1
        assert asked(desk, "sort=oldest") + asked(desk, "sort=recentupdate") >= expected


# --- dependencies ---


async def test_dependencies_are_asked_for_once_after_each_change() -> None:
    desk = ForgejoDesk()
    for number in range(1, 6):
        desk.put(number)
    for number in (1, 2, 3):
        desk.vendor.touch(number)
    await listed(desk)
    assert asked(desk, "/dependencies") == 3, "4 and 5 were never touched"
    desk.vendor.touch(1)
    await listed(desk)
    assert asked(desk, "/dependencies") == 4
    await desk.tracker.fetch_issues_by_ids(["2", "3"])
    assert asked(desk, "/dependencies") == 4
    await desk.tracker.fetch_issues_by_ids(["4"])
    assert asked(desk, "/dependencies") == 5, "a refresh makes sure"


async def test_an_issue_goes_on_when_what_blocked_it_is_over() -> None:
    desk = ForgejoDesk()
    desk.put(1)
    desk.put(2)
    desk.block(1, by=2)
    assert (await listed(desk))["1"].not_dispatchable_reason == "it is blocked by FJ-2"
    assert not (await desk.tracker.fetch_issues_by_ids(["1"]))[0].dispatchable
    await desk.tracker.move_issue("2", "Done")
    found = (await listed(desk))["1"]
    assert found.dispatchable
    assert [blocker.state for blocker in found.blocked_by] == ["Done"]


async def test_all_pages_of_dependencies_are_read() -> None:
    desk = ForgejoDesk()
    for number in range(1, 10):
        desk.put(number)
    for number in range(2, 10):
        desk.block(1, by=number)
    desk.vendor.page_cap = 3
    (issue,) = await desk.tracker.fetch_issues_by_ids(["1"])
    assert len(issue.blocked_by) == 8


async def test_blockers_elsewhere_and_hidden_ones_are_told_as_such() -> None:
    desk = ForgejoDesk()
    desk.put(1)
    desk.put(2, extra={"repository": {"full_name": "team/other"}})
    desk.put(3, extra={"state": "odd"})
    for blocker in (2, 0, 3):
        desk.block(1, by=blocker)
    (issue,) = await desk.tracker.fetch_issues_by_ids(["1"])
    assert issue.not_dispatchable_reason == (
        "it is blocked by team/other#2, an issue that the token may not see, FJ-3"
    )


async def test_a_repository_without_dependencies_has_none() -> None:
    desk = ForgejoDesk()
    desk.put(1)
    desk.vendor.touch(1)
    desk.vendor.dependencies = False
    assert (await listed(desk))["1"].dispatchable


async def test_a_board_of_touched_issues_is_asked_about_bit_by_bit() -> None:
    desk = ForgejoDesk()
    count = DEPENDENCIES_PER_LIST + 20
    for number in range(1, count + 1):
        desk.put(number)
        desk.vendor.touch(number)
    assert len(await listed(desk)) == count
    assert asked(desk, "/dependencies") == DEPENDENCIES_PER_LIST
    assert len(await listed(desk)) == count
    assert asked(desk, "/dependencies") == count
    await listed(desk)
    assert asked(desk, "/dependencies") == count


# --- pages, ids, comments ---


async def test_links_to_pages_may_lead_to_another_address_of_the_server() -> None:
    desk = ForgejoDesk()
    desk.vendor.own_address = ELSEWHERE
    for number in range(1, 121):
        desk.put(number)
    assert len(await listed(desk)) == 120


async def test_a_page_without_records_that_has_a_next_one_is_a_failure() -> None:
    desk = ForgejoDesk()
    desk.put(1)
    desk.vendor.fail_next(Given(body=[], headers={"link": '<x>; rel="next"'}), when="oldest")
    with pytest.raises(TrackerError) as caught:
        await listed(desk)
    assert caught.value.failure.category is Category.TRACKER_PAGINATION


async def test_everything_gone_at_once_is_a_lost_repository_and_no_lost_issues() -> None:
    desk = ForgejoDesk()
    ids = [desk.put(1), desk.put(2)]
    desk.vendor.fail_next(Fault.NOT_FOUND, times=3)
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_ids(ids)
    assert caught.value.failure.status == 404


async def test_comments_that_are_none_are_refused() -> None:
    desk = ForgejoDesk()
    issue_id = desk.put(1)
    desk.vendor.fail_next(Given(status=201, body={}))
    with pytest.raises(TrackerError):
        await desk.tracker.put_comment(issue_id, "x", key="k", comment_id=None)
    with pytest.raises(TrackerError):
        await desk.tracker.list_comments("x")
    desk.vendor.fail_next(Given(body={"login": " "}))
    with pytest.raises(TrackerError) as caught:
        await desk.another().list_comments(issue_id)
    assert "the account of this token" in caught.value.failure.message


# --- tool and settings ---


async def test_the_scope_of_the_tool_is_kept() -> None:
    desk = ForgejoDesk()
    desk.put(1)
    desk.put(2)
    issue = (await listed(desk))["1"]
    for scope, inside, outside in (
        ("project", f"/repos/{OWNER}/{REPO}/issues/2", "/user"),
        ("issue", f"/repos/{OWNER}/{REPO}/issues/1", f"/repos/{OWNER}/{REPO}/issues/2"),
    ):
        tracker = desk.another(scope=scope)
        for path, allowed in ((inside, True), (outside, False)):
            call = {"method": "GET", "path": path}
            result = await tracker.execute_agent_tool("forgejo_api", call, issue=issue)
            assert result.success is allowed, path


@pytest.mark.parametrize(
    ("model", "environment"),
    [
        (ForgejoSettings, {"FORGEJO_TOKEN": "t-123456", "FORGEJO_URL": "https://codeberg.example.test/"}),
        (GiteaSettings, {"GITEA_TOKEN": "t-123456", "GITEA_URL": "https://codeberg.example.test/api/v1"}),
    ],
)
async def test_each_name_has_variables_of_its_own(
    model: type[ForgejoSettings], environment: Mapping[str, str]
) -> None:
    settings = TrackerSettings(
        kind=model.kind, provider={"repo": "o/r"}, active_states=("open",), terminal_states=("closed",)
    )
    config = model.read(settings, environment)
    assert config.access.base == "https://codeberg.example.test/api/v1"
    assert "t-123456" not in repr(config)
    assert next(iter(environment)) in model.secret_names()


@pytest.mark.conformance("C-2")
@pytest.mark.parametrize(
    "provider",
    [
        {"url": None},
        {"repo": "website"},
        {"repo": "../website"},
        {"states": {"source": "project"}},
        {"states": {"source": "labels", "odd": 1}},
        {"states": {"source": "labels", "prefix": ""}},
        {"states": {"source": "labels", "labels": {"Todo": "ready, steady"}}},
        {"states": {"source": "issue"}},
        {"scope": "world"},
    ],
)
async def test_settings_that_do_not_fit_are_refused(provider: dict[str, Any]) -> None:
    with pytest.raises(TrackerConfigError) as caught:
        ForgejoDesk().another(**provider)
    assert all(problem.failure.hint for problem in caught.value.problems)

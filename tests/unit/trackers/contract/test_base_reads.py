from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from contract.desk import Desk
from contract.vendor import Fault, PagingFault
from symphony.domain import Category, Issue
from symphony.trackers.base import TrackerError, skipped_by

pytestmark = pytest.mark.asyncio


async def listed(desk: Desk, *states: str) -> list[Issue]:
    return list(await desk.tracker.fetch_issues_by_states(states or (desk.todo, desk.doing)))


async def one(desk: Desk, issue_id: str) -> Issue:
    (issue,) = await desk.tracker.fetch_issues_by_ids([issue_id])
    return issue


# --- lists ---


@pytest.mark.conformance("T-1")
async def test_states_are_asked_for_whatever_their_spelling(desk: Desk) -> None:
    ids = [desk.put(1), desk.put(2, state=desk.doing), desk.put(3, state=desk.done)]
    assert sorted(issue.id for issue in await listed(desk)) == sorted(ids[:2])
    assert [issue.id for issue in await listed(desk, f" {desk.done.upper()} ", desk.done)] == [ids[2]]


@pytest.mark.conformance("T-1")
async def test_all_pages_are_read_each_issue_once(desk: Desk) -> None:
    wanted = {desk.put(number) for number in range(1, 2 * desk.page + 2)}
    found = await listed(desk)
    assert {issue.id for issue in found} == wanted
    assert len(found) == len(wanted)


async def test_a_page_shorter_than_asked_for_is_not_the_last(desk: Desk) -> None:
    desk.vendor.page_cap = 7
    wanted = {desk.put(number) for number in range(1, 31)}
    assert {issue.id for issue in await listed(desk)} == wanted


@pytest.mark.conformance("T-2")
async def test_asking_for_nothing_makes_no_request(desk: Desk) -> None:
    assert list(await desk.tracker.fetch_issues_by_states([])) == []
    assert list(await desk.tracker.fetch_issues_by_states([" "])) == []
    assert list(await desk.tracker.fetch_issues_by_ids([])) == []
    assert desk.vendor.requests == []


@pytest.mark.conformance("T-1")
async def test_what_is_out_of_scope_is_not_there(desk: Desk) -> None:
    inside, outside = desk.put(1), desk.put_out_of_scope(2)
    assert [issue.id for issue in await listed(desk)] == [inside]
    assert [issue.id for issue in await desk.tracker.fetch_issues_by_ids([inside, outside])] == [inside]


@pytest.mark.conformance("T-9", "T-10")
@pytest.mark.parametrize("fault", PagingFault)
async def test_pages_that_lead_nowhere_fail_the_whole_list(desk: Desk, fault: PagingFault) -> None:
    if fault not in desk.paging_faults:
        fault = min(desk.paging_faults, key=lambda each: each.value)
    for number in range(1, 2 * desk.page + 2):
        desk.put(number)
    desk.vendor.paging_fault = fault
    with pytest.raises(TrackerError) as caught:
        await listed(desk)
    assert caught.value.failure.category is Category.TRACKER_PAGINATION
    assert len(desk.vendor.requests) < 10


@pytest.mark.conformance("T-10")
async def test_a_failure_between_two_pages_fails_the_whole_list(desk: Desk) -> None:
    for number in range(1, desk.page + 2):
        desk.put(number)
    await listed(desk, desk.done)
    asked = len(desk.vendor.requests)
    await listed(desk)
    pages = len(desk.vendor.requests) - asked
    for at in range(pages):
        fresh = desk.another()
        desk.vendor.fail_next(Fault.SERVER_ERROR, skip=at)
        with pytest.raises(TrackerError):
            await fresh.fetch_issues_by_states([desk.todo, desk.doing])


async def test_a_list_sees_what_changed_since_the_last(desk: Desk) -> None:
    first = desk.put(1)
    assert [issue.id for issue in await listed(desk)] == [first]
    assert [issue.id for issue in await listed(desk)] == [first]
    second = desk.put(2)
    desk.put(1, state=desk.done)
    assert [issue.id for issue in await listed(desk)] == [second]
    desk.remove(2)
    lists = [await listed(desk) for _ in range(12)]
    assert lists[-1] == []


async def test_a_list_that_did_not_change_costs_little(desk: Desk) -> None:
    for number in range(1, desk.page + 2):
        desk.put(number, description="words " * 200)
    await listed(desk)
    first, desk.vendor.received = desk.vendor.received, 0
    for _ in range(5):
        assert len(await listed(desk)) == desk.page + 1
    if desk.can & {"conditional", "cheap"}:
        assert desk.vendor.received * 10 < first * 5


# --- refreshes ---


@pytest.mark.conformance("T-6")
@pytest.mark.parametrize("extra", [1, 51])
async def test_many_ids_are_refreshed_in_batches_each_once(desk: Desk, extra: int) -> None:
    wanted = [desk.put(number) for number in range(1, desk.batch + extra + 1)]
    found = await desk.tracker.fetch_issues_by_ids([*wanted, *wanted])
    assert sorted(issue.id for issue in found) == sorted(wanted)


@pytest.mark.conformance("T-6")
async def test_a_refresh_omits_what_is_gone_and_shows_what_a_list_shows(desk: Desk) -> None:
    first, second = desk.put(1, labels=["a"], description="text"), desk.put(2)
    desk.remove(2)
    found = await desk.tracker.fetch_issues_by_ids([first, second])
    assert list(found) == await listed(desk)


async def test_an_issue_is_found_by_its_identifier_in_any_state(desk: Desk) -> None:
    wanted, other, outside = desk.put(1, state=desk.done), desk.put(2), desk.put_out_of_scope(3)
    issue = await one(desk, wanted)
    assert await desk.tracker.find_issue(issue.identifier) == issue
    name = (await one(desk, other)).identifier
    desk.remove(2)
    for unknown in (name, outside, f"X{name}", "../../user", "NO-SUCH", "-", "", "é-1", "A-1/2"):
        assert await desk.tracker.find_issue(unknown) is None, unknown


async def test_a_refresh_shows_any_state(desk: Desk) -> None:
    assert (await one(desk, desk.put(1, state=desk.done))).state == desk.done


async def test_ids_that_make_no_sense_are_gone(desk: Desk) -> None:
    desk.put(1)
    assert list(await desk.tracker.fetch_issues_by_ids(["../../user", "0", "no such id", "-1", "1/2"])) == []


# --- records ---


@pytest.mark.conformance("T-5")
async def test_a_malformed_record_is_left_out_of_a_list_and_told_once(desk: Desk) -> None:
    sound = desk.put(1)
    for number, field in enumerate(desk.malformed, 2):
        desk.put(number, broken=field)
    with capture_logs() as logs:
        for _ in range(3):
            assert [issue.id for issue in await listed(desk)] == [sound]
            desk.put(1)
    assert [line["event"] for line in logs] == ["tracker_record_skipped"] * len(desk.malformed)
    assert len(skipped_by(desk.tracker)) == len(desk.malformed)
    assert all(failure.category is Category.TRACKER_RESPONSE for failure in skipped_by(desk.tracker))


@pytest.mark.conformance("T-5")
async def test_a_malformed_record_fails_a_refresh_and_is_named(desk: Desk) -> None:
    sound, broken = desk.put(1), desk.put(2, broken="title")
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_ids([sound, broken])
    assert caught.value.failure.category is Category.TRACKER_RESPONSE
    assert caught.value.culprits == {broken}
    assert [issue.id for issue in await desk.tracker.fetch_issues_by_ids([sound])] == [sound]


@pytest.mark.needs("labels")
@pytest.mark.conformance("T-3")
async def test_labels_are_lower_case_trimmed_and_unique(desk: Desk) -> None:
    found = await one(desk, desk.put(1, labels=["Bug", " bug ", "  ", "Good First Issue"]))
    assert [label for label in found.labels if not label.endswith("todo")] == ["bug", "good first issue"]


@pytest.mark.needs("labels")
async def test_more_labels_than_a_page_shows_are_all_there(desk: Desk) -> None:
    wanted = [f"label-{number:02}" for number in range(25)]
    assert set(wanted) <= set((await one(desk, desk.put(1, labels=wanted))).labels)


@pytest.mark.needs("priority")
@pytest.mark.conformance("T-4")
@pytest.mark.parametrize(
    ("given", "expected"), [(0, None), (1, 1), (2.0, 2), (2.5, None), ("high", None), (True, None)]
)
async def test_priorities_are_whole_numbers_or_null(desk: Desk, given: Any, expected: int | None) -> None:
    assert (await one(desk, desk.put(1, priority=given))).priority == expected


@pytest.mark.needs("timestamps")
@pytest.mark.conformance("T-4")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.678Z", datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)),
        ("yesterday", None),
        ("2026-13-40T00:00:00Z", None),
        (7, None),
        ({}, None),
    ],
)
async def test_times_are_rfc_3339_or_null(desk: Desk, given: Any, expected: datetime | None) -> None:
    assert (await one(desk, desk.put(1, created_at=given))).created_at == expected


@pytest.mark.conformance("T-4")
async def test_what_is_absent_is_null(desk: Desk) -> None:
    issue = await one(desk, desk.put(1))
    assert (issue.description, issue.priority, issue.assignee_id) == (None, None, None)
    assert issue.blocked_by == ()
    assert issue.dispatchable


async def test_fields_nobody_knows_are_ignored(desk: Desk) -> None:
    assert (await one(desk, desk.put(1, extra={"newField": {"deep": [1]}}))).title == "Title 1"


async def test_a_title_without_end_is_shortened(desk: Desk) -> None:
    assert len((await one(desk, desk.put(1, title="x" * 1_000_000))).title) <= 1_000


async def test_a_record_that_is_no_map_is_malformed(desk: Desk) -> None:
    desk.vendor.fail_next(Fault.WRONG_TYPE)
    with pytest.raises(TrackerError):
        await listed(desk)


# --- what holds an issue back ---


@pytest.mark.needs("hold_back")
@pytest.mark.conformance("T-8")
async def test_what_may_not_be_dispatched_is_listed_with_the_reason(desk: Desk) -> None:
    held, free = desk.hold_back(1), desk.put(2)
    found = {issue.id: issue for issue in await listed(desk)}
    assert found[free].dispatchable
    assert not found[held].dispatchable
    assert found[held].not_dispatchable_reason


@pytest.mark.needs("blockers")
async def test_blockers_are_told_and_cost_nothing_where_there_are_none(desk: Desk) -> None:
    for number in range(1, 11):
        desk.put(number)
    await listed(desk)
    without = len(desk.vendor.requests)
    assert without <= 4
    desk.block(1, by=2)
    issue = {each.id: each for each in await desk.another().fetch_issues_by_states([desk.todo])}[desk.put(1)]
    (blocker,) = issue.blocked_by
    assert blocker.id == desk.put(2)
    assert blocker.state in {desk.todo, "open"}

"""New issues (`schedules`, `symphony issue new`): once, in their state, found again by their mark."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from contract.desk import Desk
from contract.vendor import Fault
from symphony.domain import Category, Issue, normalise_state
from symphony.trackers.base import IssueToCreate, TrackerError, creation_problem
from symphony.trackers.remote import RemoteTracker

pytestmark = pytest.mark.asyncio

LONG_AGO = datetime(2023, 1, 1, tzinfo=UTC)
KEY, OTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2


def wanted(desk: Desk) -> IssueToCreate:
    return IssueToCreate(title="Look for updates", body="First *this*.\n\nThen `that`.", state=desk.doing)


async def create(desk: Desk, key: str = KEY, tracker: RemoteTracker | None = None) -> Issue:
    return await (tracker or desk.tracker).create_issue(wanted(desk), key=key, since=LONG_AGO)


@pytest.mark.needs("creates")
async def test_a_new_issue_is_created_in_its_state_and_listed(desk: Desk) -> None:
    issue = await create(desk)
    assert issue.title == "Look for updates"
    assert normalise_state(issue.state) == normalise_state(desk.doing)
    assert "Then `that`." in (issue.description or "").replace("\u200b", "")
    assert issue.id in {each.id for each in await desk.tracker.fetch_issues_by_states([desk.doing])}
    assert desk.tracker.creation_problem() is None


@pytest.mark.needs("creates")
async def test_a_repeated_create_finds_the_issue_and_another_key_is_another_issue(desk: Desk) -> None:
    first = await create(desk)
    written = len(desk.vendor.writes())
    again = await create(desk, tracker=desk.another())
    assert (again.id, len(desk.vendor.writes())) == (first.id, written)
    assert (await create(desk, OTHER)).id != first.id
    assert len(desk.created) == 2


@pytest.mark.needs("creates")
async def test_a_create_that_was_done_and_not_answered_makes_one_issue(desk: Desk) -> None:
    desk.vendor.fail_next(Fault.LOST, when="Look for updates")
    with pytest.raises(TrackerError) as caught:
        await create(desk)
    assert caught.value.failure.category is Category.TRACKER_REQUEST
    assert len(desk.created) == 1
    issue = await create(desk, tracker=desk.another())
    assert normalise_state(issue.state) == normalise_state(desk.doing), "what was left is made up for"
    assert len(desk.created) == 1


@pytest.mark.needs("creates", "move")
async def test_an_issue_that_people_moved_stays_where_they_put_it(desk: Desk) -> None:
    issue = await create(desk)
    desk.vendor.ticks += 60  # seconds
    await desk.tracker.move_issue(issue.id, desk.done)
    again = await create(desk, tracker=desk.another())
    assert (again.id, normalise_state(again.state)) == (issue.id, normalise_state(desk.done))


@pytest.mark.needs("creates", "knows_states")  # Jira tells which states there are only of an issue
async def test_an_unknown_state_creates_nothing(desk: Desk) -> None:
    new = replace(wanted(desk), state="Nowhere")
    with pytest.raises(TrackerError):
        await desk.tracker.create_issue(new, key=KEY, since=LONG_AGO)
    assert desk.created == [] or "project" in str(desk.provider().get("states"))


@pytest.mark.needs("creates", "labels")
async def test_labels_are_set(desk: Desk) -> None:
    label = "chore" if desk.kind != "forgejo" else "status/backlog"
    new = replace(wanted(desk), labels=("chore",))
    if desk.kind in {"forgejo", "gitea"}:
        with pytest.raises(TrackerError):
            await desk.tracker.create_issue(new, key=KEY, since=LONG_AGO)
        return
    issue = await desk.tracker.create_issue(new, key=KEY, since=LONG_AGO)
    assert label in issue.labels


async def test_a_tracker_that_cannot_create_says_so(desk: Desk) -> None:
    problem = creation_problem(desk.tracker, desk.kind)
    assert (problem is None) is ("creates" in desk.can)
    assert problem is None or problem.category is Category.INVALID_TRACKER_CONFIG

import json
from typing import Any

import pytest

from contract.redmine import OTHER_KEY, SECRET, RedmineDesk
from contract.vendor import Given
from symphony.domain import Category, Issue, ToolResult
from symphony.trackers.base import TrackerConfigError, TrackerError
from symphony.trackers.redmine import Related, comments_of, issue_of, ranks_of

pytestmark = pytest.mark.asyncio


@pytest.fixture
def desk() -> RedmineDesk:
    return RedmineDesk()


async def one(desk: RedmineDesk, issue_id: str) -> Issue:
    (issue,) = await desk.tracker.fetch_issues_by_ids([issue_id])
    return issue


async def call(
    desk: RedmineDesk, method: str, path: str, *, scope: str = "token", query: Any = None, body: Any = None
) -> ToolResult:
    arguments = {"method": method, "path": path, "query": query, "body": body}
    desk.put(1)
    return await desk.another(scope=scope).execute_agent_tool(
        "redmine_api", arguments, issue=await one(desk, "1")
    )


# --- records ---


@pytest.mark.conformance("T-4")
async def test_priorities_are_ranked_from_the_most_urgent_on(desk: RedmineDesk) -> None:
    issues = [await one(desk, desk.put(number, priority=number)) for number in range(1, 6)]
    assert [issue.priority for issue in issues] == [5, 4, 3, 2, 1]
    asked = [each.path for each in desk.vendor.requests]
    assert asked.count("/enumerations/issue_priorities.json") == 1


async def test_priorities_that_are_not_used_any_more_count_for_nothing() -> None:
    known = [{"id": 1}, {"id": 2, "active": True}, {"id": 3, "active": False}, {"id": 4}, {"name": "odd"}]
    assert ranks_of(known) == {4: 1, 3: 2, 2: 2, 1: 3}


async def test_what_the_record_names_is_kept(desk: RedmineDesk) -> None:
    extra = {
        "assigned_to": {"id": 9, "name": "Ann"},
        "category": {"id": 3, "name": " Front End "},
        "fixed_version": {"id": 4, "name": "1.0"},
        "parent": {"id": 77},
    }
    issue = await one(desk, desk.put(1, extra=extra))
    assert issue.identifier == "RM-1"
    assert issue.url == f"{desk.vendor.base}/issues/1"
    assert issue.assignee_id == "9"
    assert issue.labels == ("bug", "front end")
    assert issue.native_ref is not None
    assert (issue.native_ref["fixed_version_id"], issue.native_ref["parent_id"]) == (4, 77)


async def test_a_blocker_that_cannot_be_seen_holds_back_and_one_that_is_closed_does_not(
    desk: RedmineDesk,
) -> None:
    desk.put(1)
    desk.put(2, state="Rejected")
    desk.block(1, by=2)
    issue = await one(desk, "1")
    assert issue.dispatchable, "Redmine has closed it, whether or not that state is terminal here"
    desk.block(1, by=3)
    issue = await one(desk, "1")
    assert issue.not_dispatchable_reason == "it is blocked by RM-3"
    assert [(each.identifier, each.state) for each in issue.blocked_by] == [
        ("RM-2", "Rejected"),
        ("RM-3", None),
    ]


async def test_a_history_of_another_shape_holds_no_comments() -> None:
    odd = {
        "journals": [
            7,
            {"id": 1, "notes": None},
            {"notes": "no id"},
            {"id": 2, "notes": "x", "user": {"id": 5}},
        ]
    }
    (comment,) = comments_of(odd, me="5")
    assert (comment.id, comment.mine) == ("2", True)


async def test_a_record_without_a_status_is_malformed(desk: RedmineDesk) -> None:
    config: Any = desk.configure()
    with pytest.raises(Exception, match="has no status"):
        issue_of({"id": 1, "subject": "x"}, config, Related())


# --- reads ---


async def test_a_state_that_was_renamed_is_a_failure_with_the_states_there_are(desk: RedmineDesk) -> None:
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_states(["New", "Doing"])
    assert caught.value.failure.category is Category.TRACKER_STATUS
    assert "Feedback" in str(caught.value.failure.hint)


async def test_who_became_nobody_does_not_take_hidden_issues_for_gone(desk: RedmineDesk) -> None:
    desk.put(1)
    desk.vendor.fail_next(Given(status=401), when="/users/current.json")
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_ids(["1", "2"])
    assert caught.value.failure.status == 401


@pytest.mark.parametrize(
    ("when", "body"),
    [
        ("/users/current.json", {"user": {}}),
        ("/issue_statuses.json", {}),
        ("/issues.json", {"issues": []}),
        ("/issues.json", {"issues": {}, "total_count": 1, "offset": 0}),
    ],
)
async def test_answers_of_another_shape_are_named(desk: RedmineDesk, when: str, body: Any) -> None:
    desk.vendor.fail_next(Given(body=body), when=when)
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_states(["New"])
    assert caught.value.failure.category is Category.TRACKER_RESPONSE


async def test_subprojects_are_in_scope_where_that_is_wanted(desk: RedmineDesk) -> None:
    tracker = desk.another(subprojects=True)
    with pytest.raises(AssertionError):  # the service in memory insists on leaving them out
        await tracker.fetch_issues_by_states(["New"])
    assert desk.vendor.requests[-1].value("subproject_id") == ""


# --- writes ---


async def test_a_note_that_is_taken_and_not_kept_is_a_failure(desk: RedmineDesk) -> None:
    desk.put(1)
    desk.vendor.notes_are_dropped = True
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.put_comment("1", "hello", key="k", comment_id=None)
    assert "add notes" in str(caught.value.failure.hint)


async def test_an_issue_without_a_history_is_no_issue_without_comments(desk: RedmineDesk) -> None:
    desk.put(1)
    desk.vendor.fail_next(Given(body={"issue": {"id": 1}}), when="journals")
    with pytest.raises(TrackerError):
        await desk.tracker.list_comments("1")
    with pytest.raises(TrackerError):
        await desk.tracker.list_comments("../users/1")


async def test_a_move_that_was_not_made_says_which_would_be(desk: RedmineDesk) -> None:
    desk.put(1)
    desk.forbid_moves()
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue("1", "Closed")
    assert str(caught.value.failure.hint).endswith(": New, Feedback")
    desk.vendor.fail_next(Given(body={"issue": {}}), when="allowed_statuses")
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue("1", "Closed")
    assert "rules" in str(caught.value.failure.hint)


# --- the raw tool ---


async def test_no_key_of_anybody_is_shown_to_a_model(desk: RedmineDesk) -> None:
    own = await call(desk, "GET", "/users/current.json")
    other = await call(desk, "GET", "/users/7.json")
    assert json.loads(own.text)["body"]["user"]["login"] == "symphony"
    assert SECRET not in own.text
    assert json.loads(other.text)["body"]["user"]["id"] == 7
    assert OTHER_KEY not in other.text


@pytest.mark.parametrize(
    ("scope", "method", "path"),
    [
        ("issue", "GET", "/issues/1.json"),
        ("issue", "PUT", "/issues/1.json"),
        ("issue", "GET", "/issue_statuses.json"),
        ("issue", "GET", "/enumerations/issue_priorities.json"),
        ("project", "GET", "/projects/billing/issues.json"),
        ("project", "GET", "/projects/billing.json"),
        ("project", "GET", "/issues/2.json"),
        ("token", "GET", "/issues/3.json"),
    ],
)
async def test_what_is_in_scope_is_reached(desk: RedmineDesk, scope: str, method: str, path: str) -> None:
    desk.put(2)
    desk.put_out_of_scope(3)
    query = {"status_id": "*", "subproject_id": "!*"} if path.endswith("/issues.json") else None
    body = {"issue": {"status_id": 2}} if method == "PUT" else None
    result = await call(desk, method, path, scope=scope, query=query, body=body)
    assert result.success, result.text


@pytest.mark.parametrize(
    ("scope", "method", "path", "query", "body"),
    [
        ("issue", "GET", "/issues/2.json", None, None),
        ("issue", "GET", "/issues.json", None, None),
        ("issue", "GET", "/projects/billing.json", None, None),
        ("issue", "POST", "/issue_statuses.json", None, {}),
        ("issue", "PUT", "/issues/1.json", None, {"issue": {"project_id": 2}}),
        ("issue", "PUT", "/issues/1.json", {"issue[project_id]": 2}, None),
        ("issue", "PUT", "/issues/1.json?issue[project_id]=2", None, None),
        ("project", "GET", "/issues/3.json", None, None),
        ("project", "GET", "/issues/3/relations.json", None, None),
        ("project", "GET", "/issues.json", {"project_id": "other"}, None),
        ("project", "GET", "/projects/other/issues.json", None, None),
        ("project", "GET", "/users/7.json", None, None),
        ("project", "PUT", "/journals/1.json", None, {}),
        ("token", "GET", "/issues/1.xml", None, None),
        ("token", "GET", "/issues/1", None, None),
    ],
)
async def test_what_is_beyond_is_not(
    desk: RedmineDesk, scope: str, method: str, path: str, query: Any, body: Any
) -> None:
    desk.put(2)
    desk.put_out_of_scope(3)
    result = await call(desk, method, path, scope=scope, query=query, body=body)
    assert not result.success
    assert all(asked.path != path and asked.method == "GET" for asked in desk.vendor.requests)


# --- settings ---


async def test_the_address_the_project_and_the_key_may_come_from_variables(desk: RedmineDesk) -> None:
    environment = {
        "REDMINE_URL": "https://pm.example.test/",
        "REDMINE_PROJECT": "web",
        "REDMINE_API_KEY": "k" * 40,
    }
    settings = desk.settings().model_copy(update={"provider": {}})
    config: Any = desk.configure(settings, environment=environment)
    assert (config.access.base, config.project) == ("https://pm.example.test", "web")


@pytest.mark.parametrize("project", ["Billing", "a/b", ".."])
async def test_a_project_is_named_by_its_identifier(desk: RedmineDesk, project: str) -> None:
    with pytest.raises(TrackerConfigError, match="identifier"):
        desk.configure(desk.settings(project=project))

"""What is particular to GitLab; what all trackers share is in `contract`."""

from typing import Any

import pytest

from contract.gitlab import PROJECT, GitlabDesk, GitlabOwnStatesDesk
from contract.vendor import Given
from symphony.config import TrackerSettings
from symphony.domain import Category, Issue
from symphony.services.gitlab import without_quick_actions
from symphony.services.gitlab.issues import GitlabSettings
from symphony.trackers.base import TrackerConfigError, TrackerError


async def listed(desk: GitlabDesk, *states: str) -> dict[str, Issue]:
    found = await desk.tracker.fetch_issues_by_states(states or (desk.todo, desk.doing))
    return {issue.id: issue for issue in found}


async def moved(desk: GitlabDesk, state: str) -> tuple[str, list[str]]:
    """The state and the labels of issue 1 after a move."""
    await desk.tracker.move_issue("1", state)
    record = desk.vendor.records[1]
    return record.fields["state"], record.labels


@pytest.mark.asyncio
async def test_an_issue_is_what_the_profile_says() -> None:
    desk = GitlabDesk()
    assignee = {"id": 2, "username": "ann"}
    desk.put(7, description="text", extra={"assignees": [assignee], "assignee": assignee})
    (issue,) = (await listed(desk)).values()
    assert (issue.id, issue.identifier, issue.state, issue.assignee_id) == ("7", "GL-7", "Todo", "ann")
    assert issue.url == f"https://gitlab.example.test/{PROJECT}/-/issues/7"
    assert issue.native_ref == {
        "id": 10_007,
        "iid": 7,
        "project_id": 7,
        "project_path": PROJECT,
        "references": {"short": "#7", "relative": "#7", "full": f"{PROJECT}#7"},
    }


@pytest.mark.asyncio
async def test_labels_that_contradict_each_other_hold_an_issue_back() -> None:
    desk = GitlabDesk()
    desk.put(1, labels=["workflow::in-progress"])
    desk.put(2, labels=["workflow::Backlog"])
    found = await listed(desk)
    assert found["1"].not_dispatchable_reason == (
        "its labels contradict each other: `workflow::todo` and `workflow::in-progress`"
    )
    assert not found["2"].dispatchable, "a label of the prefix is a state, known or not"


@pytest.mark.asyncio
async def test_a_closed_issue_is_over_whatever_its_labels_say() -> None:
    desk = GitlabDesk()
    desk.put(1, extra={"state": "closed"})
    desk.put(2, state="Done", extra={"state": "closed"})
    assert await listed(desk) == {}
    assert sorted(await listed(desk, "closed", "Todo")) == ["1"]
    assert sorted(await listed(desk, "Done")) == ["2"]
    states = [issue.state for issue in await desk.tracker.fetch_issues_by_ids(["1", "2"])]
    assert states == ["closed", "Done"]


@pytest.mark.asyncio
async def test_opened_can_be_an_active_state_beside_labels() -> None:
    desk = GitlabDesk()
    desk.put(1)
    desk.vendor.records[1].labels.clear()
    desk.put(2)
    assert sorted(await listed(desk, "opened", "Todo")) == ["1", "2"]
    assert list(await listed(desk, "opened", "Done")) == ["1"]


@pytest.mark.asyncio
async def test_a_move_is_one_write_that_touches_no_other_labels() -> None:
    desk = GitlabDesk()
    desk.put(1, labels=["bug", "workflow::Blocked"])
    assert await moved(desk, "in progress") == ("opened", ["bug", "workflow::in-progress"])
    assert await moved(desk, "closed") == ("closed", ["bug"])
    assert await moved(desk, "Todo") == ("opened", ["bug", "workflow::todo"]), "it is opened again"
    assert await moved(desk, "Done") == ("opened", ["bug", "workflow::done"])
    assert await moved(desk, "opened") == ("opened", ["bug"])
    assert len(desk.vendor.writes()) == 5


@pytest.mark.asyncio
async def test_a_contradiction_is_ended_by_a_move() -> None:
    desk = GitlabDesk()
    desk.put(1, labels=["workflow::in-progress"])
    assert await moved(desk, "Todo") == ("opened", ["workflow::todo"])


@pytest.mark.asyncio
async def test_opened_and_closed_are_the_states_of_the_reference() -> None:
    desk = GitlabOwnStatesDesk()
    desk.put(1, labels=["workflow::done"])
    desk.put(2, state="closed")
    assert list(await listed(desk)) == ["1"]
    assert sorted(await listed(desk, "opened", "closed")) == ["1", "2"]
    assert await listed(desk, "Todo") == {}
    assert await moved(desk, "closed") == ("closed", ["workflow::done"])
    assert await moved(desk, "opened") == ("opened", ["workflow::done"])
    assert (await desk.tracker.account_info()).states == ("opened", "closed")


@pytest.mark.asyncio
async def test_unless_wanted_nothing_is_asked_of_blockers() -> None:
    desk = GitlabOwnStatesDesk()
    desk.hold_back(1)
    assert (await listed(desk))["1"].dispatchable
    assert len(desk.vendor.requests) == 1


@pytest.mark.asyncio
async def test_a_blocker_that_is_over_or_elsewhere_is_told() -> None:
    desk = GitlabDesk()
    desk.put(1)
    desk.put(2, state="Done")
    desk.put(3, extra={"project_id": 5, "references": {"full": "platform/other#3"}})
    desk.block(1, by=2)
    assert (await listed(desk))["1"].dispatchable
    desk.block(1, by=3)
    issue = (await listed(desk))["1"]
    assert issue.not_dispatchable_reason == "it is blocked by platform/other#3"
    assert [(blocker.id, blocker.state) for blocker in issue.blocked_by] == [
        ("2", "Done"),
        ("platform/other#3", "opened"),
    ]


@pytest.mark.asyncio
async def test_a_server_that_knows_nothing_of_blockers_says_so() -> None:
    desk = GitlabDesk()
    desk.put(1)
    error = {"message": "Field 'blocked' doesn't exist on type 'Issue'"}
    desk.vendor.fail_next(Given(body={"errors": [error]}), when="graphql")
    with pytest.raises(TrackerError) as caught:
        await listed(desk)
    assert "doesn't exist" in caught.value.failure.message
    desk.vendor.fail_next(Given(body={"data": {"project": None}}), when="graphql")
    with pytest.raises(TrackerError) as caught:
        await listed(desk)
    assert "wait_for_blockers" in str(caught.value.failure.hint)


@pytest.mark.asyncio
async def test_what_the_server_noted_itself_is_no_comment() -> None:
    desk = GitlabDesk()
    issue_id = desk.put(1)
    desk.vendor.write(1, "closed", "ann", system=True)
    desk.comment(1, "hello")
    assert [comment.body for comment in await desk.tracker.list_comments(issue_id)] == ["hello"]


@pytest.mark.asyncio
async def test_a_comment_is_never_obeyed() -> None:
    desk = GitlabDesk()
    issue_id = desk.put(1)
    body = "/close\n```\n/assign @ann\n```\n  /label ~bug\r/lock\n"
    name = await desk.tracker.put_comment(issue_id, body, key="k", comment_id=None)
    await desk.tracker.put_comment(issue_id, body, key="k", comment_id=name)
    assert desk.comments(1) == ["\\/close\n```\n /assign @ann\n```\n  \\/label ~bug\n\\/lock\n"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a / b\nhttps://x", "a / b\nhttps://x"),
        ("````\n```\n/close\n````\n/close", "````\n```\n /close\n````\n\\/close"),
        ("~~~\n```\n/close\n~~~ no end\n/close\n~~~~", "~~~\n```\n /close\n~~~ no end\n /close\n~~~~"),
        ("> /close", "> /close"),
        ("", ""),
    ],
)
def test_lines_that_begin_with_a_slash_are_disarmed(body: str, expected: str) -> None:
    assert without_quick_actions(body) == expected


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [{"id": "x"}, {"username": "ann"}, ["x"]])
async def test_an_account_without_a_name_is_a_failure(answer: Any) -> None:
    desk = GitlabDesk()
    desk.vendor.fail_next(Given(body=answer))
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.list_comments(desk.put(1))
    assert caught.value.failure.category is Category.TRACKER_RESPONSE


@pytest.mark.asyncio
async def test_an_answer_about_something_else_is_no_success() -> None:
    desk = GitlabDesk()
    issue_id, other = desk.put(1), desk.vendor.records[1].fields
    desk.vendor.fail_next(Given(status=201, body={"message": "202 Accepted"}))
    with pytest.raises(TrackerError):
        await desk.tracker.put_comment(issue_id, "x", key="k", comment_id=None)
    desk.vendor.fail_next(Given(body={**other, "iid": 9, "labels": []}))
    with pytest.raises(TrackerError):
        await desk.tracker.move_issue(issue_id, "Done")
    desk.vendor.fail_next(Given(body={**other, "state": "locked", "labels": []}))
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue(issue_id, "Done")
    assert "neither opened nor closed" in caught.value.failure.message


@pytest.mark.asyncio
async def test_what_is_no_number_is_asked_of_nobody() -> None:
    desk = GitlabDesk()
    for name in ("0", "x", "1/notes", "-1"):
        with pytest.raises(TrackerError):
            await desk.tracker.list_comments(name)
        with pytest.raises(TrackerError):
            await desk.tracker.move_issue(name, "Done")
    assert {asked.path for asked in desk.vendor.requests} == {"/user"}


@pytest.mark.asyncio
async def test_the_scope_of_the_tool_is_kept() -> None:
    desk = GitlabDesk()
    desk.put(1)
    (issue,) = (await listed(desk)).values()
    encoded = PROJECT.replace("/", "%2F")
    for scope, path, allowed in (
        ("project", f"/projects/{encoded}/issues/2", True),
        ("project", "/projects/7/labels", True),
        ("project", "/projects/40", False),
        ("project", f"/projects/{PROJECT}/issues/1", False),
        ("project", "/user", False),
        ("issue", f"/projects/{encoded}/issues/1/notes", True),
        ("issue", "/projects/7/issues/1", True),
        ("issue", "/projects/7/issues/12", False),
        ("issue", f"/projects/{encoded}/issues", False),
    ):
        call = {"method": "GET", "path": path}
        tracker = desk.another(scope=scope)
        asked = len(desk.vendor.requests)
        await tracker.execute_agent_tool("gitlab_api", call, issue=issue)
        assert (len(desk.vendor.requests) > asked) is allowed, path


@pytest.mark.parametrize(
    ("api_url", "graphql"),
    [
        ("https://gitlab.com/api/v4", "https://gitlab.com/api/graphql"),
        ("https://example.test/gitlab/api/v4/", "https://example.test/gitlab/api/graphql"),
    ],
)
def test_the_base_of_a_server_of_ones_own_is_kept(api_url: str, graphql: str) -> None:
    settings = TrackerSettings(
        kind="gitlab",
        provider={"api_url": api_url},
        active_states=("opened",),
        terminal_states=("closed",),
    )
    environment = {"GITLAB_PAT": "t-123456", "GITLAB_PROJECT_PATH": "a/b"}
    config = GitlabSettings.read(settings, environment)
    assert (config.graphql, config.path) == (graphql, "/projects/a%2Fb")
    assert config.access.base == api_url.rstrip("/")
    assert "t-123456" not in repr(config)


@pytest.mark.conformance("C-2")
@pytest.mark.parametrize(
    "provider",
    [
        {"project_path": "deployer"},
        {"project_path": "a/../b"},
        {"project_path": "a//b"},
        {"states": "labels"},
        {"states": {"source": "project"}},
        {"states": {"source": []}},
        {"states": {"source": "labels", "odd": 1}},
        {"states": {"source": "labels", "prefix": ""}},
        {"states": {"source": "labels", "labels": {"Todo": "a,b"}}},
        {"states": {"source": "issue"}},
        {"scope": "world"},
        {"wait_for_blockers": "yes"},
    ],
)
def test_settings_that_do_not_fit_are_refused(provider: dict[str, Any]) -> None:
    with pytest.raises(TrackerConfigError) as caught:
        GitlabDesk().another(**provider)
    assert all(problem.failure.hint for problem in caught.value.problems)

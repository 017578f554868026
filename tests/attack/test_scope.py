"""`tracker.provider.scope: issue` and `project` hold for what a body names as well as for the path.

What is not listed is refused before anything is asked of the service.
"""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import anyio
import pytest

from attack.conftest import Rounds
from contract.asana import PROJECT, gid_of
from contract.desks import DESKS
from contract.forgejo import OWNER as FORGEJO_OWNER
from contract.forgejo import REPO as FORGEJO_REPO
from contract.github import OWNER, REPO
from contract.gitlab import PROJECT as GITLAB_PROJECT
from symphony.config import TrackerSettings
from symphony.domain import ToolResult
from symphony.trackers.base import TrackerConfigError
from symphony.trackers.linear import LinearSettings

GITLAB = f"/projects/{GITLAB_PROJECT.replace('/', '%2F')}"
GITHUB, FORGEJO = f"/repos/{OWNER}/{REPO}", f"/repos/{FORGEJO_OWNER}/{FORGEJO_REPO}"
JIRA = "/rest/api/3"
TASK, OTHER_TASK = f"/tasks/{gid_of(1)}", f"/tasks/{gid_of(2)}"
TOOLS = {
    "github": "github_api",
    "gitlab": "gitlab_api",
    "forgejo": "forgejo_api",
    "asana": "asana_api",
    "jira": "jira_rest",
    "redmine": "redmine_api",
}

LEAVES: list[tuple[str, str, str, Any]] = [
    ("gitlab", "POST", f"{GITLAB}/issues/1/move", {"to_project_id": 999}),
    ("gitlab", "POST", f"{GITLAB}/issues/1/clone", {"to_project_id": 999}),
    ("gitlab", "POST", f"{GITLAB}/issues/1/links", {"target_project_id": 9, "target_issue_iid": 1}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1/reorder", {"move_after_id": 9}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"epic_id": 9}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1?epic_id=9", {"title": "x"}),
    ("gitlab", "PUT", f"{GITLAB}/transfer", {"namespace": "elsewhere"}),
    ("gitlab", "PUT", GITLAB, {"visibility": "public"}),
    ("gitlab", "POST", f"{GITLAB}/fork", {}),
    ("gitlab", "POST", f"{GITLAB}/share", {"group_id": 1, "group_access": 40}),
    ("gitlab", "POST", f"{GITLAB}/merge_requests", {"title": "x", "target_project_id": 9}),
    ("gitlab", "POST", "/graphql", {"query": "mutation { x }"}),
    ("asana", "POST", f"{TASK}/addProject", {"data": {"project": "9"}}),
    ("asana", "POST", f"{TASK}/addDependents", {"data": {"dependents": ["9"]}}),
    ("asana", "POST", f"{TASK}/addDependencies", {"data": {"dependencies": ["9"]}}),
    ("asana", "POST", f"{TASK}/addFollowers", {"data": {"followers": ["9"]}}),
    ("asana", "POST", f"{TASK}/setParent", {"data": {"parent": "9"}}),
    ("asana", "POST", f"{TASK}/duplicate", {"data": {"name": "x"}}),
    ("asana", "PUT", TASK, {"data": {"projects": ["9"]}}),
    ("asana", "PUT", TASK, {"data": {"name": "x"}, "options": {"method": "DELETE"}}),
    ("asana", "GET", f"{TASK}?opt_method=DELETE", None),
    ("asana", "POST", f"/projects/{PROJECT}/addMembers", {"data": {"members": "9"}}),
    ("asana", "PUT", f"/projects/{PROJECT}", {"data": {"team": "9"}}),
    ("asana", "POST", "/sections/503/addTask", {"data": {"task": gid_of(2)}}),
    ("forgejo", "POST", f"{FORGEJO}/issues/1/blocks", {"owner": "o", "repo": "r", "index": 2}),
    ("forgejo", "POST", f"{FORGEJO}/issues/1/dependencies", {"owner": "o", "repo": "r", "index": 2}),
    ("forgejo", "POST", f"{FORGEJO}/transfer", {"new_owner": "x"}),
    ("github", "POST", f"{GITHUB}/issues/1/sub_issues", {"sub_issue_id": 9, "replace_parent": True}),
    ("github", "POST", f"{GITHUB}/issues/1/dependencies/blocked_by", {"issue_id": 9}),
    ("github", "POST", f"{GITHUB}/transfer", {"new_owner": "x"}),
    ("github", "POST", f"{GITHUB}/dispatches", {"event_type": "x"}),
    ("github", "PUT", f"{GITHUB}/contents/x", {"message": "x", "content": ""}),
    ("github", "POST", "/graphql", {"query": "mutation { transferIssue(input: {}) { x } }"}),
    ("github", "PATCH", f"{GITHUB}/issues/1", ["title"]),
    ("jira", "POST", f"{JIRA}/issueLink", {"type": {"name": "Blocks"}}),
    ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"fields": {"project": {"key": "OTHER"}}}),
    ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"fields": {"parent": {"key": "OTHER-1"}}}),
    ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"update": {"issuelinks": [{"add": {}}]}}),
    ("jira", "POST", f"{JIRA}/issue/PAY-1/transitions", {"transition": {"id": "1"}, "fields": {"parent": 1}}),
    ("jira", "POST", f"{JIRA}/issue/PAY-1/remotelink", {"object": {}}),
    ("jira", "PUT", f"{JIRA}/project/PAY", {"key": "OTHER"}),
    (
        "redmine",
        "POST",
        "/issues/1/relations.json",
        {"relation": {"issue_to_id": 8, "relation_type": "blocks"}},
    ),
    ("redmine", "PUT", "/issues/1.json", {"issue": {"project_id": 2}}),
    ("redmine", "PUT", "/issues/1.json", {"issue": {"parent_issue_id": 8}}),
    ("redmine", "PUT", "/issues/1.json", {"issue": {"subject": "x"}, "time_entry": {"hours": 9}}),
    ("redmine", "POST", "/issues/1/watchers.json", {"user_id": 9}),
    ("redmine", "PUT", "/projects/billing.json", {"project": {"parent_id": 2}}),
    ("redmine", "DELETE", "/projects/billing.json", None),
]

STAYS: list[tuple[str, str, str, Any]] = [
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"title": "New", "add_labels": "x", "state_event": "close"}),
    ("gitlab", "POST", f"{GITLAB}/issues/1/notes", {"body": "Done"}),
    ("asana", "PUT", TASK, {"data": {"name": "New", "completed": True}}),
    ("asana", "POST", f"{TASK}/stories", {"data": {"text": "Done"}}),
    ("asana", "POST", "/sections/503/addTask", {"data": {"task": gid_of(1)}}),
    ("forgejo", "PATCH", f"{FORGEJO}/issues/1", {"title": "New", "state": "closed"}),
    ("forgejo", "POST", f"{FORGEJO}/issues/1/comments", {"body": "Done"}),
    ("github", "PATCH", f"{GITHUB}/issues/1", {"title": "New", "state": "closed"}),
    ("github", "POST", f"{GITHUB}/issues/1/comments", {"body": "Done"}),
    ("github", "DELETE", f"{GITHUB}/issues/1/labels/area%2Fx", None),
    ("github", "GET", f"{GITHUB}/issues/1/timeline", None),
    (
        "jira",
        "PUT",
        f"{JIRA}/issue/PAY-1",
        {"fields": {"summary": "New"}, "update": {"labels": [{"add": "x"}]}},
    ),
    ("jira", "POST", f"{JIRA}/issue/10001/comment", {"body": {"type": "doc", "version": 1, "content": []}}),
    ("redmine", "PUT", "/issues/1.json", {"issue": {"subject": "New", "notes": "Done"}}),
]


def called(
    kind: str, scope: str, method: str, path: str, body: Any, query: Mapping[str, Any] | None = None
) -> tuple[ToolResult, list[tuple[str, str, Any]]]:
    """What the session of issue 1 is told, and the writes and paths that the service was asked for."""

    async def ask() -> tuple[ToolResult, list[tuple[str, str, Any]]]:
        desk = DESKS[kind]()
        desk.put(1)
        desk.put(2)
        listed = await desk.tracker.fetch_issues_by_states([desk.todo])
        issue = next(one for one in listed if one.identifier.endswith("1"))
        asked = len(desk.vendor.requests)
        arguments = {"method": method, "path": path, "body": body, "query": query}
        result = await desk.another(scope=scope).execute_agent_tool(TOOLS[kind], arguments, issue=issue)
        return result, [(one.method, one.path, one.body) for one in desk.vendor.requests[asked:]]

    return anyio.run(ask)


def refused(result: ToolResult) -> bool:
    error = json.loads(result.text).get("error", {})
    return not result.success and error.get("setting") == "tracker.provider.scope"


@pytest.mark.parametrize("scope", ["issue", "project"])
@pytest.mark.parametrize(("kind", "method", "path", "body"), LEAVES)
def test_what_names_something_elsewhere_is_never_sent(
    scope: str, kind: str, method: str, path: str, body: Any
) -> None:
    result, asked = called(kind, scope, method, path, body)
    assert refused(result), result.text
    assert json.loads(result.text)["error"]["category"] == "out_of_scope"
    assert all(sent == "GET" and at != path for sent, at, _ in asked)


@pytest.mark.parametrize("scope", ["issue", "project"])
@pytest.mark.parametrize(("kind", "method", "path", "body"), STAYS)
def test_the_work_on_the_own_issue_is_let_through(
    scope: str, kind: str, method: str, path: str, body: Any
) -> None:
    result, asked = called(kind, scope, method, path, body)
    assert not refused(result), result.text
    assert method in {sent for sent, _, _ in asked}


@pytest.mark.parametrize("scope", ["issue", "project", "token"])
def test_a_quick_action_in_a_text_moves_nothing(scope: str) -> None:
    text = "Done.\n/move other/project\n/clone other/project"
    for path, key in ((f"{GITLAB}/issues/1/notes", "body"), (f"{GITLAB}/issues/1", "description")):
        method = "POST" if key == "body" else "PUT"
        _, asked = called("gitlab", scope, method, path, {key: text})
        sent = asked[-1][2][key]
        assert "Done." in sent
        assert not any(line.lstrip().startswith("/") for line in sent.splitlines())


@pytest.mark.parametrize("scope", ["issue", "project"])
def test_graphql_that_cannot_be_narrowed_is_never_said_to_be(scope: str) -> None:
    provider = {"api_key": "lin_api_0123456789", "project_slug": "p-1", "scope": scope}
    with pytest.raises(TrackerConfigError):
        LinearSettings.read(TrackerSettings(kind="linear", provider=provider), {})


@pytest.mark.parametrize("kind", TOOLS)
def test_no_write_names_a_key_or_a_path_that_is_not_listed(kind: str, rounds: Rounds) -> None:
    """Random paths below what is in scope and random keys: all that is sent is on the list."""
    roots = {
        "github": (f"{GITHUB}/issues/1", GITHUB),
        "forgejo": (f"{FORGEJO}/issues/1", FORGEJO),
        "gitlab": (f"{GITLAB}/issues/1", GITLAB),
        "asana": (TASK, f"/projects/{PROJECT}"),
        "jira": (f"{JIRA}/issue/PAY-1", f"{JIRA}/project/PAY"),
        "redmine": ("/issues/1", "/projects/billing"),
    }[kind]
    names = ("move", "clone", "links", "transfer", "lock", "comments", "labels", "notes", "2", "%6dove", "..")
    keys = ("project_id", "to_project_id", "parent", "issue_id", "sub_issue_id", "replace_parent", "projects")

    def body(random: Random) -> Any:
        inner = {random.choice(keys): random.choice([9, "9", [9], {"id": 9}])}
        return random.choice([inner, {"data": inner}, {"issue": inner}, {"fields": inner}, {"update": inner}])

    for random in rounds(12):
        path = "/".join([random.choice(roots), *(random.choice(names) for _ in range(random.randrange(3)))])
        path += ".json" if kind == "redmine" else ""
        method = random.choice(["POST", "PUT", "DELETE"])
        query = random.choice([None, {random.choice(keys): 9}])
        result, asked = called(kind, random.choice(["issue", "project"]), method, path, body(random), query)
        assert not result.success
        assert all(sent == "GET" or at.endswith(("/search", "/bulkfetch")) for sent, at, _ in asked), path

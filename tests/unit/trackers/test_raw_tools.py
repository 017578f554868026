"""The raw tools: which calls are sound, what a scope lets through, and how comments of agents are marked."""

import json
import re
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.asana import AsanaDesk
from contract.jira import JiraDesk
from symphony.domain import ToolResult
from symphony.http import HttpResponse, Request, run_flow
from symphony.trackers.asana import from_story
from symphony.trackers.comments import AGENT_MARK, is_marked
from symphony.trackers.jira import PROPERTY
from symphony.trackers.raw_tools import (
    RawToolScope,
    Reach,
    RestCall,
    graphql_call,
    mark_body,
    rest_call,
    rest_flow,
    scope_problem,
    writes_comment,
)

METHODS = ("GET", "POST")
ASANA, JIRA = AsanaDesk().tracker.flows, JiraDesk().tracker.flows
WRITES = re.compile(r"\bcomment(?:Create|Update)\b")


def call(path: str) -> RestCall | str:
    return rest_call({"method": "get", "path": path}, METHODS)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (None, "object"),
        ({"method": "GET", "path": "/x", "odd": 1}, "'odd'"),
        ({"method": "DELETE", "path": "/x"}, "`method`"),
        ({"path": "/x"}, "`method`"),
        ({"method": "GET"}, "`path`"),
        ({"method": "GET", "path": "x"}, "`path`"),
        ({"method": "GET", "path": "/" + "x" * 3_000}, "`path`"),
        ({"method": "GET", "path": "/x", "query": [1]}, "`query`"),
    ],
)
def test_arguments_that_do_not_fit_are_told(arguments: Any, problem: str) -> None:
    found = rest_call(arguments, METHODS)
    assert isinstance(found, str)
    assert problem in found


@pytest.mark.parametrize(
    "path",
    [
        "/a/../b",
        "/a/%2e%2e/b",
        "/a/%252e%252e/b",
        "/a/./b",
        "//elsewhere.test/x",
        "/a//b",
        "/x://y",
        "/a b",
        "/a\r\nHost: b",
        "/a\0b",
        "/a%0d%0ab",
        "/a%00",
        "/a\\b",
        "/a%5cb",
        "/a#b",
        "/a%2f..%2fb",
        "/..",
        "/a?x=/../b",
    ],
)
def test_paths_that_climb_or_smuggle_are_refused(path: str) -> None:
    assert isinstance(call(path), str)


@pytest.mark.parametrize(
    "path", ["/repos/o/r/issues/1", "/x?per_page=5", "/search/a%20b", "/a%2Fb", "/v1.2/.x"]
)
def test_honest_paths_pass(path: str) -> None:
    assert isinstance(call(path), RestCall), path


def test_a_query_becomes_pairs_of_text() -> None:
    query = {"a": 1, "b": True, "c": ["x", 2], "d": None}
    found = rest_call({"method": "GET", "path": "/x", "query": query}, METHODS)
    assert isinstance(found, RestCall)
    assert found.query == (("a", "1"), ("b", "true"), ("c", "x"), ("c", "2"))


def test_a_scope_keeps_the_tool_below_its_paths() -> None:
    reach = Reach(reads=(("repos", "o", "r", "issues", "12"),))

    def objection(path: str) -> str | None:
        found = call(path)
        assert isinstance(found, RestCall)
        return scope_problem(found, reach, RawToolScope.ISSUE)

    for inside in ("/repos/o/r/issues/12", "/repos/O/R/issues/12/comments", "/repos/o/r/issues/%31%32?x=1"):
        assert objection(inside) is None, inside
    for outside in (
        "/repos/o/r/issues/123",
        "/repos/o/r/issues",
        "/user",
        "/repos/o/r%2Fissues/12",
        "/graphql",
    ):
        assert "scope: issue" in str(objection(outside)), outside


@given(st.text(max_size=40))
def test_no_path_leaves_its_scope(rest: str) -> None:
    found = rest_call({"method": "GET", "path": f"/repos/o/r/{rest}"}, METHODS)
    if isinstance(found, RestCall):
        assert found.steps[:3] == ("repos", "o", "r")
        assert ".." not in found.steps


def test_a_refusal_of_the_service_is_an_answer() -> None:
    found = call("/x")
    assert isinstance(found, RestCall)

    async def reply(request: Request) -> HttpResponse:
        await anyio.lowlevel.checkpoint()
        assert {404, 422} <= request.accept
        assert not request.accept & {401, 429, 500}
        return HttpResponse(status=422, address="x", body={"message": "no"})

    async def ask() -> ToolResult:
        return await run_flow(rest_flow(found, "tool"), reply)

    result = anyio.run(ask)
    assert (result.success, json.loads(result.text)) == (False, {"status": 422, "body": {"message": "no"}})


def test_a_graphql_call_may_be_the_bare_query() -> None:
    assert graphql_call("query { viewer { id } }", WRITES) == ("query { viewer { id } }", {})
    assert graphql_call({"query": "x", "variables": {"a": 1}}, WRITES) == ("x", {"a": 1})
    for odd in (None, {"query": " "}, {"query": "x", "variables": [1]}, {"query": "x", "odd": 1}):
        assert isinstance(graphql_call(odd, WRITES), str)


# --- which calls write a comment ---


def sent(method: str, path: str, body: Any = None) -> RestCall:
    call = rest_call({"method": method, "path": path, "body": body}, ("GET", "POST", "PUT", "DELETE"))
    assert isinstance(call, RestCall)
    return call


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/repos/o/r/issues/5/comments", {"body": "x"}),
        ("POST", "/rest/api/3/issue/X-1/comment", {}),
        ("POST", "/projects/1/issues/5/notes?x=1", {}),
        ("POST", "/tasks/7/stories", {}),
        ("PUT", "/issues/5.json", {"issue": {"notes": "Done."}}),
    ],
)
def test_a_call_that_writes_a_comment_is_known(method: str, path: str, body: Any) -> None:
    assert sent(method, path, body).writes_comment


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/repos/o/r/issues/5/comments", None),
        ("DELETE", "/repos/o/r/issues/comments/9", None),
        ("POST", "/repos/o/r/issues/5/labels", {"labels": ["x"]}),
        ("PUT", "/issues/5.json", {"issue": {"status_id": 3}}),
        ("PUT", "/issues/5.json", ["issue"]),
    ],
)
def test_any_other_call_is_not(method: str, path: str, body: Any) -> None:
    assert not sent(method, path, body).writes_comment


def test_a_mutation_that_writes_a_comment_is_known() -> None:
    assert writes_comment("mutation($i: X!) { commentCreate(input: $i) { success } }")
    assert not writes_comment("query { issue(id: 1) { comments { nodes { id } } } }")


# --- what agents write is marked ---


def made(path: str, body: Any = None, **changes: Any) -> RestCall:
    fields: dict[str, Any] = {"method": "POST", "query": (), **changes}
    return RestCall(path=path, body=body, **fields)


def queried(query: str, **variables: Any) -> tuple[str, Any]:
    found = graphql_call({"query": query, "variables": variables}, WRITES)
    assert not isinstance(found, str), found
    return found


def test_the_text_of_a_comment_is_marked_once() -> None:
    once = mark_body(made("/c", {"body": "Blue", "more": 1}), "body")
    assert isinstance(once, RestCall)
    assert once.body == {"body": f"{AGENT_MARK}\nBlue", "more": 1}
    assert mark_body(once, "body") == once
    assert is_marked(once.body["body"])


@pytest.mark.parametrize("body", [None, [], {"body": 7}, {"other": "x"}])
def test_what_is_no_text_stays_as_it_is(body: Any) -> None:
    assert mark_body(made("/c", body), "body") == made("/c", body)


@pytest.mark.parametrize("told", [made("/c?body=Blue"), made("/c", query=(("body", "Blue"),))])
def test_a_text_beside_the_body_is_refused(told: RestCall) -> None:
    assert mark_body(told, "body") == "give the text of a comment as `body` in `body`"


@pytest.mark.parametrize(
    "query",
    [
        'mutation { commentCreate(input: {issueId: "1", body: "Blue"}) { success } }',
        'mutation { commentCreate(input: {issueId: "1", body: """Blue"""}) { success } }',
    ],
)
def test_a_text_in_the_query_is_marked(query: str) -> None:
    said, _ = queried(query)
    assert said.count(AGENT_MARK) == 1
    assert said.index(AGENT_MARK) < said.index("Blue")


def test_a_text_in_a_variable_is_marked() -> None:
    by_name = "mutation($b: String!) { commentCreate(input: {body: $b}) { success } }"
    assert queried(by_name, b="Blue", issueId="body")[1] == {"b": f"{AGENT_MARK}\nBlue", "issueId": "body"}
    whole = "mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success } }"
    assert queried(whole, input={"body": "Blue"})[1] == {"input": {"body": f"{AGENT_MARK}\nBlue"}}
    many = "mutation($all: [X!]!) { commentUpdate(all: $all) { success } }"
    assert queried(many, all=[{"body": "Blue"}])[1] == {"all": [{"body": f"{AGENT_MARK}\nBlue"}]}


def test_other_queries_stay_as_they_are() -> None:
    query = 'mutation { issueUpdate(id: "1", input: {body: "x"}) { success } }'
    assert queried(query, body="y") == (query, {"body": "y"})


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        ("mutation($i: X!) { commentCreate(input: $i) { success } }", {"i": {"bodyData": "{}"}}),
        ("mutation { commentCreate(input: {bodyData: $d, body: $b}) { success } }", {"b": "x"}),
        ("mutation { commentCreate(input: $i) { success } }", {}),
        ('mutation { a: commentCreate(input: {body: "x"}) { id } b: commentCreate(input: $i) { id } }', {}),
    ],
)
def test_a_comment_whose_text_is_not_seen_is_refused(query: str, variables: dict[str, Any]) -> None:
    assert (
        graphql_call({"query": query, "variables": variables}, WRITES)
        == "give the text of each comment as its `body`"
    )


def test_asana_keeps_the_mark_in_the_last_line_of_text_and_html() -> None:
    said = ASANA.mark_comment(
        made("/tasks/1/stories", {"data": {"text": "Blue", "html_text": "<body>Blue</body>"}})
    )
    assert isinstance(said, RestCall)
    assert said.body["data"] == {
        "text": "Blue\n\nsymphony:agent",
        "html_text": "<body>Blue\n\nsymphony:agent</body>",
    }
    assert from_story("Blue\n\nsymphony:agent") == f"{AGENT_MARK}\nBlue"
    for other in (made("/tasks/1", {"data": {"text": "x"}}), made("/tasks/1/stories", method="GET")):
        assert ASANA.mark_comment(other) == other


def test_jira_keeps_the_mark_beside_the_text_and_comments_come_by_a_call_of_their_own() -> None:
    stolen = {"key": PROPERTY, "value": {"marker": "<!-- symphony:blocked v1 -->"}}
    told = made("/rest/api/3/issue/1/comment", {"body": {}, "properties": [stolen, {"key": "k"}]})
    said = JIRA.mark_comment(told)
    assert isinstance(said, RestCall)
    mark = {"key": PROPERTY, "value": {"marker": AGENT_MARK}}
    assert said.body == {"body": {}, "properties": [{"key": "k"}, mark]}
    beside = made("/rest/api/3/issue/1/transitions", {"update": {"comment": [{"add": {}}]}})
    assert str(JIRA.mark_comment(beside)).startswith("write a comment with a separate call")
    for other in (
        made("/rest/api/3/issue/1", {"fields": {}}),
        made("/rest/api/3/issue/1/comment", method="GET"),
    ):
        assert JIRA.mark_comment(other) == other

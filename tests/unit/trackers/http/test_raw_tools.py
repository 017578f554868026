import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.trackers.http import Answer, Request, run_flow_with
from symphony.trackers.tools import Reach, RestCall, Scope, beyond, query_of, rest_call, rest_flow

METHODS = ("GET", "POST")


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
        return beyond(found, reach, scope=Scope.ISSUE)

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

    def reply(request: Request) -> Answer:
        assert {404, 422} <= request.accept
        assert not request.accept & {401, 429, 500}
        return Answer(status=422, address="x", body={"message": "no"})

    result = run_flow_with(rest_flow(found, "tool"), reply)
    assert (result.success, json.loads(result.text)) == (False, {"status": 422, "body": {"message": "no"}})


def test_a_graphql_call_may_be_the_bare_query() -> None:
    assert query_of("query { viewer { id } }") == ("query { viewer { id } }", {})
    assert query_of({"query": "x", "variables": {"a": 1}}) == ("x", {"a": 1})
    for odd in (None, {"query": " "}, {"query": "x", "variables": [1]}, {"query": "x", "odd": 1}):
        assert isinstance(query_of(odd), str)

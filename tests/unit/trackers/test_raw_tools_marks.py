"""What agents write by raw tools is marked as theirs, by REST and by GraphQL, or is not written."""

import re
from typing import Any

import pytest

from symphony.trackers import asana, jira
from symphony.trackers.comments import AGENT_MARK, is_marked
from symphony.trackers.tools import RestCall, marked, marked_query

WRITES = re.compile(r"\bcomment(?:Create|Update)\b")


def call(path: str, body: Any = None, **changes: Any) -> RestCall:
    fields: dict[str, Any] = {"method": "POST", "query": (), **changes}
    return RestCall(path=path, body=body, **fields)


def queried(query: str, **variables: Any) -> tuple[str, Any]:
    found = marked_query(query, variables, WRITES)
    assert not isinstance(found, str), found
    return found


def test_the_text_of_a_comment_is_marked_once() -> None:
    once = marked(call("/c", {"body": "Blue", "more": 1}), "body")
    assert isinstance(once, RestCall)
    assert once.body == {"body": f"{AGENT_MARK}\nBlue", "more": 1}
    assert marked(once, "body") == once
    assert is_marked(once.body["body"])


@pytest.mark.parametrize("body", [None, [], {"body": 7}, {"other": "x"}])
def test_what_is_no_text_stays_as_it_is(body: Any) -> None:
    assert marked(call("/c", body), "body") == call("/c", body)


@pytest.mark.parametrize("told", [call("/c?body=Blue"), call("/c", query=(("body", "Blue"),))])
def test_a_text_beside_the_body_is_refused(told: RestCall) -> None:
    assert marked(told, "body") == "give the text of a comment as `body` in `body`"


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
    assert marked_query(query, variables, WRITES) == "give the text of each comment as its `body`"


def test_asana_keeps_the_mark_in_the_last_line_of_text_and_html() -> None:
    said = asana.marked(
        call("/tasks/1/stories", {"data": {"text": "Blue", "html_text": "<body>Blue</body>"}})
    )
    assert said.body["data"] == {
        "text": "Blue\n\nsymphony:agent",
        "html_text": "<body>Blue\n\nsymphony:agent</body>",
    }
    assert asana.body_of("Blue\n\nsymphony:agent") == f"{AGENT_MARK}\nBlue"
    for other in (call("/tasks/1", {"data": {"text": "x"}}), call("/tasks/1/stories", method="GET")):
        assert asana.marked(other) == other


def test_jira_keeps_the_mark_beside_the_text_and_comments_come_by_a_call_of_their_own() -> None:
    stolen = {"key": jira.PROPERTY, "value": {"marker": "<!-- symphony:blocked v1 -->"}}
    told = call("/rest/api/3/issue/1/comment", {"body": {}, "properties": [stolen, {"key": "k"}]})
    said = jira.marked(told)
    assert isinstance(said, RestCall)
    mark = {"key": jira.PROPERTY, "value": {"marker": AGENT_MARK}}
    assert said.body == {"body": {}, "properties": [{"key": "k"}, mark]}
    beside = call("/rest/api/3/issue/1/transitions", {"update": {"comment": [{"add": {}}]}})
    assert str(jira.marked(beside)).startswith("write a comment by a call of its own")
    for other in (
        call("/rest/api/3/issue/1", {"fields": {}}),
        call("/rest/api/3/issue/1/comment", method="GET"),
    ):
        assert jira.marked(other) == other

"""Which calls of the raw tools write a comment, so that the daemon need not."""

from typing import Any

import pytest

from symphony.trackers.tools import RestCall, rest_call, writes_comment


def _call(method: str, path: str, body: Any = None) -> RestCall:
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
    assert _call(method, path, body).comments


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
    assert not _call(method, path, body).comments


def test_a_mutation_that_writes_a_comment_is_known() -> None:
    assert writes_comment("mutation($i: X!) { commentCreate(input: $i) { success } }")
    assert not writes_comment("query { issue(id: 1) { comments { nodes { id } } } }")

"""Questions and answers in GraphQL, which says no with a 200 (TR7)."""

from collections.abc import Mapping
from typing import Any

from symphony.trackers.fields import items, mapping, text
from symphony.trackers.http import Answer, Flow, Request, ServiceProfile, malformed, plain_message, refused


def question(
    name: str, query: str, variables: Mapping[str, Any], *, path: str = "", writes: bool = False
) -> Request:
    """The request of an operation, by whose name it is counted; a query may be asked again."""
    return Request(
        endpoint=name,
        method="POST",
        path=path,
        body={"query": query, "operationName": name, "variables": dict(variables)},
        reads=not writes,
    )


def graphql(dialect: ServiceProfile, request: Request) -> Flow[Mapping[str, Any]]:
    """The `data` of an answer without errors; with any error all of it fails, since parts would be missing.

    Raises:
        TrackerError: `tracker_status` with what the service said, or `tracker_response`.
    """
    answer = yield request
    if items(mapping(answer.body).get("errors")):
        raise refused(dialect, request, answer, answer.status)
    data = mapping(answer.body).get("data")
    if not isinstance(data, Mapping):
        raise malformed(dialect, f"answered {request.endpoint} without data")
    return data


def page_of(dialect: ServiceProfile, request: Request, connection: Any) -> tuple[list[Any], Any, bool]:
    """The nodes of a connection, the cursor of its end, and whether there is more.

    Raises:
        TrackerError: it is no connection, so nobody knows what is missing.
    """
    nodes, info = mapping(connection).get("nodes"), mapping(connection).get("pageInfo")
    if not isinstance(nodes, list) or not isinstance(info, Mapping):
        raise malformed(dialect, f"answered {request.endpoint} without nodes or pageInfo")
    return nodes, info.get("endCursor"), info.get("hasNextPage") is True


def error_codes(answer: Answer) -> frozenset[str]:
    """The codes of a GraphQL answer's errors, lower-case: `extensions.code`, `extensions.type` and `type`."""
    found = []
    for error in items(mapping(answer.body).get("errors")):
        extensions = mapping(mapping(error).get("extensions"))
        found += [extensions.get("code"), extensions.get("type"), mapping(error).get("type")]
    return frozenset(code.strip().lower() for code in found if isinstance(code, str))


def error_message(body: Any) -> str:
    """What the errors say, best the sentence that is meant for people."""
    said = []
    for error in items(mapping(body).get("errors")):
        presentable = mapping(mapping(error).get("extensions")).get("userPresentableMessage")
        said.append(text(presentable) or text(mapping(error).get("message")))
    return "; ".join(dict.fromkeys(part for part in said if part)) or plain_message(body)

"""GraphQL requests. A service reports errors in the answer, with a status of 200."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from symphony.http.exchange import Flow, HttpResponse, Request
from symphony.http.fields import dig, items, mapping, text
from symphony.http.paging import PageGuard
from symphony.http.service import ServiceProfile, plain_message


def operation(document: str, variables: Mapping[str, Any], *, path: str = "") -> Request:
    """The request of a named query or mutation. A query can be repeated, a mutation cannot."""
    kind, name = re.split(r"\W+", document.lstrip(), maxsplit=2)[:2]
    return Request(
        endpoint=name,
        method="POST",
        path=path,
        body={"query": document, "operationName": name, "variables": dict(variables)},
        reads=kind == "query",
    )


def graphql(service: ServiceProfile, request: Request) -> Flow[Mapping[str, Any]]:
    """The `data` of an answer. Any error fails the whole answer, because parts would be missing.

    Raises:
        ServiceError: `tracker_status` with the errors, or `tracker_response`.
    """
    answer = yield request
    if items(dig(answer.body, "errors")):
        raise service.refused(request, answer, answer.status)
    data = dig(answer.body, "data")
    if not isinstance(data, Mapping):
        raise service.malformed(f"answered {request.endpoint} without data")
    return data


def all_nodes(
    service: ServiceProfile,
    base: str,
    ask: Callable[[str | None], Request],
    find: Callable[[Mapping[str, Any]], Any],
) -> Flow[list[Any]]:
    """All nodes of a connection, page by page.

    Args:
        service: the service whose errors are raised.
        base: the base address.
        ask: makes the request for the page after a cursor; `None` for the first page.
        find: finds the connection in the data of an answer.

    Raises:
        ServiceError: a page is not a connection, or its pages cannot be followed.
    """
    request = ask(None)
    pager = PageGuard(service, request, base)
    nodes: list[Any] = []
    while True:
        connection = find((yield from graphql(service, request)))
        page, info = dig(connection, "nodes"), dig(connection, "pageInfo")
        if not isinstance(page, list) or not isinstance(info, Mapping):
            raise service.malformed(f"answered {request.endpoint} without nodes or pageInfo")
        nodes += page
        pager.count(len(page))
        if info.get("hasNextPage") is not True:
            return nodes
        request = ask(pager.cursor(info.get("endCursor")))


def error_codes(answer: HttpResponse) -> frozenset[str]:
    """The codes of the errors in lower case: `extensions.code`, `extensions.type` and `type`."""
    codes = []
    for error in items(dig(answer.body, "errors")):
        codes += [
            dig(error, "extensions", "code"),
            dig(error, "extensions", "type"),
            mapping(error).get("type"),
        ]
    return frozenset(code.strip().lower() for code in codes if isinstance(code, str))


def error_message(body: Any) -> str:
    """The messages of the errors, preferably those meant for people."""
    messages = [
        text(dig(error, "extensions", "userPresentableMessage")) or text(dig(error, "message"))
        for error in items(dig(body, "errors"))
    ]
    return "; ".join(dict.fromkeys(message for message in messages if message)) or plain_message(body)

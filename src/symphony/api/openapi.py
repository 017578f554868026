"""The description of the API for machines: OpenAPI 3.1, built from the types of the documents."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, structs

from symphony.api.documents import REASON_CODES
from symphony.api.interface import DAEMON_ACTIONS, ISSUE_ACTIONS
from symphony.api.models import (
    Answer,
    Description,
    Document,
    Error,
    Health,
    Issue,
    Prompt,
    Refresh,
    State,
    Trigger,
    Verb,
)

# JSON Schema of documents, made of their types.


IN_DEFS: Final = "#/$defs/{name}"


def schemas(*kinds: type[Document], ref: str = IN_DEFS) -> dict[str, Any]:
    """The schemas of these documents and of their parts by name; they refer to each other by `ref`.

    A field is required unless it may be unset: one with another default is for readers, and is always sent.
    """
    _, found = msgspec.json.schema_components(kinds, ref_template=ref)
    for kind in _all_kinds(Document):
        if kind.__name__ in found:
            tag, fields = kind.__struct_config__.tag_field, structs.fields(kind)
            names = [field.encode_name for field in fields if field.default is not UNSET]
            found[kind.__name__]["required"] = names if tag is None else [tag, *names]
    return found


def _all_kinds(kind: type[Document]) -> Iterator[type[Document]]:
    for one in kind.__subclasses__():
        yield one
        yield from _all_kinds(one)


_JSON = "application/json"
_REF: Final = "#/components/schemas/{name}"
API: Final = (State, Issue, Prompt, Refresh, Verb, Health, Description, Error, Answer, Trigger)
"""What is answered and asked."""


@cache
def description() -> Mapping[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Symphony",
            "version": "1",
            "summary": "What a Symphony daemon is doing, and why an issue is not running.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"operatorToken": []}],
        "paths": _paths(),
        "components": {
            "schemas": schemas(*API, ref=_REF),
            "securitySchemes": {
                "operatorToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed for orders over TCP, and for everything where the daemon is bound "
                    "to more than the loopback interface.",
                }
            },
        },
    }


def _paths() -> dict[str, Any]:
    return {
        "/api/v1/state": {
            "parameters": _selection(),
            "get": _operation(
                "state", "The whole daemon: health, one row per issue, totals.", State, refusals=(400,)
            ),
        },
        "/api/v1/refresh": {
            "post": {
                **_operation(
                    "refresh", "Poll and reconcile now.", Refresh, status=202, refusals=(400, 408, 413, 415)
                ),
                "requestBody": {
                    "required": False,
                    "content": {_JSON: {"schema": _ref(Trigger)}},
                },
            }
        },
        "/api/v1/openapi.json": {
            "get": _operation("openapi", "This description.", Description, refusals=(), failures=())
        },
        "/api/v1/{identifier}": {
            "parameters": [_IDENTIFIER],
            "get": _operation("issue", "One issue by its identifier.", Issue, refusals=(400, 404)),
        },
        "/api/v1/{identifier}/prompt": {
            "parameters": [_IDENTIFIER],
            "get": _operation("prompt", "What a dispatch would send now.", Prompt, refusals=(400, 404, 409)),
        },
        **{
            f"/api/v1/{{identifier}}/{verb}": {"parameters": [_IDENTIFIER], "post": _order(verb, 404, 409)}
            for verb in ISSUE_ACTIONS
        },
        **{f"/api/v1/control/{verb}": {"post": _order(verb)} for verb in DAEMON_ACTIONS},
        "/healthz": {
            "get": {
                "operationId": "health",
                "summary": "Whether the daemon's event loop answers. Needs no token.",
                "security": [{}],
                "responses": {"200": _response("It does.", Health)},
            }
        },
    }


def _selection() -> list[dict[str, Any]]:
    """What of the issues is listed; the counts are of all."""
    texts = {"type": "array", "items": {"type": "string"}}
    codes = {"type": "array", "items": {"enum": list(REASON_CODES)}}
    asked: tuple[tuple[str, str, dict[str, Any]], ...] = (
        (
            "waiting",
            "List so many waiting issues at most, the first to start.",
            {"type": "integer", "minimum": 0, "maximum": 999_999_999},
        ),
        ("state", "List issues in these states only.", texts),
        ("reason", "List issues with these codes only.", codes),
    )
    return [
        {"name": name, "in": "query", "required": False, "description": words, "schema": schema}
        for name, words, schema in asked
    ]


_IDENTIFIER = {
    "name": "identifier",
    "in": "path",
    "required": True,
    "description": "The issue's identifier, percent-encoded; a slash is %2F. Fixed routes win over it.",
    "schema": {"type": "string", "minLength": 1},
}

_ORDERS = {
    "stop": "End the run of the issue, and keep it from starting until somebody says so.",
    "retry": "Have the issue tried now.",
    "unblock": "Give the issue a new budget, and have it tried.",
    "answer": "Answer the question of the issue's agent, which then goes on.",
    "pause": "Start nothing new; what runs goes on.",
    "resume": "Start issues again.",
    "drain": "Let running turns end, start nothing, then exit.",
}

_REFUSALS = {
    400: "The request is malformed.",
    401: "A bearer token is needed.",
    403: "Another site's page, or a Host header that does not name this daemon.",
    404: "The daemon does not know the issue now.",
    405: "The route has other methods; a fixed route wins over an issue of its name.",
    408: "The body did not arrive in time.",
    409: "It does not fit the present state, or a dispatch would fail; the code says how.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    500: "Our fault; the log of the daemon says more.",
    503: "The daemon cannot answer now.",
}


def _order(verb: str, *refusals: int) -> dict[str, Any]:
    """What an operator orders; it takes the token wherever it comes over TCP."""
    answers = verb == "answer"
    return {
        **_operation(verb, _ORDERS[verb], Verb, status=202, refusals=(400, *refusals, 408, 413, 415)),
        "requestBody": {
            "required": answers,
            "content": {_JSON: {"schema": _ref(Answer if answers else Trigger)}},
        },
    }


def _operation(
    name: str,
    summary: str,
    schema: type[Document],
    *,
    status: int = 200,
    refusals: tuple[int, ...] = (),
    failures: tuple[int, ...] = (503,),
) -> dict[str, Any]:
    codes = sorted({*refusals, *failures, 401, 403, 405, 500})
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            str(status): _response("The answer.", schema),
            **{str(code): _response(_REFUSALS[code], Error) for code in codes},
        },
    }


def _response(text: str, schema: type[Document]) -> dict[str, Any]:
    return {"description": text, "content": {_JSON: {"schema": _ref(schema)}}}


def _ref(kind: type[Document]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}

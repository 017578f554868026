"""The description of the API for machines: OpenAPI 3.1, built from the stored JSON schemas."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from symphony.web.port import ISSUE_VERBS, OWN_VERBS

__all__ = ["description", "schemas"]

_JSON = "application/json"


@cache
def schemas() -> Mapping[str, Any]:
    """The shapes of v1 by name; they refer to each other as `#/$defs/<name>`."""
    text = resources.files("symphony.web").joinpath("schemas/v1.json").read_text(encoding="utf-8")
    return dict(json.loads(text)["$defs"])


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
            "schemas": _moved(schemas()),
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


def _moved(value: Any) -> Any:
    """The schemas with their references pointing to where they stand in an OpenAPI document."""
    match value:
        case Mapping():
            return {
                key: item.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _moved(item)
                for key, item in value.items()
            }
        case list():
            return [_moved(item) for item in value]
        case _:
            return value


def _paths() -> dict[str, Any]:
    return {
        "/api/v1/state": {
            "get": _operation("state", "The whole daemon: health, one row per issue, totals.", "State")
        },
        "/api/v1/refresh": {
            "post": {
                **_operation(
                    "refresh", "Poll and reconcile now.", "Refresh", status=202, refusals=(400, 408, 413, 415)
                ),
                "requestBody": {
                    "required": False,
                    "content": {_JSON: {"schema": _ref("Trigger")}},
                },
            }
        },
        "/api/v1/openapi.json": {
            "get": _operation("openapi", "This description.", "Description", refusals=(), failures=())
        },
        "/api/v1/{identifier}": {
            "parameters": [_IDENTIFIER],
            "get": _operation("issue", "One issue by its identifier.", "Issue", refusals=(400, 404)),
        },
        "/api/v1/{identifier}/prompt": {
            "parameters": [_IDENTIFIER],
            "get": _operation(
                "prompt", "What a dispatch would send now.", "Prompt", refusals=(400, 404, 409)
            ),
        },
        **{
            f"/api/v1/{{identifier}}/{verb}": {"parameters": [_IDENTIFIER], "post": _order(verb, 404)}
            for verb in ISSUE_VERBS
        },
        **{f"/api/v1/control/{verb}": {"post": _order(verb)} for verb in OWN_VERBS},
        "/healthz": {
            "get": {
                "operationId": "health",
                "summary": "Whether the daemon's event loop answers. Needs no token.",
                "security": [{}],
                "responses": {"200": _response("It does.", "Health")},
            }
        },
    }


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
        **_operation(verb, _ORDERS[verb], "Verb", status=202, refusals=(400, *refusals, 408, 409, 413, 415)),
        "requestBody": {
            "required": answers,
            "content": {_JSON: {"schema": _ref("Answer" if answers else "Trigger")}},
        },
    }


def _operation(
    name: str,
    summary: str,
    schema: str,
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
            **{str(code): _response(_REFUSALS[code], "Error") for code in codes},
        },
    }


def _response(text: str, schema: str) -> dict[str, Any]:
    return {"description": text, "content": {_JSON: {"schema": _ref(schema)}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}

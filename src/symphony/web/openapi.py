"""The description of the API for machines: OpenAPI 3.1, built from the stored JSON schemas."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

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
                    "description": "Needed where the daemon is bound to more than the loopback interface.",
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

_REFUSALS = {
    400: "The request is malformed.",
    401: "A bearer token is needed.",
    403: "Another site's page, or a Host header that does not name this daemon.",
    404: "The daemon does not know the issue now.",
    405: "The route has other methods; a fixed route wins over an issue of its name.",
    408: "The body did not arrive in time.",
    409: "A dispatch would fail; the code says how.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    500: "Our fault; the log of the daemon says more.",
    503: "The daemon cannot answer now.",
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

"""JSON Schema of the documents, and the OpenAPI 3.1 description of the API made from it."""

from collections.abc import Mapping
from functools import cache
from inspect import cleandoc
from typing import Any, Final

import msgspec

from symphony.api import models, routes
from symphony.api.parameters import PARAMETERS

IN_DEFS: Final = "#/$defs/{name}"
_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_SENT: Final = {kind for row in routes.API for kind in (row.answered, row.body)} - {models.Document}
API: Final[tuple[type[models.Document], ...]] = tuple(
    sorted({*_SENT, models.Error}, key=lambda kind: kind.__name__)
)
"""The documents that the API sends and receives."""


def schemas(*kinds: type[models.Document], ref: str = IN_DEFS) -> dict[str, Any]:
    """The schemas of these documents and of their parts by name; `ref` is the form of references.

    A field is required unless it may be unset. Fields with another default are always sent; the default is
    for readers of older answers.
    """
    _, found = msgspec.json.schema_components(kinds, ref_template=ref)
    for shape in found.values():
        if "description" in shape:  # before Python 3.13 docstrings are indented
            shape["description"] = cleandoc(shape["description"])
            # A type of `domain` describes its fields in Python's terms.
            shape["description"] = shape["description"].partition("\n\nAttributes:")[0]
        if "properties" in shape:
            shape["required"] = [
                name
                for name, field in shape["properties"].items()
                if name in shape["required"] or "default" in field
            ]
    return found


@cache
def description() -> Mapping[str, Any]:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Symphony",
            "version": "1",
            "summary": "What a Symphony daemon is doing, and why an issue is not running.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"operatorToken": []}, {}],
        "paths": _paths(),
        "components": {
            "schemas": schemas(*API, ref=_REF),
            "securitySchemes": {
                "operatorToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed over TCP, unless the cookie of a signed-in browser is sent; then "
                    "orders need its X-CSRF-Token. The control socket needs nothing.",
                }
            },
        },
    }


def _paths() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for row in routes.API:
        described = paths.setdefault(row.path, {})
        if parameters := [one for name in row.reads for one in PARAMETERS[name]]:
            described["parameters"] = parameters
        described[row.verb.lower()] = _operation(row)
    return paths


def _operation(row: routes.Resource[models.Document]) -> dict[str, Any]:
    is_open = row.needs is routes.Needs.NO_CHECK
    refusals = {*row.refusals, *(() if is_open else (401, 403, 405, 500))}
    schema = {"type": "string"} if row.answered is models.Document else _ref(row.answered)
    operation: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "responses": {
            str(row.status): {"description": row.shown, "content": {row.media: {"schema": schema}}},
            **{
                str(code): {
                    "description": _REFUSALS[code],
                    "content": {_JSON: {"schema": _ref(models.Error)}},
                }
                for code in sorted(refusals)
            },
        },
    }
    if is_open:
        operation["security"] = [{}]
    if row.verb == "POST":
        operation["requestBody"] = {
            "required": row.body is not models.EmptyBody,  # a `EmptyBody` is an empty object
            "content": {_JSON: {"schema": _ref(row.body)}},
        }
    return operation


_REFUSALS = {
    400: "The request is malformed.",
    401: "A bearer token or the cookie of a signed-in browser is needed.",
    403: "The request comes from a page of another site, lacks a CSRF value, or names another host.",
    404: "The daemon does not know the issue, or the library does not have the named skill.",
    405: "The route has other methods; a fixed route takes precedence over an issue of its name.",
    408: "The body did not arrive in time.",
    409: "The action is impossible in the present state, a dispatch or a move fails, or the library refuses "
    "it; the code says why.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    500: "An internal error; the log of the daemon has the details.",
    503: "The daemon cannot answer now.",
}


def _ref(kind: type[models.Document]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}

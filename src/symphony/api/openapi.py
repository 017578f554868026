"""JSON Schema of the documents, and the OpenAPI 3.1 description of the API made from it."""

from collections.abc import Iterator, Mapping
from functools import cache
from inspect import cleandoc
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, structs

from symphony.api import models, routes
from symphony.api.parameters import PARAMETERS
from symphony.journal.transcripts import EditedFile, Entry, TranscriptPlanStep

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
        if "description" in shape:  # Python 3.13 takes the indentation from docstrings, earlier ones do not
            shape["description"] = cleandoc(shape["description"])
    own: tuple[type[Struct], ...] = (
        *(kind for kind in _all_kinds(Struct) if kind.__module__.startswith("symphony.domain.")),
        *_all_kinds(models.Document),
        *_all_kinds(Entry),
        EditedFile,
        TranscriptPlanStep,
    )
    for kind in own:
        if kind.__name__ in found:
            tag, fields = kind.__struct_config__.tag_field, structs.fields(kind)
            names = [field.encode_name for field in fields if field.default is not UNSET]
            found[kind.__name__]["required"] = names if tag is None else [tag, *names]
    return found


def _all_kinds(kind: type[Struct]) -> Iterator[type[Struct]]:
    for one in kind.__subclasses__():
        yield one
        yield from _all_kinds(one)


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
            "required": row.body is not models.Trigger,  # which is an empty object
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

"""What GitLab's documentation says of the requests that we make, written down by hand as a small description.

GitLab's own one may not be handed on with ours. This one can be wrong where we misread the documentation, so
it proves that requests and answers are what we believe, and no more.
"""

from typing import Any

from contract.openapi import OpenApi

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
MAYBE: dict[str, Any] = {"type": "string", "nullable": True}
PAGES = [
    {"name": "page", "in": "query", "schema": NUMBER},
    {"name": "per_page", "in": "query", "schema": NUMBER},
]


def one_of(name: str, *values: str) -> dict[str, Any]:
    """A parameter with a few values."""
    return {"name": name, "in": "query", "schema": {"type": "string", "enum": list(values)}}


def record(required: dict[str, Any], **others: Any) -> dict[str, Any]:
    """An object that may hold more than is said here."""
    return {"type": "object", "required": sorted(required), "properties": {**required, **others}}


def answer(status: int, schema: dict[str, Any]) -> dict[str, Any]:
    """The only successful answer."""
    return {str(status): {"description": "", "content": {"application/json": {"schema": schema}}}}


def body(**properties: Any) -> dict[str, Any]:
    """A body of these fields and no others."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False, "minProperties": 1}
    return {"content": {"application/json": {"schema": schema}}}


USER = record({"id": NUMBER, "username": TEXT})
ISSUE = record(
    {
        "id": NUMBER,
        "iid": NUMBER,
        "project_id": NUMBER,
        "title": TEXT,
        "state": {"type": "string", "enum": ["opened", "closed"]},
        "labels": {"type": "array", "items": TEXT},
        "created_at": TEXT,
        "updated_at": TEXT,
        "web_url": TEXT,
        "references": record({"short": TEXT, "relative": TEXT, "full": TEXT}),
    },
    description=MAYBE,
    author=USER,
    assignees={"type": "array", "items": USER},
)
MEMBER = {"allOf": [USER, record({"access_level": NUMBER})]}
LINK = {"allOf": [ISSUE, record({"link_type": {"enum": ["relates_to", "blocks", "is_blocked_by"]}})]}
NOTE = record({"id": NUMBER, "body": TEXT, "author": USER, "system": {"type": "boolean"}, "created_at": TEXT})
_ISSUES = "/projects/{id}/issues"
_ISSUE = f"{_ISSUES}/{{iid}}"


def _list(of: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "parameters": [*parameters, *PAGES],
        "responses": answer(200, {"type": "array", "items": of}),
    }


SHAPES = OpenApi(
    {
        "paths": {
            "/user": {"get": {"responses": answer(200, USER)}},
            _ISSUES: {
                "get": _list(
                    ISSUE,
                    one_of("state", "all", "opened", "closed"),
                    one_of("scope", "all", "created_by_me", "assigned_to_me"),
                    one_of("order_by", "created_at", "updated_at"),
                    one_of("sort", "asc", "desc"),
                    {"name": "labels", "in": "query", "schema": TEXT},
                    {"name": "iids[]", "in": "query", "schema": NUMBER},
                )
            },
            _ISSUE: {
                "get": {"responses": answer(200, ISSUE)},
                "put": {
                    "requestBody": body(
                        state_event={"enum": ["close", "reopen"]}, add_labels=TEXT, remove_labels=TEXT
                    ),
                    "responses": answer(200, ISSUE),
                },
            },
            "/projects/{id}/members/all/{user_id}": {"get": {"responses": answer(200, MEMBER)}},
            f"{_ISSUE}/links": {"get": _list(LINK)},
            f"{_ISSUE}/notes": {
                "get": _list(
                    NOTE, one_of("sort", "asc", "desc"), one_of("order_by", "created_at", "updated_at")
                ),
                "post": {"requestBody": body(body=TEXT), "responses": answer(201, NOTE)},
            },
            f"{_ISSUE}/notes/{{note_id}}": {
                "put": {"requestBody": body(body=TEXT), "responses": answer(200, NOTE)},
            },
        }
    }
)

"""What Jira's documentation says of the requests that its published description of 2023 does not know.

These are the two reads, and what a project is made of. Written down by hand, so it proves that requests and
answers are what we believe, and no more.
"""

from typing import Any

from contract.openapi import OpenApi

TEXT: dict[str, Any] = {"type": "string"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT, "minItems": 1}


def _body(required: dict[str, Any], **others: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": sorted(required),
        "properties": {**required, **others},
        "additionalProperties": False,
    }
    return {"content": {"application/json": {"schema": schema}}}


def _answer(schema: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": "", "content": {"application/json": {"schema": schema}}}}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


STATUS = _object("name", "statusCategory", name=TEXT, statusCategory=_object("key", key=TEXT))
ISSUE = _object(
    "id",
    "key",
    "fields",
    id=TEXT,
    key=TEXT,
    fields=_object("summary", "status", "project", summary=TEXT, status=STATUS, project=_object("id", "key")),
)
ISSUES = {"type": "array", "items": ISSUE}
NUMBER = {"type": "integer", "minimum": 1, "maximum": 100}
SHAPES = OpenApi(
    {
        "paths": {
            "/rest/api/3/search/jql": {
                "post": {
                    "requestBody": _body(
                        {"jql": TEXT, "fields": TEXTS},
                        maxResults=NUMBER,
                        nextPageToken=TEXT,
                        properties={**TEXTS, "maxItems": 5},
                    ),
                    "responses": {
                        **_answer(
                            _object(
                                "issues",
                                issues=ISSUES,
                                isLast={"type": "boolean"},
                                nextPageToken={"type": "string", "nullable": True},
                            )
                        ),
                        "400": {"description": ""},
                    },
                }
            },
            "/rest/api/3/issue/bulkfetch": {
                "post": {
                    "requestBody": _body({"issueIdsOrKeys": {**TEXTS, "maxItems": 100}, "fields": TEXTS}),
                    "responses": _answer(_object("issues", issues=ISSUES, issueErrors={"type": "array"})),
                }
            },
            "/rest/api/3/issue": {
                "post": {
                    "requestBody": _body(
                        {
                            "fields": _object("project", "issuetype", "summary"),
                            "properties": {"type": "array", "items": _object("key", "value")},
                        }
                    ),
                    "responses": {
                        "201": _answer(_object("id", "key", "self", id=TEXT, key=TEXT))["200"],
                    },
                }
            },
            "/rest/api/3/project/{projectIdOrKey}": {
                "get": {"responses": _answer(_object("id", "key", id=TEXT, key=TEXT))}
            },
            "/rest/api/3/project/{projectIdOrKey}/statuses": {
                "get": {
                    "responses": _answer(
                        {
                            "type": "array",
                            "items": _object("statuses", statuses={"type": "array", "items": STATUS}),
                        }
                    )
                }
            },
        }
    }
)
PATHS = frozenset({"/rest/api/3/search/jql", "/rest/api/3/issue", "/rest/api/3/issue/bulkfetch"})


def is_by_hand(path: str) -> bool:
    """Whether the description here is the one to judge a request by."""
    return path in PATHS or path.startswith("/rest/api/3/project/")

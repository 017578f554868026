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
FLAG: dict[str, Any] = {"type": "boolean"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
SHA: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]{40}$"}
MERGE = record(
    {
        "id": NUMBER,
        "iid": NUMBER,
        "title": TEXT,
        "state": {"enum": ["opened", "closed", "locked", "merged"]},
        "draft": FLAG,
        "sha": SHA,
        "web_url": TEXT,
        "source_branch": TEXT,
        "target_branch": TEXT,
        "target_project_id": NUMBER,
        "author": USER,
        "labels": TEXTS,
        "has_conflicts": FLAG,
        "detailed_merge_status": {
            "enum": ["unchecked", "checking", "mergeable", "conflict", "ci_still_running", "not_approved"]
        },
        "merge_when_pipeline_succeeds": FLAG,
        "reviewers": {"type": "array", "items": USER},
    },
    description=MAYBE,
    source_project_id={"type": "integer", "nullable": True},
)
JOB = record(
    {"id": NUMBER, "name": TEXT, "stage": TEXT, "status": TEXT, "allow_failure": FLAG, "web_url": TEXT}
)
REMARK = {"allOf": [NOTE, record({"resolvable": FLAG, "updated_at": TEXT})]}
_ISSUES = "/projects/{id}/issues"
_ISSUE = f"{_ISSUES}/{{iid}}"


_PULL = "/projects/{id}/merge_requests/{iid}"
_TIMED = {"sha": SHA, "auto_merge": FLAG}


def _list(of: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "parameters": [*parameters, *PAGES],
        "responses": answer(200, {"type": "array", "items": of}),
    }


def _listed(of: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    return {"get": _list(of, *parameters)}


def _text(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": TEXT}


def _write(status: int, of: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"requestBody": body(**fields), "responses": answer(status, of)}


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
                    {"name": "author_id", "in": "query", "schema": NUMBER},
                    {"name": "created_after", "in": "query", "schema": {**TEXT, "format": "date-time"}},
                ),
                "post": {
                    "requestBody": body(title=TEXT, description=TEXT, labels=TEXT),
                    "responses": answer(201, ISSUE),
                },
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
            "/users": _listed(USER, _text("username")),
            "/personal_access_tokens/self": {"get": {"responses": answer(200, record({"scopes": TEXTS}))}},
            "/projects/{id}": {
                "get": {"responses": answer(200, record({"path_with_namespace": TEXT, "archived": FLAG}))}
            },
            "/projects/{id}/members/all": _listed(
                record({"id": NUMBER, "username": TEXT, "access_level": NUMBER}),
                {"name": "user_ids[]", "in": "query", "schema": NUMBER},
            ),
            "/projects/{id}/merge_requests": {
                **_listed(
                    MERGE,
                    _text("source_branch"),
                    _text("target_branch"),
                    one_of("state", "all", "opened", "closed", "merged"),
                    one_of("order_by", "created_at", "updated_at"),
                    one_of("sort", "asc", "desc"),
                ),
                "post": _write(
                    201, MERGE, source_branch=TEXT, target_branch=TEXT, title=TEXT, description=TEXT
                ),
            },
            _PULL: {
                "get": {"responses": answer(200, MERGE)},
                "put": _write(
                    200,
                    MERGE,
                    title=TEXT,
                    description=TEXT,
                    add_labels=TEXT,
                    reviewer_ids={"type": "array", "items": NUMBER},
                ),
            },
            f"{_PULL}/discussions": _listed(
                record({"id": TEXT, "notes": {"type": "array", "items": REMARK}})
            ),
            f"{_PULL}/discussions/{{id}}": {"put": _write(200, record({"id": TEXT}), resolved=FLAG)},
            f"{_PULL}/discussions/{{id}}/notes": {"post": _write(201, REMARK, body=TEXT)},
            f"{_PULL}/diffs": _listed(record({"new_path": TEXT, "old_path": TEXT, "diff": TEXT})),
            f"{_PULL}/reviewers": _listed(record({"user": USER, "state": TEXT})),
            f"{_PULL}/approvals": {
                "get": {
                    "responses": answer(
                        200, record({"approved_by": {"type": "array", "items": record({"user": USER})}})
                    )
                }
            },
            f"{_PULL}/versions": _listed(record({"id": NUMBER, "head_commit_sha": SHA, "created_at": TEXT})),
            f"{_PULL}/merge": {"put": _write(200, MERGE, **_TIMED, merge_when_pipeline_succeeds=FLAG)},
            f"{_PULL}/cancel_merge_when_pipeline_succeeds": {"post": {"responses": answer(201, MERGE)}},
            "/projects/{id}/merge_trains/merge_requests/{iid}": {
                "post": _write(201, {"type": "array"}, **_TIMED)
            },
            "/projects/{id}/pipelines/{id}/jobs": _listed(JOB),
            "/projects/{id}/repository/commits/{sha}": {
                "get": {"responses": answer(200, record({"id": SHA, "parent_ids": TEXTS}))}
            },
        }
    }
)

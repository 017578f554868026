"""JSON Schema of the documents, and the OpenAPI 3.1 description of the API made from it."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, structs

from symphony.api import models
from symphony.api.documents import REASON_CODES
from symphony.api.interface import (
    AGE_PATTERN,
    DAEMON_ACTIONS,
    ISSUE_ACTIONS,
    MAX_RUNS,
    RUN_OUTCOMES,
    RUN_SUMS,
)
from symphony.api.library import EDITS, MAX_PAGES, PROPOSAL_STATES
from symphony.domain import MAX_COUNT
from symphony.journal.transcripts import MAX_PAGE, EditedFile, Entry, TranscriptPlanStep

IN_DEFS: Final = "#/$defs/{name}"
_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
API: Final = (
    models.State,
    models.Issue,
    models.Runs,
    models.Rehearsal,
    models.Prompt,
    models.Transcript,
    models.Refresh,
    models.Verb,
    models.Feedback,
    models.Link,
    models.Change,
    models.Health,
    models.Description,
    models.Error,
    models.Answer,
    models.Stars,
    models.Move,
    models.Outbox,
    models.OwedChoice,
    models.Trigger,
    models.SkillsOverview,
    models.System,
    models.LibraryAccept,
    models.LibraryAssign,
    models.LibraryAssignments,
    models.LibraryChanged,
    models.LibraryCheck,
    models.LibraryDiff,
    models.LibraryDraft,
    models.LibraryProposalPage,
    models.LibraryProposals,
    models.LibraryReject,
    models.LibraryRemove,
    models.LibraryRevert,
    models.LibrarySave,
    models.LibrarySkillPage,
    models.LibrarySkills,
)
"""The documents that the API sends and receives."""


def schemas(*kinds: type[models.Document], ref: str = IN_DEFS) -> dict[str, Any]:
    """The schemas of these documents and of their parts by name; `ref` is the form of references.

    A field is required unless it may be unset. Fields with another default are always sent; the default is
    for readers of older answers.
    """
    _, found = msgspec.json.schema_components(kinds, ref_template=ref)
    own: tuple[type[Struct], ...] = (
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
    return {
        "/api/v1/state": _path(
            _get("state", "The whole daemon: health, one row per issue, totals.", models.State, 400),
            *_SELECTION,
        ),
        "/api/v1/runs": _path(
            _get("runs", "Past and live runs, and sums of them.", models.Runs, 400), *_RUN_QUERY
        ),
        "/api/v1/rehearsal": _path(
            _get("rehearsal", "Which branches merge together.", models.Rehearsal, 400, 409),
            _query("issue", "Only the branches of these issues; of all ready ones by default.", _TEXTS),
        ),
        "/api/v1/events": _path(
            {
                "get": {
                    "operationId": "events",
                    "summary": "A stream of what changes.",
                    "responses": {
                        **_refusals(401, 403, 405, 500, 503),
                        "200": {
                            "description": "Server-sent events `changed`; this is the data of one.",
                            "content": {"text/event-stream": {"schema": _ref(models.Change)}},
                        },
                    },
                }
            },
            *_AFTER,
        ),
        "/api/v1/control/open": _post(
            "open",
            "A link that signs one browser in; opens a TCP port if there is none.",
            models.Trigger,
            models.Link,
            409,
            status=200,
        ),
        "/api/v1/refresh": _post("refresh", "Poll and reconcile now.", models.Trigger, models.Refresh),
        "/api/v1/openapi.json": {
            "get": _operation("openapi", "This description.", models.Description, failures=())
        },
        "/api/v1/{identifier}": _path(
            _get("issue", "One issue by its identifier.", models.Issue, 400, 404), _IDENTIFIER
        ),
        "/api/v1/{identifier}/prompt": _path(
            _get("prompt", "What a dispatch would send now.", models.Prompt, 400, 404, 409),
            _IDENTIFIER,
            _query("phase", "As if the work were in this phase.", {"type": "string"}),
        ),
        "/api/v1/{identifier}/transcript": _path(
            _get(
                "transcript", "What the agent of a run was sent, said and did.", models.Transcript, 400, 404
            ),
            _IDENTIFIER,
            *_TRANSCRIPT_PART,
        ),
        **{
            f"/api/v1/{{identifier}}/{verb}": _path(_action(verb, 404, 409), _IDENTIFIER)
            for verb in ISSUE_ACTIONS
        },
        "/api/v1/{identifier}/feedback": _path(
            _post(
                "feedback",
                "Say how good the work was; skills may be improved by it.",
                models.Stars,
                models.Feedback,
                *(404, 409),
            ),
            _IDENTIFIER,
        ),
        **{f"/api/v1/control/{verb}": _action(verb) for verb in DAEMON_ACTIONS},
        "/api/v1/control/outbox": _get(
            "outbox", "What the daemon owes to the outside, and what it gave up.", models.Outbox
        ),
        **{
            f"/api/v1/control/outbox/{verb}": _post(
                f"outbox_{verb}", summary, models.OwedChoice, models.Outbox, 404, status=200
            )
            for verb, summary in _OUTBOX.items()
        },
        **_library_paths(),
        "/skills.json": _get(
            "skills", "The skills beside WORKFLOW.md, and their use.", models.SkillsOverview
        ),
        "/system.json": _get("system", "The program, its settings and its checks.", models.System),
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "The metrics of the daemon, for Prometheus.",
                "responses": {
                    "200": {
                        "description": "The text format of Prometheus.",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    },
                    **_refusals(401, 403, 405, 500),
                },
            }
        },
        "/healthz": {
            "get": {
                "operationId": "health",
                "summary": "Whether the daemon's event loop answers. Needs no token.",
                "security": [{}],
                "responses": {"200": _response("It answers.", models.Health)},
            }
        },
    }


def _library_paths() -> dict[str, Any]:
    page = _query(
        "page", "Which page, 50 rows each.", {"type": "integer", "minimum": 1, "maximum": MAX_PAGES}
    )
    version = {"type": "integer", "minimum": 1, "maximum": MAX_COUNT}
    paths = {
        "skills": _path(
            _get("library_skills", "The skills of the library.", models.LibrarySkills, 400, 409),
            _query("q", "Only skills with all these words.", {"type": "string"}),
            _query("learned", "1: only learned skills.", {"enum": ["1"]}),
            page,
        ),
        "skills/{name}": _path(
            _get("library_skill", "A skill and its history.", models.LibrarySkillPage, 400, 404, 409),
            _SKILL,
            _query("version", "The newest by default.", version),
        ),
        "skills/{name}/diff": _path(
            _get("library_diff", "What two versions differ in.", models.LibraryDiff, 400, 404, 409),
            _SKILL,
            _query("old", "A version.", version, required=True),
            _query("new", "Another one.", version, required=True),
        ),
        "assignments": _get(
            "library_assignments", "Which issue or agent gets which skills.", models.LibraryAssignments, 409
        ),
        "proposals": _path(
            _get("library_proposals", "Changes that wait for a person.", models.LibraryProposals, 400, 409),
            _query("state", "open by default.", {"enum": list(PROPOSAL_STATES)}),
            page,
        ),
        "proposals/{id}": _path(
            _get("library_proposal", "A proposal and its diff.", models.LibraryProposalPage, 400, 404, 409),
            {"name": "id", "in": "path", "required": True, "schema": version},
        ),
        "check": _edit("check", "Check a SKILL.md.", models.LibraryDraft, models.LibraryCheck),
        **{verb: _edit(verb, _first_line(kind), kind, models.LibraryChanged) for verb, kind in EDITS.items()},
    }
    return {f"/api/v1/library/{name}": path for name, path in paths.items()}


def _edit(
    verb: str, summary: str, body: type[models.Document], answered: type[models.Document]
) -> dict[str, Any]:
    return _post(f"library_{verb}", summary, body, answered, 404, 409, status=200)


def _first_line(kind: type[models.Document]) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _query(name: str, text: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "description": text, "schema": schema}


_OUTBOX: Final = {
    "retry": "Try at once what is owed, also if it was given up.",
    "drop": "Forget what is owed.",
}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_SELECTION: Final = (  # of the listed issues; counts are of all
    _query(
        "waiting",
        "List at most this number of waiting issues, the first to start.",
        {"type": "integer", "minimum": 0, "maximum": 999_999_999},
    ),
    _query("q", "List only issues with this text in their identifier or title.", {"type": "string"}),
    _query("state", "List only issues in these states.", _TEXTS),
    _query(
        "reason",
        "List only issues with these codes.",
        {"type": "array", "items": {"enum": list(REASON_CODES)}},
    ),
)
_RUN_QUERY: Final = (
    _query(
        "since",
        "Only runs that started within this age: 90m, 12h, 30d or 4w.",
        {"type": "string", "pattern": AGE_PATTERN},
    ),
    _query("by", "What to make sums by.", {"enum": [*RUN_SUMS, ""]}),
    _query("issue", "Only runs of these issues, by identifier.", _TEXTS),
    _query("agent", "Only runs of these agents, by name.", _TEXTS),
    _query("outcome", "Only runs that ended so.", {"type": "array", "items": {"enum": [*RUN_OUTCOMES, ""]}}),
    _query(
        "limit",
        "List at most this number of runs; sums are of all selected ones.",
        {"type": "integer", "minimum": 0, "maximum": MAX_RUNS, "default": MAX_RUNS},
    ),
)
_TRANSCRIPT_PART: Final = (
    _query("run", "The id of the run, or the begin of it; the latest run by default.", {"type": "string"}),
    _query(
        "after",
        "The first entries after this number; the last entries by default.",
        {"type": "integer", "minimum": 0, "maximum": MAX_COUNT},
    ),
    _query(
        "limit",
        "How many entries; an answer has at most 4 MiB of them. 0 stands for the default, 200.",
        {"type": "integer", "minimum": 0, "maximum": MAX_PAGE},
    ),
)
_AFTER: Final = tuple(
    {
        "name": name,
        "in": place,
        "required": False,
        "description": "The id of the last event that was seen; without it everything has changed.",
        "schema": {"type": "string", "pattern": "^[0-9a-f-]*$"},
    }
    for name, place in (("after", "query"), ("Last-Event-ID", "header"))
)
_IDENTIFIER: Final = {
    "name": "identifier",
    "in": "path",
    "required": True,
    "description": "The issue's identifier, percent-encoded; a slash is %2F. Fixed routes take precedence.",
    "schema": {"type": "string", "minLength": 1},
}
_SKILL: Final = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "The name of a skill of the library.",
    "schema": {"type": "string", "pattern": "^[a-z0-9-]{1,64}$"},
}
_ACTIONS = {
    "stop": "Stop the run of the issue, and block the issue until it is retried.",
    "retry": "Retry the issue now.",
    "unblock": "Give the issue a new budget, and retry it.",
    "answer": "Answer the question of the issue's agent, and let it continue.",
    "approve": "Approve the request of the issue's agent that is open, for its session, and let it continue.",
    "deny": "Deny the request of the issue's agent that is open, for its session, and let it continue.",
    "move": "Move the issue to another state of the tracker, and poll.",
    "pause": "Start nothing new; running agents continue.",
    "resume": "Start issues again.",
    "drain": "Start nothing new, let running turns end, then exit.",
}

_BODIES: Final[Mapping[str, type[models.Document]]] = {"answer": models.Answer, "move": models.Move}

_REFUSALS = {
    400: "The request is malformed.",
    401: "A bearer token or the cookie of a signed-in browser is needed.",
    403: "The request comes from a page of another site, lacks a CSRF value, or names another host.",
    404: "The daemon does not know the issue, or the library does not have what is named.",
    405: "The route has other methods; a fixed route takes precedence over an issue of its name.",
    408: "The body did not arrive in time.",
    409: "The action does not fit the present state, a dispatch or a move fails, or the library refuses it; "
    "the code says why.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    500: "An internal error; the log of the daemon has the details.",
    503: "The daemon cannot answer now.",
}


def _path(operations: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    return {"parameters": list(parameters), **operations}


def _action(verb: str, *refusals: int) -> dict[str, Any]:
    return _post(verb, _ACTIONS[verb], _BODIES.get(verb, models.Trigger), models.Verb, *refusals)


def _get(name: str, summary: str, answered: type[models.Document], *refusals: int) -> dict[str, Any]:
    return {"get": _operation(name, summary, answered, *refusals)}


def _post(
    name: str,
    summary: str,
    body: type[models.Document],
    answered: type[models.Document],
    *refusals: int,
    status: int = 202,
) -> dict[str, Any]:
    """A route that takes a body, which may be missing if it can only be an empty object."""
    return {
        "post": {
            **_operation(name, summary, answered, 400, 408, 413, 415, *refusals, status=status),
            "requestBody": {
                "required": body is not models.Trigger,
                "content": {_JSON: {"schema": _ref(body)}},
            },
        }
    }


def _operation(
    name: str,
    summary: str,
    answered: type[models.Document],
    *refusals: int,
    status: int = 200,
    failures: tuple[int, ...] = (503,),
) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            str(status): _response("The answer.", answered),
            **_refusals(*refusals, *failures, 401, 403, 405, 500),
        },
    }


def _refusals(*codes: int) -> dict[str, Any]:
    return {str(code): _response(_REFUSALS[code], models.Error) for code in sorted({*codes})}


def _response(text: str, schema: type[models.Document]) -> dict[str, Any]:
    return {"description": text, "content": {_JSON: {"schema": _ref(schema)}}}


def _ref(kind: type[models.Document]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}

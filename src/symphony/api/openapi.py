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
        "/api/v1/state": {
            "parameters": _selection(),
            "get": _operation(
                "state", "The whole daemon: health, one row per issue, totals.", models.State, refusals=(400,)
            ),
        },
        "/api/v1/runs": {
            "parameters": _run_query(),
            "get": _operation("runs", "Past and live runs, and sums of them.", models.Runs, refusals=(400,)),
        },
        "/api/v1/events": {
            "parameters": _AFTER,
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
            },
        },
        "/api/v1/control/open": {
            "post": {
                **_operation(
                    "open",
                    "A link that signs one browser in; opens a TCP port if there is none.",
                    models.Link,
                    refusals=(400, 408, 409, 413, 415),
                ),
                "requestBody": {"required": False, "content": {_JSON: {"schema": _ref(models.Trigger)}}},
            }
        },
        "/api/v1/refresh": {
            "post": {
                **_operation(
                    "refresh",
                    "Poll and reconcile now.",
                    models.Refresh,
                    status=202,
                    refusals=(400, 408, 413, 415),
                ),
                "requestBody": {
                    "required": False,
                    "content": {_JSON: {"schema": _ref(models.Trigger)}},
                },
            }
        },
        "/api/v1/openapi.json": {
            "get": _operation("openapi", "This description.", models.Description, refusals=(), failures=())
        },
        "/api/v1/{identifier}": {
            "parameters": [_IDENTIFIER],
            "get": _operation("issue", "One issue by its identifier.", models.Issue, refusals=(400, 404)),
        },
        "/api/v1/{identifier}/prompt": {
            "parameters": [
                _IDENTIFIER,
                {
                    "name": "phase",
                    "in": "query",
                    "required": False,
                    "schema": {"type": "string"},
                    "description": "As if the work were in this phase.",
                },
            ],
            "get": _operation(
                "prompt", "What a dispatch would send now.", models.Prompt, refusals=(400, 404, 409)
            ),
        },
        "/api/v1/{identifier}/transcript": {
            "parameters": [_IDENTIFIER, *_TRANSCRIPT_PART],
            "get": _operation(
                "transcript",
                "What the agent of a run was sent, said and did.",
                models.Transcript,
                refusals=(400, 404),
            ),
        },
        **{
            f"/api/v1/{{identifier}}/{verb}": {"parameters": [_IDENTIFIER], "post": _action(verb, 404, 409)}
            for verb in ISSUE_ACTIONS
        },
        "/api/v1/{identifier}/feedback": {
            "parameters": [_IDENTIFIER],
            "post": {
                **_operation(
                    "feedback",
                    "Say how good the work was; skills may be improved by it.",
                    models.Feedback,
                    status=202,
                    refusals=(400, 404, 408, 409, 413, 415),
                ),
                "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(models.Stars)}}},
            },
        },
        **{f"/api/v1/control/{verb}": {"post": _action(verb)} for verb in DAEMON_ACTIONS},
        **_library_paths(),
        "/skills.json": {
            "get": _operation(
                "skills", "The skills beside WORKFLOW.md, and their use.", models.SkillsOverview
            )
        },
        "/system.json": {
            "get": _operation("system", "The program, its settings and its checks.", models.System)
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "The metrics of the daemon, for Prometheus.",
                "responses": {
                    "200": {
                        "description": "The text format of Prometheus.",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    },
                    **{str(code): _response(_REFUSALS[code], models.Error) for code in (401, 403, 405, 500)},
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
        ("page", "Which page, 50 rows each.", {"type": "integer", "minimum": 1, "maximum": MAX_PAGES})
    )
    version = {"type": "integer", "minimum": 1, "maximum": MAX_COUNT}
    skills = "/api/v1/library/skills"
    proposals = "/api/v1/library/proposals"
    return {
        skills: {
            "parameters": [
                *_query(
                    ("q", "Only skills with all these words.", {"type": "string"}),
                    ("learned", "1: only learned skills.", {"enum": ["1"]}),
                ),
                *page,
            ],
            "get": _operation(
                "library_skills", "The skills of the library.", models.LibrarySkills, refusals=(400, 409)
            ),
        },
        f"{skills}/{{name}}": {
            "parameters": [_SKILL, *_query(("version", "The newest by default.", version))],
            "get": _operation(
                "library_skill", "A skill and its history.", models.LibrarySkillPage, refusals=(400, 404, 409)
            ),
        },
        f"{skills}/{{name}}/diff": {
            "parameters": [
                _SKILL,
                *(
                    {**each, "required": True}
                    for each in _query(("old", "A version.", version), ("new", "Another one.", version))
                ),
            ],
            "get": _operation(
                "library_diff", "What two versions differ in.", models.LibraryDiff, refusals=(400, 404, 409)
            ),
        },
        "/api/v1/library/assignments": {
            "get": _operation(
                "library_assignments",
                "Which issue or agent gets which skills.",
                models.LibraryAssignments,
                refusals=(409,),
            )
        },
        proposals: {
            "parameters": [*_query(("state", "open by default.", {"enum": list(PROPOSAL_STATES)})), *page],
            "get": _operation(
                "library_proposals",
                "Changes that wait for a person.",
                models.LibraryProposals,
                refusals=(400, 409),
            ),
        },
        f"{proposals}/{{id}}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": version}],
            "get": _operation(
                "library_proposal",
                "A proposal and its diff.",
                models.LibraryProposalPage,
                refusals=(400, 404, 409),
            ),
        },
        "/api/v1/library/check": {
            "post": _edit("library_check", "Check a SKILL.md.", models.LibraryDraft, models.LibraryCheck)
        },
        **{
            f"/api/v1/library/{verb}": {
                "post": _edit(f"library_{verb}", _first_line(kind), kind, models.LibraryChanged)
            }
            for verb, kind in EDITS.items()
        },
    }


def _edit(
    name: str, summary: str, body: type[models.Document], answered: type[models.Document]
) -> dict[str, Any]:
    return {
        **_operation(name, summary, answered, refusals=(400, 404, 408, 409, 413, 415)),
        "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(body)}}},
    }


def _first_line(kind: type[models.Document]) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _selection() -> list[dict[str, Any]]:
    """The query parameters that select the listed issues; counts are of all issues."""
    texts = {"type": "array", "items": {"type": "string"}}
    codes = {"type": "array", "items": {"enum": list(REASON_CODES)}}
    return _query(
        (
            "waiting",
            "List at most this number of waiting issues, the first to start.",
            {"type": "integer", "minimum": 0, "maximum": 999_999_999},
        ),
        ("q", "List only issues with this text in their identifier or title.", {"type": "string"}),
        ("state", "List only issues in these states.", texts),
        ("reason", "List only issues with these codes.", codes),
    )


def _run_query() -> list[dict[str, Any]]:
    """The query parameters that select runs."""
    texts = {"type": "array", "items": {"type": "string"}}
    return _query(
        (
            "since",
            "Only runs that started within this age: 90m, 12h, 30d or 4w.",
            {"type": "string", "pattern": AGE_PATTERN},
        ),
        ("by", "What to make sums by.", {"enum": [*RUN_SUMS, ""]}),
        ("issue", "Only runs of these issues, by identifier.", texts),
        ("agent", "Only runs of these agents, by name.", texts),
        ("outcome", "Only runs that ended so.", {"type": "array", "items": {"enum": [*RUN_OUTCOMES, ""]}}),
        (
            "limit",
            "List at most this number of runs; sums are of all selected ones.",
            {"type": "integer", "minimum": 0, "maximum": MAX_RUNS, "default": MAX_RUNS},
        ),
    )


def _query(*parameters: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": False, "description": text, "schema": schema}
        for name, text, schema in parameters
    ]


_IDENTIFIER = {
    "name": "identifier",
    "in": "path",
    "required": True,
    "description": "The issue's identifier, percent-encoded; a slash is %2F. Fixed routes take precedence.",
    "schema": {"type": "string", "minLength": 1},
}

_SKILL = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "The name of a skill of the library.",
    "schema": {"type": "string", "pattern": "^[a-z0-9-]{1,64}$"},
}

_AFTER = [
    {
        "name": name,
        "in": place,
        "required": False,
        "description": "The id of the last event that was seen; without it everything has changed.",
        "schema": {"type": "string", "pattern": "^[0-9a-f-]*$"},
    }
    for name, place in (("after", "query"), ("Last-Event-ID", "header"))
]

_TRANSCRIPT_PART = [
    {"name": name, "in": "query", "required": False, "description": text, "schema": schema}
    for name, text, schema in (
        ("run", "The id of the run, or the begin of it; the latest run by default.", {"type": "string"}),
        (
            "after",
            "The first entries after this number; the last entries by default.",
            {"type": "integer", "minimum": 0, "maximum": MAX_COUNT},
        ),
        (
            "limit",
            "How many entries; an answer has at most 4 MiB of them. 0 stands for the default, 200.",
            {"type": "integer", "minimum": 0, "maximum": MAX_PAGE},
        ),
    )
]

_ACTIONS = {
    "stop": "Stop the run of the issue, and block the issue until it is retried.",
    "retry": "Retry the issue now.",
    "unblock": "Give the issue a new budget, and retry it.",
    "answer": "Answer the question of the issue's agent, and let it continue.",
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


def _action(verb: str, *refusals: int) -> dict[str, Any]:
    body = _BODIES.get(verb, models.Trigger)
    return {
        **_operation(verb, _ACTIONS[verb], models.Verb, status=202, refusals=(400, *refusals, 408, 413, 415)),
        "requestBody": {
            "required": body is not models.Trigger,
            "content": {_JSON: {"schema": _ref(body)}},
        },
    }


def _operation(
    name: str,
    summary: str,
    schema: type[models.Document],
    *,
    status: int = 200,
    refusals: tuple[int, ...] = (),
    failures: tuple[int, ...] = (503,),
) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            str(status): _response("The answer.", schema),
            **_refusals(*refusals, *failures, 401, 403, 405, 500),
        },
    }


def _refusals(*codes: int) -> dict[str, Any]:
    return {str(code): _response(_REFUSALS[code], models.Error) for code in sorted({*codes})}


def _response(text: str, schema: type[models.Document]) -> dict[str, Any]:
    return {"description": text, "content": {_JSON: {"schema": _ref(schema)}}}


def _ref(kind: type[models.Document]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}

"""The parameters of paths and queries: functions that read them, and their description.

`PARAMETERS` describes the parts that a route reads (`routes.Resource.reads`).
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from symphony.api.http import RequestError
from symphony.api.interface import (
    AGE_PATTERN,
    API_PREFIX,
    MAX_RUNS,
    REASON_CODES,
    RUN_OUTCOMES,
    RUN_SUMS,
    RunQuery,
    TranscriptQuery,
)
from symphony.api.library import MAX_PAGES, PROPOSAL_STATES
from symphony.domain import MAX_COUNT, Selection, age_seconds
from symphony.journal.transcripts import MAX_PAGE
from symphony.workspaces import MAX_BRANCHES

DEFAULT_PAGE: Final = 200
"""How many entries of a transcript an answer has by default."""
_MAX_DIGITS: Final = 9
_MAX_NAME: Final = 100
_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


# --- reading ---------------------------------------------------------------------------------------------


def identifier(request: Request) -> str:
    """The issue identifier in the path, percent-decoded once; `%2F` is a slash in the identifier.

    Raises:
        RequestError: 400: the path is not percent-encoded UTF-8.
    """
    raw = str(request.path_params["identifier"])
    if _BROKEN_ESCAPE.search(raw):
        raise RequestError(400, "bad_request", "the path contains a % without two hex digits")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(400, "bad_request", "the path is not UTF-8") from None


def selection(request: Request) -> Selection:
    """The issues that the query selects: `waiting` and `q` once, `state` and `reason` any number of times.

    Raises:
        RequestError: 400: `waiting` is not a number, or a code does not exist.
    """
    query = request.query_params
    limit = query.get("waiting")
    if limit is not None and not (limit.isascii() and limit.isdecimal() and len(limit) <= _MAX_DIGITS):
        raise RequestError(400, "bad_request", "waiting is how many waiting issues to list: 0, 1, 2, …")
    codes = frozenset(query.getlist("reason"))
    if codes - {*REASON_CODES}:
        raise RequestError(400, "bad_request", f"reason is one of {', '.join(REASON_CODES)}")
    return Selection(
        limit=None if limit is None else int(limit),
        states=frozenset(query.getlist("state")),
        codes=codes,
        text=query.get("q", "").strip(),
    )


def identifiers(request: Request) -> tuple[str, ...]:
    """The issues that a query names by `issue`, any number of times.

    Raises:
        RequestError: 400: there are too many.
    """
    named = tuple(filter(None, request.query_params.getlist("issue")))
    if len(named) > MAX_BRANCHES:
        raise RequestError(400, "bad_request", f"at most {MAX_BRANCHES} issues can be named")
    return named


def run_query(request: Request) -> RunQuery:
    """The runs that the query selects: `since`, `by` and `limit` once, the others any number of times.

    An empty value counts as none, because forms send it.

    Raises:
        RequestError: 400: a value is invalid.
    """
    query = request.query_params
    since, by, limit = query.get("since", ""), query.get("by"), query.get("limit", str(MAX_RUNS))
    issues, agents, outcomes = (
        frozenset(filter(None, query.getlist(name))) for name in ("issue", "agent", "outcome")
    )
    if not re.fullmatch(AGE_PATTERN, since):
        raise RequestError(400, "bad_request", "since is an age: 90m, 12h, 30d or 4w")
    if by and by not in RUN_SUMS:
        raise RequestError(400, "bad_request", f"by is one of {', '.join(RUN_SUMS)}")
    if outcomes - {*RUN_OUTCOMES}:
        raise RequestError(400, "bad_request", f"outcome is one of {', '.join(RUN_OUTCOMES)}")
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= _MAX_DIGITS) or int(limit) > MAX_RUNS:
        raise RequestError(400, "bad_request", f"limit is how many runs to list: 0 to {MAX_RUNS}")
    return RunQuery(
        since_s=age_seconds(since),
        by=by or None,
        issues=issues,
        agents=agents,
        outcomes=outcomes,
        limit=int(limit),
    )


def reviewer(request: Request) -> str | None:
    """The reviewer; `None` if none is named.

    Raises:
        RequestError: 400: the name is too long.
    """
    name = request.query_params.get("reviewer") or None
    if name is not None and len(name) > _MAX_NAME:
        raise RequestError(400, "bad_request", f"reviewer has at most {_MAX_NAME} characters")
    return name and f"{API_PREFIX}{name}"


def commit(request: Request, name: str) -> str | None:
    """A commit of a change in the query, `None` without one.

    Raises:
        RequestError: 400: it is not a full object id.
    """
    given = request.query_params.get(name) or None
    if given is not None and not _COMMIT.fullmatch(given):
        raise RequestError(400, "bad_request", f"{name} is the whole id of a commit")
    return given


def number(request: Request, name: str, *, at_most: int) -> int | None:
    """The number in the query, `None` without one.

    Raises:
        RequestError: 400: it is not a number from 0 to `at_most`.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= len(str(at_most)) and int(text) <= at_most:
        return int(text)
    raise RequestError(400, "bad_request", f"{name} is a number from 0 to {at_most}")


def transcript_part(request: Request) -> TranscriptQuery:
    """The part of a transcript that the query selects; each parameter once.

    Raises:
        RequestError: 400: a value is not a number, or both `after` and `before` are given.
    """
    after, before = (number(request, name, at_most=MAX_COUNT) for name in ("after", "before"))
    if after is not None and before is not None:
        raise RequestError(400, "bad_request", "after and before exclude each other")
    return TranscriptQuery(
        run=request.query_params.get("run") or None,
        after=after,
        before=before,
        limit=number(request, "limit", at_most=MAX_PAGE) or DEFAULT_PAGE,
        text=request.query_params.get("q", "").strip(),
    )


def only_learned(request: Request) -> bool:
    """Whether the query selects only learned skills.

    Raises:
        RequestError: 400: the value is invalid.
    """
    learned = request.query_params.get("learned")
    if learned not in {None, "1"}:
        raise RequestError(400, "bad_request", "learned is 1, or missing")
    return learned is not None


def versions(request: Request) -> tuple[int, int]:
    """The two versions to compare.

    Raises:
        RequestError: 400: one is missing or not a number.
    """
    old, new = version_of(request, "old"), version_of(request, "new")
    if old is None or new is None:
        raise RequestError(400, "bad_request", "old and new are versions of the skill")
    return old, new


def page_of(request: Request) -> int:
    """The page in the query, the first one by default.

    Raises:
        RequestError: 400: it is not a number.
    """
    page = number(request, "page", at_most=MAX_PAGES)
    if page == 0:
        raise RequestError(400, "bad_request", "pages begin at 1")
    return page or 1


def version_of(request: Request, name: str) -> int | None:
    """The version in the query.

    Raises:
        RequestError: 400: it is not a number.
    """
    version = number(request, name, at_most=MAX_COUNT)
    if version == 0:
        raise RequestError(400, "bad_request", "versions begin at 1")
    return version


def proposal_state(request: Request) -> str:
    """The state in the query, `open` by default.

    Raises:
        RequestError: 400: there is no such state.
    """
    state = request.query_params.get("state", PROPOSAL_STATES[0])
    if state not in PROPOSAL_STATES:
        raise RequestError(400, "bad_request", f"state is one of {', '.join(PROPOSAL_STATES)}")
    return state


def proposal_id(request: Request) -> int:
    """The number of a proposal in the path.

    Raises:
        RequestError: 404: it is not a number.
    """
    text = str(request.path_params["id"])
    if not (text.isascii() and text.isdecimal() and int(text[:20]) <= MAX_COUNT):
        raise RequestError(404, "not_in_library", "the number of a proposal is 1, 2, …")
    return int(text)


# --- describing ------------------------------------------------------------------------------------------


def _query(name: str, text: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "description": text, "schema": schema}


def _path(name: str, text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": text, "schema": schema}


def _event_id(name: str, place: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": False,
        "description": "The id of the last event that was seen; without it everything has changed.",
        "schema": {"type": "string", "pattern": "^[0-9a-f-]*$"},
    }


_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_NUMBERED: Final = {"type": "integer", "minimum": 1, "maximum": MAX_COUNT}
PARAMETERS: Final[Mapping[str, tuple[dict[str, Any], ...]]] = {
    "identifier": (
        _path(
            "identifier",
            "The issue's identifier, percent-encoded; a slash is %2F. Fixed routes take precedence.",
            {"type": "string", "minLength": 1},
        ),
    ),
    "reviewer": (
        _query(
            "reviewer",
            "Who looks; a later decision of the same reviewer is about the commit that this answer shows.",
            {"type": "string", "maxLength": _MAX_NAME},
        ),
    ),
    "commits": (
        _query(
            "since",
            "What is new since this commit, which was delivered earlier.",
            {"type": "string", "pattern": f"^({_COMMIT.pattern})?$"},
        ),
        _query(
            "until",
            "What was there at this commit, which was delivered earlier; no decision is possible about it.",
            {"type": "string", "pattern": f"^({_COMMIT.pattern})?$"},
        ),
    ),
    "phase": (_query("phase", "As if the work were in this phase.", {"type": "string"}),),
    "selection": (  # filters the listed issues; counts are of all
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
    ),
    "identifiers": (
        _query("issue", "Only the branches of these issues; of all ready ones by default.", _TEXTS),
    ),
    "run_query": (
        _query(
            "since",
            "Only runs that started within this age: 90m, 12h, 30d or 4w.",
            {"type": "string", "pattern": AGE_PATTERN},
        ),
        _query("by", "What to make sums by.", {"enum": [*RUN_SUMS, ""]}),
        _query("issue", "Only runs of these issues, by identifier.", _TEXTS),
        _query("agent", "Only runs of these agents, by name.", _TEXTS),
        _query(
            "outcome", "Only runs that ended so.", {"type": "array", "items": {"enum": [*RUN_OUTCOMES, ""]}}
        ),
        _query(
            "limit",
            "List at most this number of runs; sums are of all selected ones.",
            {"type": "integer", "minimum": 0, "maximum": MAX_RUNS, "default": MAX_RUNS},
        ),
    ),
    "transcript_part": (
        _query(
            "run", "The id of the run, or the begin of it; the latest run by default.", {"type": "string"}
        ),
        _query(
            "after",
            "The first entries after this number; the last entries by default.",
            {"type": "integer", "minimum": 0, "maximum": MAX_COUNT},
        ),
        _query(
            "before",
            "The last entries before this number; not together with `after`.",
            {"type": "integer", "minimum": 0, "maximum": MAX_COUNT},
        ),
        _query("q", "Only entries with this text, in upper or lower case.", {"type": "string"}),
        _query(
            "limit",
            "How many entries; an answer has at most 4 MiB of them. 0 stands for the default, 200.",
            {"type": "integer", "minimum": 0, "maximum": MAX_PAGE},
        ),
    ),
    "last_event": (_event_id("after", "query"), _event_id("Last-Event-ID", "header")),
    "page": (
        _query("page", "Which page, 50 rows each.", {"type": "integer", "minimum": 1, "maximum": MAX_PAGES}),
    ),
    "skill_search": (
        _query("q", "Only skills with all these words.", {"type": "string"}),
        _query("learned", "1: only learned skills.", {"enum": ["1"]}),
    ),
    "skill_name": (
        _path(
            "name",
            "The name of a skill of the library.",
            {"type": "string", "pattern": "^[a-z0-9-]{1,64}$"},
        ),
    ),
    "version": (_query("version", "The newest by default.", _NUMBERED),),
    "versions": (
        _query("old", "A version.", _NUMBERED, required=True),
        _query("new", "Another one.", _NUMBERED, required=True),
    ),
    "proposal_state": (_query("state", "open by default.", {"enum": list(PROPOSAL_STATES)}),),
    "proposal_id": ({"name": "id", "in": "path", "required": True, "schema": _NUMBERED},),
}
"""The parameters in the description, by the name of the function that reads them."""

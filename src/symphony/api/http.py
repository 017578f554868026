"""Reads requests within limits, and makes responses: JSON, one error envelope, security headers."""

import re
from collections.abc import Mapping
from html import escape
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import anyio
import msgspec
from msgspec import UNSET, UnsetType, structs
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from symphony.api.documents import REASON_CODES
from symphony.api.interface import (
    AGE_PATTERN,
    MAX_ANSWER_CHARS,
    MAX_RUNS,
    MAX_STATE_CHARS,
    RUN_OUTCOMES,
    RUN_SUMS,
    RunQuery,
)
from symphony.api.models import Answer, Document, Error, ErrorFacts, Move, OwedChoice, Stars, Trigger
from symphony.domain import DECODE_ERRORS, Selection, age_seconds, plain_text
from symphony.workspaces import MAX_BRANCHES

MAX_HEAD_BYTES: Final = 32_768
MAX_BODY_BYTES: Final = 65_536
MAX_ANSWER_BYTES: Final = 4 * MAX_BODY_BYTES
MAX_WEBHOOK_BYTES: Final = 1_048_576
MAX_EDIT_BYTES: Final = 1_048_576
"""The largest body with a skill of the library."""
BODY_TIMEOUT_S: Final = 5.0
_MAX_DIGITS: Final = 9
_MAX_FIELDS: Final = 32
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CLOSE: Mapping[str, str] = {"connection": "close"}  # the rest of the body is not read

SECURITY_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of every answer that does not have its own of that name."""
PAGE_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",  # with `no-referrer`, browsers send forms with `Origin: null`
}
"""Headers of every page. There is no inline script or style."""

_Body = TypeVar("_Body", bound=Document)


# --- responses -------------------------------------------------------------------------------------------


class RequestError(HTTPException):
    """A request is refused; `code` is stable, `message` is for people and quotes nothing of the request."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code = code
        self.message = message


def answer(document: Document, *, status: int = 200) -> Response:
    """A document as JSON."""
    return encoded(document, status=status)


def encoded(value: object, *, status: int = 200) -> Response:
    """Any value as JSON."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def refusal(
    status: int,
    code: str,
    message: str,
    *,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
    generated_at: str | UnsetType = UNSET,
) -> Response:
    """The error envelope, with `generated_at` beside the error if it is set."""
    error = ErrorFacts(code=code, message=message, hint=UNSET if hint is None else hint)
    response = answer(Error(error=error, generated_at=generated_at), status=status)
    response.headers.update(headers or {})
    return response


def small_page(
    title: str, *blocks: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A page without navigation; `title` is text, `blocks` are HTML."""
    content = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} - Symphony</title>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{"".join(blocks)}
</main>
</body>
</html>
"""
    return HTMLResponse(content, status_code=status, headers={**PAGE_HEADERS, **(headers or {})})


def wants_page(headers: Headers) -> bool:
    """Whether a browser asks for a page, as opposed to a program or a script of a page."""
    return "text/html" in headers.get("accept", "")


# --- requests --------------------------------------------------------------------------------------------


def check_head(scope: Scope) -> None:
    """Limit the size of a request head.

    The server limits only heads that arrive in pieces.

    Raises:
        RequestError: 431.
    """
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
    if size > MAX_HEAD_BYTES:
        message = f"a request head has at most {MAX_HEAD_BYTES} bytes here"
        raise RequestError(431, "head_too_large", message, headers=_CLOSE)


def identifier(request: Request) -> str:
    """The issue identifier in the path, percent-decoded once; `%2F` is a slash of the identifier.

    Raises:
        RequestError: 400: the path is no percent-encoded UTF-8.
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
        RequestError: 400: `waiting` is no number, or a code does not exist.
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
        RequestError: 400: a value is none of those that are possible.
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


async def form_fields(request: Request) -> Mapping[str, str]:
    """The fields of a posted form; of fields with the same name, the last one.

    Raises:
        RequestError: 400, 408 or 413.
    """
    return dict(await form_pairs(request, MAX_ANSWER_BYTES, _MAX_FIELDS))


async def form_pairs(request: Request, limit: int, max_fields: int) -> list[tuple[str, str]]:
    """The names and values of a posted form of at most `limit` bytes.

    Raises:
        RequestError: 400, 408 or 413.
    """
    body = await read_body(request, limit)
    try:
        return parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=max_fields
        )
    except ValueError:  # also of bytes that are not UTF-8
        raise RequestError(400, "bad_request", "the body is not a form") from None


def number(request: Request, name: str, *, at_most: int) -> int | None:
    """The number in the query, `None` without one.

    Raises:
        RequestError: 400: it is no number from 0 to `at_most`.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= len(str(at_most)) and int(text) <= at_most:
        return int(text)
    raise RequestError(400, "bad_request", f"{name} is a number from 0 to {at_most}")


async def empty_object(request: Request) -> None:
    """Read a body that must be empty or an empty JSON object.

    Raises:
        RequestError: 400, 408 or 413.
    """
    body = await read_body(request, MAX_BODY_BYTES)
    if body:  # white space alone is no JSON
        _decoded(body, Trigger, "the body may only be empty or {}")


async def answer_text(request: Request) -> str:
    """The text of a person's answer, `{"text": "…"}`, without control characters.

    Raises:
        RequestError: 400, 408 or 413.
    """
    body = await read_body(request, MAX_ANSWER_BYTES)
    text = _decoded(body, Answer, 'the body must be {"text": "the answer"}').text
    if len(text) > MAX_ANSWER_CHARS:
        raise RequestError(400, "bad_request", f"an answer has at most {MAX_ANSWER_CHARS} characters")
    return plain_text(text)


async def move_target(request: Request) -> str:
    """The state to move an issue to, `{"state": "…"}`.

    Raises:
        RequestError: 400, 408 or 413.
    """
    body = await read_body(request, MAX_BODY_BYTES)
    state = _decoded(body, Move, 'the body must be {"state": "the state to move to"}').state
    if len(state) > MAX_STATE_CHARS:
        raise RequestError(400, "bad_request", f"a state has at most {MAX_STATE_CHARS} characters")
    return plain_text(state).strip()


async def owed_key(request: Request) -> str:
    """What of the outbox is meant, `{"key": "…"}`.

    Raises:
        RequestError: 400, 408 or 413.
    """
    body = await read_body(request, MAX_BODY_BYTES)
    return _decoded(body, OwedChoice, 'the body must be {"key": "a key, or an issue"}').key


async def rating(request: Request) -> Stars:
    """The feedback in a request, its comment without control characters.

    Raises:
        RequestError: 400, 408 or 413.
    """
    body = await read_body(request, MAX_ANSWER_BYTES)
    given = _decoded(body, Stars, 'the body must be {"stars": 1 to 5, "comment": "…", "learn": true}')
    if len(given.comment) > MAX_ANSWER_CHARS:
        raise RequestError(400, "bad_request", f"a comment has at most {MAX_ANSWER_CHARS} characters")
    return structs.replace(given, comment=plain_text(given.comment).strip())


async def library_body(request: Request, kind: type[_Body]) -> _Body:
    """A body about the library.

    Raises:
        RequestError: 400, 408 or 413.
    """
    body = await read_body(request, MAX_EDIT_BYTES)
    return _decoded(body, kind, f"the body must be a {kind.__name__}: see /api/v1/openapi.json")


def _decoded(body: bytes, kind: type[_Body], mismatch: str) -> _Body:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        raise RequestError(400, "bad_request", mismatch) from None
    except DECODE_ERRORS:
        raise RequestError(400, "bad_request", "the body is not JSON") from None


async def read_body(request: Request, limit: int) -> bytes:
    """The body, byte for byte; stops reading when it is too large or too slow.

    Raises:
        RequestError: 400, 408 or 413.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    chunks, size = [], 0
    try:
        with anyio.fail_after(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except TimeoutError:
        raise RequestError(
            408, "request_timeout", "the body did not arrive in time", headers=_CLOSE
        ) from None
    except ClientDisconnect:
        raise RequestError(400, "bad_request", "the body did not arrive") from None
    return b"".join(chunks)


def _too_large(limit: int) -> RequestError:
    message = f"a body has at most {limit} bytes here"
    return RequestError(413, "payload_too_large", message, headers=_CLOSE)

"""Reads requests within limits, and makes responses: JSON, one error envelope, security headers."""

from collections.abc import Mapping
from contextlib import suppress
from html import escape
from typing import Final, TypeVar
from urllib.parse import parse_qsl

import anyio
import msgspec
from msgspec import UNSET, UnsetType, structs
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from symphony import domain
from symphony.api import models
from symphony.api.interface import MAX_ANSWER_CHARS, MAX_STATE_CHARS

MAX_HEAD_BYTES: Final = 32_768
MAX_BODY_BYTES: Final = 65_536
MAX_ANSWER_BYTES: Final = 4 * MAX_BODY_BYTES
MAX_WEBHOOK_BYTES: Final = 1_048_576
MAX_EDIT_BYTES: Final = 1_048_576
"""The largest request body with a skill of the library."""
BODY_TIMEOUT_S: Final = 5.0
_MAX_FIELDS: Final = 32
_FORM: Final = "symphony.form"
"""The form fields in which people write."""
_CLOSE: Mapping[str, str] = {"connection": "close"}  # the rest of the body is not read

SECURITY_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of every answer that does not set them itself."""
PAGE_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",  # with `no-referrer`, browsers send forms with `Origin: null`
}
"""Headers of every page. There is no inline script or style."""

_Body = TypeVar("_Body", bound=models.Document)
_BODIES: Final[Mapping[type[models.Document], tuple[int, str]]] = {
    models.EmptyBody: (MAX_BODY_BYTES, "the body may only be empty or {}"),
    models.Answer: (MAX_ANSWER_BYTES, 'the body must be {"text": "the answer"}'),
    models.NewComment: (MAX_ANSWER_BYTES, 'the body must be {"text": "the comment"}'),
    models.Move: (MAX_BODY_BYTES, 'the body must be {"state": "the state to move to"}'),
    models.NewIssue: (
        MAX_ANSWER_BYTES,
        'the body must be {"title": "a title"}, and what else a new issue has',
    ),
    models.ScheduleChoice: (MAX_BODY_BYTES, 'the body must be {"name": "a schedule"}'),
    models.JobChoice: (MAX_BODY_BYTES, 'the body must be {"key": "a key, or an issue"}'),
    models.Stars: (MAX_ANSWER_BYTES, 'the body must be {"stars": 1 to 5, "comment": "…", "learn": true}'),
}
"""By type of body: the largest size in bytes, and the message for an invalid one."""


# --- responses -------------------------------------------------------------------------------------------


class RequestError(HTTPException):
    """A refused request; `code` is stable, `message` is for people and quotes nothing from the request."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code = code
        self.message = message


def answer(document: models.Document, *, status: int = 200) -> Response:
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
    """The error envelope, with `generated_at` beside the error if it is given."""
    error = models.ErrorFacts(code=code, message=message, hint=UNSET if hint is None else hint)
    response = answer(models.Error(error=error, generated_at=generated_at), status=status)
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
<link rel="icon" href="data:,">
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
    """Whether a browser asks for a page, and not a program or a script of a page."""
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


async def form_fields(request: Request) -> Mapping[str, str]:
    """The fields of a posted form; of fields with the same name, the last one.

    Raises:
        RequestError: 400, 408 or 413.
    """
    return dict(await form_pairs(request, MAX_ANSWER_BYTES, _MAX_FIELDS))


async def sent_fields(request: Request) -> Mapping[str, str]:
    """The fields of a refused form, whether they were read before or not; empty if there is no form."""
    if _FORM not in request.scope:
        with suppress(RequestError):
            await form_fields(request)
    return dict(request.scope.get(_FORM, ()))


async def form_pairs(request: Request, limit: int, max_fields: int) -> list[tuple[str, str]]:
    """The names and values of a posted form of at most `limit` bytes; those that were read before.

    Raises:
        RequestError: 400, 408 or 413.
    """
    if _FORM in request.scope:
        return list(request.scope[_FORM])
    body = await read_body(request, limit)
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=max_fields
        )
    except ValueError:  # also from bytes that are not UTF-8
        raise RequestError(400, "bad_request", "the body is not a form") from None
    request.scope[_FORM] = pairs
    return pairs


async def body_of(request: Request, kind: type[_Body]) -> _Body:
    """The document in a request; an empty `EmptyBody` needs no body.

    Raises:
        RequestError: 400, 408 or 413.
    """
    limit, mismatch = _BODIES.get(kind) or (
        MAX_EDIT_BYTES,
        f"the body must be a {kind.__name__}: see /api/v1/openapi.json",
    )
    body = await read_body(request, limit)
    if not body and kind is models.EmptyBody:  # white space alone is no JSON
        return kind()
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        raise RequestError(400, "bad_request", mismatch) from None
    except domain.DECODE_ERRORS:
        raise RequestError(400, "bad_request", "the body is not JSON") from None


def answer_text(given: models.Answer | models.NewComment) -> str:
    """The text of a person's answer or comment without control characters.

    Raises:
        RequestError: 400: it is too long.
    """
    if len(given.text) > MAX_ANSWER_CHARS:
        raise RequestError(400, "bad_request", f"the text has at most {MAX_ANSWER_CHARS} characters")
    return domain.plain_text(given.text)


def move_target(given: models.Move) -> str:
    """The state to move an issue to.

    Raises:
        RequestError: 400: it is too long.
    """
    if len(given.state) > MAX_STATE_CHARS:
        raise RequestError(400, "bad_request", f"a state has at most {MAX_STATE_CHARS} characters")
    return domain.plain_text(given.state).strip()


def new_issue(given: models.NewIssue) -> models.NewIssue:
    """The issue to create, without control characters.

    Raises:
        RequestError: 400: the title is empty, or something is too long.
    """
    labels = tuple(filter(None, (domain.plain_text(label).strip() for label in given.labels)))
    if any(len(text) > MAX_STATE_CHARS for text in (*given.labels, given.state or "", given.skill or "")):
        raise RequestError(400, "bad_request", f"a name has at most {MAX_STATE_CHARS} characters")
    title = domain.one_line(domain.plain_text(given.title).strip(), domain.MAX_ISSUE_TITLE_CHARS)
    if not title or len(given.title) > domain.MAX_ISSUE_TITLE_CHARS:
        raise RequestError(400, "bad_request", f"a title has 1 to {domain.MAX_ISSUE_TITLE_CHARS} characters")
    if len(given.body) > domain.MAX_ISSUE_BODY_CHARS:
        raise RequestError(400, "bad_request", f"a body has at most {domain.MAX_ISSUE_BODY_CHARS} characters")
    return models.NewIssue(
        title=title,
        body=domain.plain_text(given.body),
        state=domain.plain_text(given.state or "").strip() or None,
        labels=labels,
        skill=domain.plain_text(given.skill or "").strip() or None,
    )


def rating(given: models.Stars) -> models.Stars:
    """The feedback, its comment without control characters.

    Raises:
        RequestError: 400: the comment is too long.
    """
    if len(given.comment) > MAX_ANSWER_CHARS:
        raise RequestError(400, "bad_request", f"a comment has at most {MAX_ANSWER_CHARS} characters")
    return structs.replace(given, comment=domain.plain_text(given.comment).strip())


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

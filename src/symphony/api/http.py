"""What is read out of a request, within bounds: an identifier from its path, an object from its body."""

import re
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import anyio
import msgspec
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from symphony.api.documents import REASON_CODES
from symphony.api.interface import MAX_ANSWER_CHARS
from symphony.api.models import Answer, Document, Error, ErrorFacts, Trigger
from symphony.domain import DECODE_ERRORS, Selection, plain_text

# How every answer looks: JSON, one error envelope, headers that keep browsers harmless.


SECURITY_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class RequestError(HTTPException):
    """A request that is not served; `code` is stable, `message` is for people and holds no text of theirs."""

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
    """Anything that can be written as JSON."""
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
    """The error envelope; `generated_at` stands beside it where it is told."""
    error = ErrorFacts(code=code, message=message, hint=UNSET if hint is None else hint)
    response = answer(Error(error=error, generated_at=generated_at), status=status)
    response.headers.update(headers or {})
    return response


_Question = TypeVar("_Question", Answer, Trigger)

MAX_HEAD_BYTES = 32_768
MAX_BODY_BYTES = 65_536
MAX_ANSWER_BYTES = 4 * MAX_BODY_BYTES
MAX_DELIVERY_BYTES = 1_048_576
BODY_TIMEOUT_S = 5.0
_HANG_UP = {"connection": "close"}  # what is left of the body is of no interest
_MOST_DIGITS = 9
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def check_head(scope: Scope) -> None:
    """See that the head of a request is no larger than it may be.

    The server's own bound is for a head that is not complete yet: one that comes at once gets past it.

    Raises:
        RequestError: 431.
    """
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
    if size > MAX_HEAD_BYTES:
        message = f"a request head has at most {MAX_HEAD_BYTES} bytes here"
        raise RequestError(431, "head_too_large", message, headers=_HANG_UP)


def identifier(request: Request) -> str:
    """The issue identifier in the path, percent-decoded once; `%2F` is a slash of the identifier.

    Raises:
        RequestError: 400: it is not the encoding of a text.
    """
    raw = str(request.path_params["identifier"])
    if _BROKEN_ESCAPE.search(raw):
        raise RequestError(400, "bad_request", "the path holds a % without two hex digits")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(400, "bad_request", "the path is not UTF-8") from None


def selection(request: Request) -> Selection:
    """The issues that the query asks for: `waiting` once, `state` and `reason` any number of times.

    Raises:
        RequestError: 400: a number that is none, or a code that does not exist.
    """
    asked = request.query_params
    most = asked.get("waiting")
    if most is not None and not (most.isascii() and most.isdecimal() and len(most) <= _MOST_DIGITS):
        raise RequestError(400, "bad_request", "waiting is how many waiting issues to list: 0, 1, 2, …")
    codes = frozenset(asked.getlist("reason"))
    if codes - {*REASON_CODES}:
        raise RequestError(400, "bad_request", f"reason is one of {', '.join(REASON_CODES)}")
    return Selection(
        limit=None if most is None else int(most), states=frozenset(asked.getlist("state")), codes=codes
    )


async def empty_object(request: Request) -> None:
    """Read the body of a trigger: nothing, or an empty JSON object.

    Raises:
        RequestError: 400, 408 or 413.
    """
    body = await _body(request, MAX_BODY_BYTES)
    if body:  # blanks alone are no JSON
        _decoded(body, Trigger, "the body may only be empty or {}")


async def answer_text(request: Request) -> str:
    """The text of a person's answer, `{"text": "…"}`, without what would steer a terminal.

    Raises:
        RequestError: 400, 408 or 413.
    """
    body = await _body(request, MAX_ANSWER_BYTES)
    text = _decoded(body, Answer, 'the body is to be {"text": "the answer"}').text
    if len(text) > MAX_ANSWER_CHARS:
        raise RequestError(400, "bad_request", f"an answer has at most {MAX_ANSWER_CHARS} characters")
    return plain_text(text)


async def delivered(request: Request) -> bytes:
    """What a tracker sent, as it came: its signature is over these bytes.

    Raises:
        RequestError: 400, 408 or 413.
    """
    return await _body(request, MAX_DELIVERY_BYTES)


def _decoded(body: bytes, kind: type[_Question], else_say: str) -> _Question:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        raise RequestError(400, "bad_request", else_say) from None
    except DECODE_ERRORS:
        raise RequestError(400, "bad_request", "the body is not JSON") from None


async def _body(request: Request, limit: int) -> bytes:
    """The body, given up as soon as it is known to be too large or too slow."""
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
            408, "request_timeout", "the body did not arrive in time", headers=_HANG_UP
        ) from None
    except ClientDisconnect:
        raise RequestError(400, "bad_request", "the body did not arrive") from None
    return b"".join(chunks)


def _too_large(limit: int) -> RequestError:
    message = f"a body has at most {limit} bytes here"
    return RequestError(413, "payload_too_large", message, headers=_HANG_UP)

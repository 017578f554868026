"""What is read out of a request, within bounds: an identifier from its path, an object from its body."""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request

from symphony.domain.decoding import UNREADABLE
from symphony.domain.plain import plain
from symphony.web.answers import RefusedError
from symphony.web.port import MAX_ANSWER_CHARS

__all__ = ["MAX_BODY_BYTES", "MAX_DELIVERY_BYTES", "answer_text", "delivered", "empty_object", "identifier"]

MAX_BODY_BYTES = 65_536
MAX_ANSWER_BYTES = 4 * MAX_BODY_BYTES
MAX_DELIVERY_BYTES = 1_048_576
BODY_TIMEOUT_S = 5.0
_HANG_UP = {"connection": "close"}  # what is left of the body is of no interest
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def identifier(request: Request) -> str:
    """The issue identifier in the path, percent-decoded once; `%2F` is a slash of the identifier (AP6).

    Raises:
        RefusedError: 400: it is not the encoding of a text.
    """
    raw = str(request.path_params["identifier"])
    if _BROKEN_ESCAPE.search(raw):
        raise RefusedError(400, "bad_request", "the path holds a % without two hex digits")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError(400, "bad_request", "the path is not UTF-8") from None


async def empty_object(request: Request) -> None:
    """Read the body of a trigger: nothing, or an empty JSON object (AP7).

    Raises:
        RefusedError: 400, 408 or 413.
    """
    body = await _body(request, MAX_BODY_BYTES)
    if body and _json(body) != {}:  # blanks alone are no JSON
        raise RefusedError(400, "bad_request", "the body may only be empty or {}")


async def answer_text(request: Request) -> str:
    """The text of a person's answer, `{"text": "…"}`, without what would steer a terminal.

    Raises:
        RefusedError: 400, 408 or 413.
    """
    value = _json(await _body(request, MAX_ANSWER_BYTES))
    match value:
        case {"text": str(text)} if len(value) == 1:
            pass
        case _:
            raise RefusedError(400, "bad_request", 'the body is to be {"text": "the answer"}')
    if len(text) > MAX_ANSWER_CHARS:
        raise RefusedError(400, "bad_request", f"an answer has at most {MAX_ANSWER_CHARS} characters")
    return plain(text)


async def delivered(request: Request) -> bytes:
    """What a tracker sent, as it came: its signature is over these bytes.

    Raises:
        RefusedError: 400, 408 or 413.
    """
    return await _body(request, MAX_DELIVERY_BYTES)


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except UNREADABLE:
        raise RefusedError(400, "bad_request", "the body is not JSON") from None


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
        raise RefusedError(
            408, "request_timeout", "the body did not arrive in time", headers=_HANG_UP
        ) from None
    except ClientDisconnect:
        raise RefusedError(400, "bad_request", "the body did not arrive") from None
    return b"".join(chunks)


def _too_large(limit: int) -> RefusedError:
    message = f"a body has at most {limit} bytes here"
    return RefusedError(413, "payload_too_large", message, headers=_HANG_UP)

"""How every answer looks: JSON, one error envelope (AP8), headers that keep browsers harmless."""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.responses import Response

from symphony.observability.model import Document, Error, ErrorFacts

__all__ = ["SECURITY_HEADERS", "RefusedError", "answer", "encoded", "refusal"]

SECURITY_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class RefusedError(HTTPException):
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

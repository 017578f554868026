"""How every answer looks: JSON, one error envelope (AP8), headers that keep browsers harmless."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

__all__ = ["SECURITY_HEADERS", "RefusedError", "answer", "refusal"]

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


def answer(document: Mapping[str, Any], *, status: int = 200) -> Response:
    """A document as JSON."""
    return Response(msgspec.json.encode(document), status_code=status, media_type="application/json")


def refusal(
    status: int,
    code: str,
    message: str,
    *,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """The error envelope; `more` stands beside it."""
    error = {"code": code, "message": message} | ({} if hint is None else {"hint": hint})
    response = answer({**more, "error": error}, status=status)
    response.headers.update(headers or {})
    return response

"""What Codex calls an error, as a `Failure` (AGENT-FACTS 7; AG12).

`codexErrorInfo` is a name, or a map with one name that may hold an HTTP status. The status decides before the
name does; what is unknown is a failed turn that may be tried again.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure

__all__ = [
    "INSTALL_HINT",
    "LOGIN_HINT",
    "UNEXPLAINED",
    "describe_error",
    "login_hint",
    "turn_failure",
]

INSTALL_HINT = "install it with `npm install -g @openai/codex`, or set codex.command to where it is"
LOGIN_HINT = "run `codex login` as the user of the daemon, or set the API key that the model provider names"


def login_hint(home: str) -> str:
    """As `LOGIN_HINT`, for an agent that lives in a home of the daemon's own."""
    return (
        f"run `CODEX_HOME={shlex.quote(home)} codex login` as the user of the daemon, or set OPENAI_API_KEY"
    )


_BY_STATUS = {401: Category.AGENT_AUTH, 403: Category.AGENT_AUTH, 429: Category.AGENT_RATE_LIMITED}
_BY_NAME = {
    "unauthorized": Category.AGENT_AUTH,
    "usageLimitExceeded": Category.AGENT_USAGE_LIMIT,
    "sessionBudgetExceeded": Category.AGENT_USAGE_LIMIT,
    "rateLimitExceeded": Category.AGENT_RATE_LIMITED,
    "contextWindowExceeded": Category.AGENT_CONTEXT_FULL,
}
_MISSING_KEY = "Missing environment variable"
_HINTS = {
    Category.AGENT_AUTH: LOGIN_HINT,
    Category.AGENT_USAGE_LIMIT: "wait for the limit to reset, or use another account or model",
}


def turn_failure(error: Mapping[str, Any]) -> Failure:
    """The failure behind a `TurnError` object; an empty object is a turn that failed without saying why."""
    name, status = _name_and_status(error.get("codexErrorInfo"))
    message = describe_error(error)
    if name == "modelNotFound":
        return _model_not_found(message)
    if name == "sandboxError":
        return Failure(category=Category.TURN_FAILED, blame=Blame.HOST, message=message)
    category = _category(name, status, message)
    return Failure(
        category=category,
        blame=Blame.AGENT,
        message=message,
        retryable=category is not Category.AGENT_AUTH,
        hint=_HINTS.get(category),
    )


def describe_error(error: Mapping[str, Any]) -> str:
    """Message and details of a `TurnError`, one redacted line."""
    parts = [
        part for key in ("message", "additionalDetails") if isinstance(part := error.get(key), str) and part
    ]
    return redact(": ".join(parts)) or "the turn failed without a message"


def _model_not_found(message: str) -> Failure:
    return Failure(
        category=Category.TURN_FAILED,
        blame=Blame.CONFIG,
        message=message,
        retryable=False,
        hint="set codex.model to a model that this account can use",
    )


def _category(name: str, status: int | None, message: str) -> Category:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if message.startswith(_MISSING_KEY):
        return Category.AGENT_AUTH
    return Category.TURN_FAILED


def _name_and_status(info: object) -> tuple[str, int | None]:
    if isinstance(info, str):
        return info, None
    if isinstance(info, dict) and len(info) == 1:
        name, details = next(iter(info.items()))
        status = details.get("httpStatusCode") if isinstance(details, dict) else None
        return str(name), status if isinstance(status, int) else None
    return "", None


UNEXPLAINED = turn_failure({})

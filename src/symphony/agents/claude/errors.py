"""What Claude Code calls an error, as a `Failure` (AGENT-FACTS 7; AG12).

A failed turn says three things about itself, and each may be missing: the HTTP status of the model, a name
that stands at its last message, and a text for people. The subtype is "success" all the same.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["INSTALL_HINT", "login_hint", "turn_failure"]

INSTALL_HINT = (
    "install it with `npm install -g @anthropic-ai/claude-code`, or set claude.command to where it is"
)

_MODEL_HINT = "set claude.model to a model that this account can use"
_LIMIT_HINT = "wait for the limit to reset, or use another account or model"
_STATUSES = range(100, 600)
_AUTH_STATUS = frozenset({401, 403})
_NOT_LOGGED_IN = re.compile(r"not logged in|please run /login|invalid api key", re.IGNORECASE)
_USED_UP = re.compile(
    r"usage limit|credit balance|(?:hit|reached) your .{0,40}limit|\blimit reached\b"
    r"|out of (?:extra )?(?:usage|credits)",
    re.IGNORECASE,
)
_RESETS_AT = re.compile(r"\|(\d{10})\b")


def login_hint(home: Path | None = None) -> str:
    """How to log in; `home` is the private one of the agent, null for the user's own."""
    place = "" if home is None else f"CLAUDE_CONFIG_DIR={shlex.quote(str(home))} "
    return (
        f"run `{place}claude auth login` as the user of the daemon, "
        "or set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN where it starts"
    )


def turn_failure(result: Mapping[str, Any], name: str | None, *, now_s: float) -> Failure:
    """The failure behind a `result` that is an error.

    `name` is what its last message calls the error, null where there is none; `now_s` is the wall clock in
    Unix seconds, from which a reset is far away.
    """
    status = result.get("api_error_status")
    status = status if isinstance(status, int) and status in _STATUSES else None
    text = describe(result)
    category = _category(result, name, status, text)
    unknown_model = name == "model_not_found" or (name is None and status == 404)  # noqa: PLR2004 - HTTP
    hints = {Category.AGENT_AUTH: login_hint(), Category.AGENT_USAGE_LIMIT: _LIMIT_HINT}
    return Failure(
        category=category,
        blame=Blame.CONFIG if unknown_model else Blame.AGENT,
        message=redact(text),
        retryable=category is not Category.AGENT_AUTH and not unknown_model,
        hint=_MODEL_HINT if unknown_model else hints.get(category),
        retry_after_ms=_reset(text, now_s) if category is Category.AGENT_USAGE_LIMIT else None,
        status=status,
    )


def describe(result: Mapping[str, Any]) -> str:
    """What a `result` says to people; never empty."""
    errors = result.get("errors")
    told = [result.get("result"), *(errors if isinstance(errors, list) else [])]
    words = "; ".join(text for text in told if isinstance(text, str) and text.strip())
    return words or f"the turn failed without a message ({result.get('subtype') or 'no subtype'})"


def _category(result: Mapping[str, Any], name: str | None, status: int | None, text: str) -> Category:
    if name == "billing_error" or _USED_UP.search(text):
        return Category.AGENT_USAGE_LIMIT
    if status in _AUTH_STATUS or name == "authentication_failed" or _NOT_LOGGED_IN.search(text):
        return Category.AGENT_AUTH
    if result.get("terminal_reason") == "prompt_too_long" or text.startswith("Prompt is too long"):
        return Category.AGENT_CONTEXT_FULL
    if status == 429 or name == "rate_limit":  # noqa: PLR2004 - HTTP
        return Category.AGENT_RATE_LIMITED
    return Category.TURN_FAILED


def _reset(text: str, now_s: float) -> int | None:
    """Milliseconds until the time that some of the texts end with."""
    found = _RESETS_AT.search(text)
    return None if found is None else max(0, int((int(found[1]) - now_s) * 1000))

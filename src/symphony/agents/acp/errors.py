"""What an agent's JSON-RPC error or stop reason means, as a `Failure` (AGENT-FACTS 7; AG12). Pure.

The protocol has one code of its own for a missing login; everything else travels in words, and in `data` as
each agent likes. So words decide, and what is unknown is a failed turn that may be tried again.
"""

import re

from symphony.agents.acp.profiles import Profile
from symphony.agents.border import decoded
from symphony.agents.events import TurnEnded, TurnStatus
from symphony.agents.redaction import redact
from symphony.agents.wire.connection import Manner
from symphony.agents.wire.jsonrpc import Refusal
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["AUTH_REQUIRED", "in_words", "manner", "refused", "turn_end"]

AUTH_REQUIRED = -32_000
_MAX_DETAILS = 2_000
_RETRY_AFTER = re.compile(
    r"retry[ _-]?(?:delay|after|in)\W{0,5}(\d{1,6}(?:\.\d{1,9})?)\s*(ms|s)\b", re.IGNORECASE
)
_USAGE_LIMIT = (
    r"usage.?limit|insufficient.?quota|quota (?:was |is )?exceeded|exceeded your.{0,20}quota"
    r"|credit balance|out of credits?|billing|payment required"
)
_RATE_LIMIT = r"\b429\b|rate.?limit|too many requests|resource.?exhausted|overloaded"
_BAD_KEY = r"(?:invalid|incorrect|missing|not valid)"
_AUTH = (
    r"\b40[13]\b|unauthori[sz]ed|authenticat|not logged in|please log ?in|permission_denied"
    rf"|{_BAD_KEY}[^.]{{0,40}}api.?key|api.?key[^.]{{0,40}}{_BAD_KEY}"
)
_CONTEXT = (
    r"context.{0,12}(?:length|window|limit|overflow)|prompt is too long"
    r"|exceeds the maximum number of tokens|token count.{0,40}exceeds"
)
_WORDS: tuple[tuple[Category, re.Pattern[str]], ...] = tuple(
    (category, re.compile(words, re.IGNORECASE))
    for category, words in (
        (Category.AGENT_USAGE_LIMIT, _USAGE_LIMIT),
        (Category.AGENT_RATE_LIMITED, _RATE_LIMIT),
        (Category.AGENT_AUTH, _AUTH),
        (Category.AGENT_CONTEXT_FULL, _CONTEXT),
    )
)
_NO_MODEL = re.compile(
    r"model.{0,80}(?:not.?found|not supported|does not exist|unknown|invalid)"
    r"|(?:unknown|invalid|no such|unsupported).{0,20}model|not_found_error",
    re.IGNORECASE,
)


def manner(profile: Profile) -> Manner:
    """How the connection words what goes wrong with such an agent."""
    return Manner(
        missing=Category.AGENT_NOT_FOUND,
        install_hint=profile.install_hint,
        refusal=lambda answer: refused(answer, profile),
        versioned=True,
    )


def refused(answer: Refusal, profile: Profile) -> Failure:
    """The failure behind a JSON-RPC error: of the turn for a prompt, else of the request."""
    return _failure(_words_of(answer), answer.code, profile, method=answer.method)


def in_words(text: str, profile: Profile) -> Failure:
    """The failure of a turn that the agent told in words alone."""
    return _failure(text or "the turn used no tokens", 0, profile, method="session/prompt")


def _failure(text: str, code: int, profile: Profile, *, method: str) -> Failure:
    category = _category(code, text)
    if category is None and _NO_MODEL.search(text):
        return Failure(
            category=Category.TURN_FAILED,
            blame=Blame.CONFIG,
            message=redact(text),
            retryable=False,
            hint="set acp.model to a model that this account can use",
        )
    prompted = method == "session/prompt"
    message = text if prompted else f"{method} was refused: {text} ({code})"
    return Failure(
        category=category or (Category.TURN_FAILED if prompted else Category.RESPONSE_ERROR),
        blame=Blame.AGENT,
        message=redact(message),
        retryable=category is not Category.AGENT_AUTH,
        hint=_hint(category, profile),
        retry_after_ms=_retry_after_ms(text) if category is Category.AGENT_RATE_LIMITED else None,
    )


def turn_end(reason: object) -> TurnEnded:
    """The end of a turn by its `stopReason`.

    `max_turn_requests` completes: the agent paused after many calls of its model, and the next turn goes on.
    """
    match reason:
        case "end_turn" | "max_turn_requests":
            return TurnEnded(status=TurnStatus.COMPLETED)
        case "cancelled":
            return _ended(TurnStatus.INTERRUPTED, Category.TURN_CANCELLED, "the turn was cancelled")
        case "refusal":
            return _ended(TurnStatus.FAILED, Category.TURN_FAILED, "the agent refused to go on")
        case "max_tokens":
            text = "the model's limit of tokens was reached"
            return _ended(TurnStatus.FAILED, Category.AGENT_CONTEXT_FULL, text)
        case _:
            text = f"the turn ended with the unknown stop reason {redact(repr(reason), 100)}"
            return _ended(TurnStatus.FAILED, Category.TURN_FAILED, text)


def _ended(status: TurnStatus, category: Category, message: str) -> TurnEnded:
    return TurnEnded(status=status, failure=Failure(category=category, blame=Blame.AGENT, message=message))


def _words_of(answer: Refusal) -> str:
    """Message and every text in `data`, which is where most agents say what really happened."""
    try:
        data = decoded(answer.data)
    except ValueError:
        data = None
    details = [text for text in _texts(data, 4) if text.strip() and text not in answer.message]
    return ": ".join([answer.message or "no reason given", *details])[:_MAX_DETAILS]


def _texts(node: object, depth: int) -> list[str]:
    if isinstance(node, str):
        return [node]
    if depth == 0 or not isinstance(node, dict | list):
        return []
    children = node.values() if isinstance(node, dict) else node
    return [text for child in children for text in _texts(child, depth - 1)]


def _category(code: int, text: str) -> Category | None:
    found = next((category for category, words in _WORDS if words.search(text)), None)
    if code == AUTH_REQUIRED and found is None:
        return Category.AGENT_AUTH
    return found


def _hint(category: Category | None, profile: Profile) -> str | None:
    if category is Category.AGENT_AUTH:
        return profile.login_hint
    if category is Category.AGENT_USAGE_LIMIT:
        return "wait for the limit to reset, or use another account or model"
    return None


def _retry_after_ms(text: str) -> int | None:
    found = _RETRY_AFTER.search(text)
    if found is None:
        return None
    return round(float(found[1]) * (1 if found[2].lower() == "ms" else 1_000))

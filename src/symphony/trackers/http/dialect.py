"""What is particular to one service: its names for limits, its way to say no, what to tell people."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symphony.domain.plain import one_line
from symphony.trackers.http.model import Answer

__all__ = ["STANDARD", "THROTTLED", "Bucket", "Dialect", "plain_message", "plain_status"]

THROTTLED = 429
_FORBIDDEN = 403
_SHOWN = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One limit, by the names of the headers that tell of it (lower-case)."""

    name: str
    limit: str
    remaining: str
    reset: str

    @classmethod
    def of(cls, name: str, prefix: str) -> "Bucket":
        """The usual three: `<prefix>-limit`, `-remaining`, `-reset`."""
        return cls(
            name=name, limit=f"{prefix}-limit", remaining=f"{prefix}-remaining", reset=f"{prefix}-reset"
        )


STANDARD = (Bucket.of("requests", "x-ratelimit"), Bucket.of("requests", "ratelimit"))


def plain_status(answer: Answer) -> int:
    """The status, but 429 where a 403 is a limit: it names a wait, or nothing is left (GitHub and others)."""
    if answer.status != _FORBIDDEN:
        return answer.status
    spent = any(answer.headers.get(bucket.remaining, "").strip() == "0" for bucket in STANDARD)
    return THROTTLED if spent or "retry-after" in answer.headers else answer.status


def plain_message(body: Any) -> str:
    """What a JSON error says: `message`, `error`, `errors` or `errorMessages`, whatever their shape."""
    return one_line("; ".join(dict.fromkeys(_texts(body))), _SHOWN)


def _texts(node: Any, depth: int = 0) -> Sequence[str]:
    match node:
        case str() if node.strip():
            return [node.strip()]
        case Mapping() if depth == 0:
            named = ("message", "error", "error_description", "errorMessages", "errors")
            return [text for key in named if key in node for text in _texts(node[key], 1)]
        case Mapping() if depth == 1 and "message" in node:
            return _texts(node["message"], 2)
        case Mapping() if depth == 1:
            return [f"{key}: {text}" for key, value in node.items() for text in _texts(value, 2)]
        case list():
            return [text for entry in node[:5] for text in _texts(entry, max(depth, 1))]
        case _:
            return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One service.

    Attributes:
        service: its name in messages (`GitHub`).
        secret: the setting that holds the credential, for hints (`tracker.provider.token`).
        scope: the setting that names what is in scope (`tracker.provider.repo`).
        status: the status that an answer means, whatever it says it is: 429 for every limit, 401 for a
            credential that is not taken. A GraphQL answer with errors keeps its 200.
        message: what the body of an error says, for people.
        buckets: the limits it tells of.
        resource: the header that says which of several limits of one name an answer tells of.
        write_gap_ms: the least time between two writes.
        fences: whether nothing in a fence of Markdown is a mention, a link or markup in its comments.
    """

    service: str
    secret: str
    scope: str
    status: Callable[[Answer], int] = plain_status
    message: Callable[[Any], str] = plain_message
    buckets: tuple[Bucket, ...] = STANDARD
    resource: str | None = None
    write_gap_ms: int = 0
    fences: bool = True

"""`ServiceProfile`: the particulars of one service, and the typed failures of its requests.

| category | meaning |
|---|---|
| `tracker_request` | no complete answer: no connection, a timeout, an incomplete body |
| `tracker_status` | the service refused the request |
| `tracker_rate_limited` | the service asks for a pause |
| `tracker_response` | the answer cannot be understood |
| `tracker_pagination` | the pages of a listing cannot be followed |

All of them blame the tracker, so an attempt that ends with such a failure does not count against the agent.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from symphony.domain import Blame, Category, Failure, ServiceError, mask_credentials, one_line
from symphony.http.exchange import HttpResponse, Request

UNAUTHORISED = 401
FORBIDDEN = 403
THROTTLED = 429
_NOT_FOUND, _GONE = 404, 410
_REDIRECTS = range(300, 400)
_SERVER_ERROR = 500

_REASONS = (
    (r"\b(is|was|been) archived", "the repository or project is archived in {name}: unarchive it there"),
    (r"\blocked\b", "the issue is locked in {name}: unlock its conversation there"),
    (r"too long|maximum is \d+ characters", "the text is longer than {name} takes: shorten it"),
    (
        r"\b(user|you) (is|are|has been|have been) blocked|blocked users? ",
        "the user of the credential is blocked in {name}: unblock it, or use another one",
    ),
    (r"\b(issues|comments) (are|has been|have been) disabled", "switch that on in the settings of {name}"),
)
"""Phrases of services that explain ambiguous statuses, and the remedies."""

_MAX_MESSAGE = 1_000
_MAX_DETAIL = 300
_MAX_NAME = 80


class Bucket(Struct, frozen=True, kw_only=True):
    """One rate limit, by the lower-case names of the headers that report it."""

    name: str
    limit: str
    remaining: str
    reset: str

    @classmethod
    def of(cls, name: str, prefix: str) -> "Bucket":
        """The common form: `<prefix>-limit`, `<prefix>-remaining`, `<prefix>-reset`."""
        return cls(
            name=name, limit=f"{prefix}-limit", remaining=f"{prefix}-remaining", reset=f"{prefix}-reset"
        )


STANDARD = (Bucket.of("requests", "x-ratelimit"), Bucket.of("requests", "ratelimit"))


def plain_status(answer: HttpResponse) -> int:
    """The status; a 403 counts as 429 if it names a wait or nothing of a limit is left."""
    if answer.status != FORBIDDEN:
        return answer.status
    used_up = any(answer.headers.get(bucket.remaining, "").strip() == "0" for bucket in STANDARD)
    return THROTTLED if used_up or "retry-after" in answer.headers else answer.status


def plain_message(body: Any) -> str:
    """The message of a JSON error, below `message`, `error`, `errors` or `errorMessages` in any shape."""
    return one_line("; ".join(dict.fromkeys(_texts(body))), _MAX_MESSAGE)


def _texts(node: Any, depth: int = 0) -> Sequence[str]:
    match node:
        case str() if node.strip():
            return [node.strip()]
        case Mapping() if depth == 0:
            keys = ("message", "error", "error_description", "errorMessages", "errors")
            return [text for key in keys if key in node for text in _texts(node[key], 1)]
        case Mapping() if depth == 1 and "message" in node:
            return _texts(node["message"], 2)
        case Mapping() if depth == 1:
            return [f"{key}: {text}" for key, value in node.items() for text in _texts(value, 2)]
        case list():
            return [text for entry in node[:5] for text in _texts(entry, max(depth, 1))]
        case _:
            return []


def bearer(credential: str) -> Mapping[str, str]:
    """The OAuth header, which most services accept for other tokens too."""
    return {"authorization": f"Bearer {credential}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProfile:
    """One service.

    Attributes:
        name: its name in messages (`GitHub`).
        credential_key: the setting with the credential, for hints (`tracker.provider.token`).
        scope_key: the setting that names what is in scope (`tracker.provider.repo`).
        address: the address of its API, unless the settings name another one.
        headers: makes the headers with a credential.
        status: the HTTP status that an answer means: 429 for every rate limit, 401 for a rejected credential.
            A GraphQL answer with other errors keeps its 200.
        message: the text of an error body, for people.
        buckets: the rate limits that it reports.
        resource_header: the header that distinguishes limits with the same name.
        write_gap_ms: the minimum time between two writes.
        category: the category of every failure; `None` for the categories above.
        has_code_fences: whether its comments support fenced code, which contains no mention or link.
    """

    name: str
    credential_key: str
    scope_key: str
    address: str = ""
    headers: Callable[[str], Mapping[str, str]] = bearer
    status: Callable[[HttpResponse], int] = plain_status
    message: Callable[[Any], str] = plain_message
    buckets: tuple[Bucket, ...] = STANDARD
    resource_header: str | None = None
    write_gap_ms: int = 0
    category: Category | None = None
    has_code_fences: bool = True

    # --- failures of a request ---------------------------------------------------------------------------

    def unreachable(self, request: Request, problem: str) -> ServiceError:
        """The failure for a missing or incomplete answer."""
        return self._error(
            Category.TRACKER_REQUEST,
            f"{self.name} did not answer {request.method} {request.endpoint}: {problem}",
            hint="check the network, a proxy in between, and the address in the workflow file",
        )

    def refused(self, request: Request, answer: HttpResponse, status: int) -> ServiceError:
        """The failure for a refused request; `status` is the meaning of the answer."""
        detail = one_line(mask_credentials(self.message(answer.body) or answer.text), _MAX_DETAIL)
        asked = f"{request.method} {request.endpoint}"
        message = f"{self.name} answered {status} to {asked}"
        if status < _REDIRECTS.start:  # GraphQL reports errors with a 200
            message = f"{self.name} refused {asked}"
        return self._error(
            Category.TRACKER_STATUS,
            f"{message}: {detail}" if detail else message,
            retryable=status >= _SERVER_ERROR,
            hint=self._named_hint(detail, status) or self._refusal_hint(answer, status),
            status=status,
        )

    def _named_hint(self, detail: str, status: int) -> str | None:
        fitting = (hint for pattern, hint in _REASONS if re.search(pattern, detail, re.IGNORECASE))
        hint = next(fitting, None) if status < _SERVER_ERROR else None
        return None if hint is None else hint.format(name=self.name)

    def _refusal_hint(self, answer: HttpResponse, status: int) -> str:
        if status == UNAUTHORISED:
            return f"the credential is not valid: renew {self.credential_key}, or the variable it refers to"
        if status == FORBIDDEN:
            return f"the credential of {self.credential_key} may not do this: check its scopes and its access"
        if status in {_NOT_FOUND, _GONE}:
            return f"check {self.scope_key}, and whether the credential may see it"
        if status in _REDIRECTS:
            host = urlsplit(answer.headers.get("location", "")).hostname
            where = f" to {host[:100]}" if host else ""
            return f"the address redirects{where}: correct it, or {self.scope_key}, in the workflow file"
        if status >= _SERVER_ERROR:
            return f"{self.name} has an internal problem; the request is repeated later"
        return "the server does not support this request: is it a different version?"

    def rate_limited(self, *, wait_ms: int, reason: str, for_all: bool = True) -> ServiceError:
        """The failure for a requested pause, or with `for_all` false for the reserve for urgent requests."""
        seconds = -(-wait_ms // 1000)
        return self._error(
            Category.TRACKER_RATE_LIMITED,
            f"no requests to {self.name} for {seconds} s: {one_line(reason, _MAX_DETAIL)}",
            hint="nothing to do; other users of the same credential share its limit",
            retry_after_ms=wait_ms if for_all else None,
            status=THROTTLED,
        )

    def malformed(
        self, problem: str, *, hint: str | None = None, culprits: frozenset[str] = frozenset()
    ) -> ServiceError:
        """The failure for a malformed answer; `problem` follows the name of the service."""
        return self._error(
            Category.TRACKER_RESPONSE,
            f"{self.name} {one_line(mask_credentials(problem), _MAX_DETAIL)}",
            hint=hint
            or "check that the address is that of the API, without a proxy or a login page in between",
            culprits=culprits,
        )

    def list_of(self, value: Any, request: Request) -> list[Any]:
        """The list in an answer. A missing list must not pass for an empty one.

        Raises:
            ServiceError: `tracker_response`.
        """
        if not isinstance(value, list):
            raise self.malformed(f"answered no list to {request.endpoint}")
        return value

    def bad_pagination(self, request: Request, problem: str) -> ServiceError:
        """The failure for pages that cannot be followed.

        The whole listing fails, or else a part would pass for all of it.
        """
        return self._error(
            Category.TRACKER_PAGINATION,
            f"{self.name}, pages of {request.endpoint}: {problem}",
            hint="does a proxy in between change or cache answers?",
        )

    # --- refusals by the adapter itself ------------------------------------------------------------------

    def not_found(self, what: str, *, hint: str | None = None) -> ServiceError:
        """The failure for a name that does not exist, or that the credential may not see."""
        return self._rejected(f"there is no {one_line(what, 200)}", hint=hint, status=_NOT_FOUND)

    def no_such_state(self, state: str, known: Sequence[str]) -> ServiceError:
        """The failure for a move to a state that does not exist."""
        hint = f"states: {', '.join(known)}" if known else None
        return self._rejected(f"there is no state {one_line(state, _MAX_NAME)!r}", hint=hint)

    def no_transition(self, issue: str, *, wanted: str, found: str, known: Sequence[str]) -> ServiceError:
        """The failure for a move that the tracker's workflow does not allow."""
        hint = (
            f"from there it can be moved to: {', '.join(known)}" if known else "it cannot be moved from there"
        )
        return self._rejected(
            f"{one_line(issue, _MAX_NAME)} cannot be moved from {one_line(found, _MAX_NAME)!r}"
            f" to {one_line(wanted, _MAX_NAME)!r}",
            hint=hint,
        )

    def _rejected(self, problem: str, *, hint: str | None, status: int | None = None) -> ServiceError:
        return self._error(
            Category.TRACKER_STATUS,
            f"{self.name}: {problem}",
            retryable=False,
            hint=hint or "look at the issue in the tracker",
            status=status,
        )

    def _error(
        self, category: Category, message: str, *, culprits: frozenset[str] = frozenset(), **details: Any
    ) -> ServiceError:
        category = self.category or category
        failure = Failure(category=category, blame=Blame.TRACKER, message=message, **details)
        return ServiceError(failure, culprits=culprits)

"""The one place where a failed request becomes a typed failure with a hint (TR7).

    tracker_request       nothing came back: no connection, no answer in time, half an answer
    tracker_status        it answered, and the answer is no
    tracker_rate_limited  it asks to be left alone for a while
    tracker_response      it answered something that makes no sense
    tracker_pagination    its pages lead nowhere, in circles, or to another host

All of them blame the tracker: an attempt that one of them ended does not count against the agent.
"""

from urllib.parse import urlsplit

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.plain import one_line
from symphony.domain.redaction import mask_credentials
from symphony.trackers.base import TrackerError
from symphony.trackers.http.dialect import THROTTLED, Dialect
from symphony.trackers.http.model import Answer, Request

__all__ = ["FORBIDDEN", "UNAUTHORISED", "limited", "malformed", "paging", "refused", "unreachable"]

UNAUTHORISED = 401
FORBIDDEN = 403
_NOT_FOUND = 404
_GONE = 410
_REDIRECTS = range(300, 400)
_SERVER = 500
_DETAIL = 300


def refused(dialect: Dialect, request: Request, answer: Answer, status: int) -> TrackerError:
    """The tracker said no; limits are `limited`."""
    said = one_line(mask_credentials(dialect.message(answer.body) or answer.text), _DETAIL)
    asked = f"{request.method} {request.endpoint}"
    message = f"{dialect.service} answered {status} to {asked}"
    if status < _REDIRECTS.start:  # GraphQL says no with a 200
        message = f"{dialect.service} refused {asked}"
    return TrackerError(
        Failure(
            category=Category.TRACKER_STATUS,
            blame=Blame.TRACKER,
            message=f"{message}: {said}" if said else message,
            retryable=status >= _SERVER,
            hint=_hint(dialect, answer, status),
            status=status,
        )
    )


def _hint(dialect: Dialect, answer: Answer, status: int) -> str:
    if status == UNAUTHORISED:
        return f"the credential is not taken: renew {dialect.secret}, or the variable it refers to"
    if status == FORBIDDEN:
        return f"the credential of {dialect.secret} may not do this: check its scopes and its access"
    if status in {_NOT_FOUND, _GONE}:
        return f"check {dialect.scope}, and whether the credential may see it"
    if status in _REDIRECTS:
        host = urlsplit(answer.headers.get("location", "")).hostname
        where = f" to {host[:100]}" if host else ""
        return f"the address leads elsewhere{where}: correct it, or {dialect.scope}, in the workflow file"
    if status >= _SERVER:
        return f"{dialect.service} has a problem of its own; it is asked again"
    return "the request does not suit this server: is it of another version?"


def limited(dialect: Dialect, *, wait_ms: int, reason: str, for_all: bool = True) -> TrackerError:
    """The tracker asks for a pause; not `for_all` where our own reserve does, and others may still ask."""
    seconds = -(-wait_ms // 1000)
    return TrackerError(
        Failure(
            category=Category.TRACKER_RATE_LIMITED,
            blame=Blame.TRACKER,
            message=f"{dialect.service} is left alone for {seconds} s: {one_line(reason, _DETAIL)}",
            hint="nothing to do; other users of the same credential spend from the same limit",
            retry_after_ms=wait_ms if for_all else None,
            status=THROTTLED,
        )
    )


def unreachable(
    dialect: Dialect, request: Request, problem: str, *, retry_after_ms: int | None = None
) -> TrackerError:
    """No answer, or half of one."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"{dialect.service} did not answer {request.method} {request.endpoint}: {problem}",
            hint="check the network, a proxy in between, and the address in the workflow file",
            retry_after_ms=retry_after_ms,
        )
    )


def malformed(
    dialect: Dialect, problem: str, *, hint: str | None = None, culprits: frozenset[str] = frozenset()
) -> TrackerError:
    """An answer that makes no sense."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_RESPONSE,
            blame=Blame.TRACKER,
            message=f"{dialect.service} {one_line(mask_credentials(problem), _DETAIL)}",
            hint=hint or "is the address that of the API, without a proxy or a login page in between?",
        ),
        culprits=culprits,
    )


def paging(dialect: Dialect, request: Request, problem: str) -> TrackerError:
    """Pages that cannot be followed; the whole call fails, for half a list would be taken for all of it."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_PAGINATION,
            blame=Blame.TRACKER,
            message=f"{dialect.service}, pages of {request.endpoint}: {problem}",
            hint="is there a proxy in between that changes or keeps answers?",
        )
    )

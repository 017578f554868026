"""How GitHub says no: a limit is a 403 or a 429, and any other 403 is a matter of rights."""

from symphony.trackers.graphql import error_codes
from symphony.trackers.http import STANDARD, THROTTLED, Answer, Dialect, plain_message, plain_status

__all__ = ["GITHUB"]

_FORBIDDEN = 403
_WRITE_GAP_MS = 1_000


def _status(answer: Answer) -> int:
    """429 for a secondary limit too, which may name no time and tells itself only in words."""
    if error_codes(answer) & {"rate_limited", "rate_limit"}:
        return THROTTLED
    if answer.status == _FORBIDDEN and "rate limit" in plain_message(answer.body).lower():
        return THROTTLED
    return plain_status(answer)


GITHUB = Dialect(
    service="GitHub",
    secret="tracker.provider.token",  # noqa: S106 - the name of a setting
    scope="tracker.provider.repo",
    status=_status,
    buckets=STANDARD,
    resource="x-ratelimit-resource",
    write_gap_ms=_WRITE_GAP_MS,
)

"""How Linear says no: by codes inside the answer, with a 200, a 400 or a 429 around it."""

from symphony.trackers.graphql import error_codes, error_message
from symphony.trackers.http import THROTTLED, Answer, Bucket, Dialect, plain_status

__all__ = ["LINEAR"]

_MEANING = {
    "ratelimited": THROTTLED,
    "rate_limited": THROTTLED,
    "authentication_error": 401,
    "authentication error": 401,
    "unauthenticated": 401,
    "forbidden": 403,
}


def _status(answer: Answer) -> int:
    """The codes before the status: a limit has been seen with a 400."""
    meanings = [_MEANING[code] for code in error_codes(answer) if code in _MEANING]
    return max(meanings, default=plain_status(answer))


# Linear tells of limits of single operations too. They are left out: an agent that uses up the one of a
# search shall not stop polls.
LINEAR = Dialect(
    service="Linear",
    secret="tracker.provider.api_key",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project_slug",
    status=_status,
    message=error_message,
    buckets=(
        Bucket.of("requests", "x-ratelimit-requests"),
        Bucket.of("complexity points", "x-ratelimit-complexity"),
    ),
)

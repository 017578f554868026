"""What the daemon owes to the outside: which of two jobs counts, when one is due, when it is given up.

    owed -> waiting -> done, and forgotten
               |  ^
               v  | a person asks for it, or something newer is owed under the same key
            given up

Times are of the wall clock, in ms since 1970. Everything here is pure.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from symphony.domain import Blame, Failure

FIRST_RETRY_MS: Final = 1_000
LONGEST_RETRY_MS: Final = 20_000
"""The longest wait while an outage is young: what is owed arrives within a minute after it."""

LONGEST_LATE_RETRY_MS: Final = 300_000
YOUNG_MS: Final = 36 * 3_600_000
GIVE_UP_MS: Final = 72 * 3_600_000
GIVE_UP_REFUSED_MS: Final = 3_600_000
MIN_ATTEMPTS: Final = 10
"""A daemon that was away for longer than a job is kept for tries it at least so often."""

_MAX_DOUBLINGS: Final = 30


class JobState(StrEnum):
    """Whether a job is still tried."""

    WAITING = "waiting"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A write to an outside service. The newer one of two jobs with the same key counts.

    Attributes:
        key: what it is about, such as `comment:42:delivery`.
        kind: what carries it out: `comment` or `move`.
        receiver: what it goes to, without secrets. Jobs for a receiver that does not answer wait together.
        issue_id: the issue that it belongs to, with `issue_identifier` for people.
        payload: JSON of what its kind needs, with secrets masked.
        created_wall_ms: since when it is owed.
        due_wall_ms: when it is tried next.
        attempts: how often it was tried.
        failure: why the last attempt failed, in one line with secrets masked.
    """

    key: str
    kind: str
    receiver: str
    issue_id: str
    issue_identifier: str
    payload: str
    created_wall_ms: int
    due_wall_ms: int
    attempts: int = 0
    state: JobState = JobState.WAITING
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """Nothing is owed under this key any more."""

    key: str


def newest(before: Job | None, job: Job) -> Job:
    """The job that counts: the known one or the new one.

    An equal job changes nothing while the known one is tried. A newer one inherits the failure, so a known
    reason is not reported again.
    """
    if before is None:
        return job
    same = (before.payload, before.receiver) == (job.payload, job.receiver)
    if same and before.state is JobState.WAITING:
        return before
    return replace(job, failure=before.failure)


def backoff_ms(attempts: int, longest_ms: int) -> int:
    """How long to wait after so many failed attempts in a row."""
    return min(FIRST_RETRY_MS << min(attempts - 1, _MAX_DOUBLINGS), longest_ms)


def after_failure(job: Job, failure: Failure, *, now_wall_ms: int) -> Job:
    """The job after a failed attempt: due again later, or given up.

    What only a person can change is given up sooner, and a mistake in the configuration at once. A receiver
    that says when to come again is obeyed.
    """
    attempts, age_ms = job.attempts + 1, now_wall_ms - job.created_wall_ms
    limit_ms = GIVE_UP_MS if failure.retryable else GIVE_UP_REFUSED_MS
    if not failure.retryable and failure.blame is Blame.CONFIG:
        gives_up = True
    else:
        gives_up = age_ms >= limit_ms and attempts >= MIN_ATTEMPTS
    longest_ms = LONGEST_RETRY_MS if age_ms < YOUNG_MS else LONGEST_LATE_RETRY_MS
    wait_ms = max(backoff_ms(attempts, longest_ms), failure.retry_after_ms or 0)
    return replace(
        job,
        attempts=attempts,
        due_wall_ms=now_wall_ms + wait_ms,
        state=JobState.GIVEN_UP if gives_up else JobState.WAITING,
        failure=failure.line,
    )


def tried_again(job: Job, *, now_wall_ms: int) -> Job:
    """The job as new, because a person asked for it."""
    return replace(
        job, attempts=0, state=JobState.WAITING, created_wall_ms=now_wall_ms, due_wall_ms=now_wall_ms
    )

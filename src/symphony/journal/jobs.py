"""Jobs are writes to outside services that the daemon still has to make.

This module decides which of two jobs counts, when a job is due, and when it is given up.

    new -> waiting -> done, and forgotten
               |  ^
               v  | a person asks for it, or a newer job has the same key
            given up

Times are wall-clock times in ms since 1970. Everything here is pure.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from msgspec import Struct

from symphony.domain import Blame, Failure

FIRST_RETRY_MS: Final = 1_000
LONGEST_RETRY_MS: Final = 20_000
"""The longest wait early in an outage, so that jobs are done within a minute after its end."""

LONGEST_LATE_RETRY_MS: Final = 300_000
YOUNG_MS: Final = 36 * 3_600_000
GIVE_UP_MS: Final = 72 * 3_600_000
GIVE_UP_REFUSED_MS: Final = 3_600_000
MIN_ATTEMPTS: Final = 10
"""How often a job is tried at least, even if the daemon was away for longer than jobs are kept."""

_MAX_DOUBLINGS: Final = 30


class JobState(StrEnum):
    """Whether a job is still tried."""

    WAITING = "waiting"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A write to an outside service. Of two jobs with the same key the newer one counts.

    Attributes:
        key: identifies its subject, such as `comment:42:delivery`.
        kind: the `JobKind` that carries it out, such as `comment` or `move`.
        receiver: the service that it goes to, without secrets. Jobs for a receiver that does not answer wait
            together.
        issue_id: the issue that it belongs to, with `issue_identifier` for people.
        payload: the data for its kind as JSON, with secrets masked.
        created_wall_ms: when it was created.
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


class JobDone(Struct, frozen=True, kw_only=True):
    """The job with this key is done."""

    key: str


def newest(before: Job | None, job: Job) -> Job:
    """The job that counts: the known one or the new one.

    An equal job changes nothing while the known one is still tried. A newer one inherits the failure, so that
    a known reason is not reported again.
    """
    if before is None:
        return job
    same = (before.payload, before.receiver) == (job.payload, job.receiver)
    if same and before.state is JobState.WAITING:
        return before
    return replace(job, failure=before.failure)


def backoff_ms(attempts: int, longest_ms: int) -> int:
    """How long to wait after `attempts` failed attempts in a row."""
    return min(FIRST_RETRY_MS << min(attempts - 1, _MAX_DOUBLINGS), longest_ms)


def after_failure(job: Job, failure: Failure, *, now_wall_ms: int) -> Job:
    """The job after a failed attempt: due again later, or given up.

    A job whose failure only a person can fix is given up sooner, and one with a mistake in the configuration
    at once. If the receiver says when to retry, the job waits until then.
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
    """The job with its attempts counted from zero, because a person asked for it."""
    return replace(
        job, attempts=0, state=JobState.WAITING, created_wall_ms=now_wall_ms, due_wall_ms=now_wall_ms
    )

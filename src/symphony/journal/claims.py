"""A claim of the scheduler as a record of the journal. Pure; `recovery.py` goes the other way."""

from dataclasses import dataclass
from typing import assert_never

from symphony.hosts.base import Identity
from symphony.journal.model import ClaimRecord
from symphony.scheduler.inputs import ClaimKind
from symphony.scheduler.state import Blocked, Entry, Retry, Running

__all__ = ["Now", "claim_record", "essence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """One moment on both clocks."""

    ms: int
    wall_ms: int

    def wall(self, moment_ms: int) -> int:
        """The wall-clock time of a monotonic moment."""
        return self.wall_ms - self.ms + moment_ms


def essence(entry: Entry) -> tuple[object, ...]:
    """What of a claim is remembered: two with the same make the same record, but for the times."""
    match entry:
        case Running():
            return (
                ClaimKind.RUNNING,
                entry.run_id,
                entry.issue,
                entry.attempt,
                entry.idle_attempts,
                entry.failures,
                entry.report.workspace_path,
                entry.resume,
            )
        case Retry():
            return (
                ClaimKind.RETRYING,
                entry.due_ms,
                entry.issue,
                entry.attempt,
                entry.error,
                entry.idle_attempts,
                entry.failures,
                entry.hopeless,
                entry.workspace_path,
                entry.resume,
            )
        case Blocked():
            return (
                ClaimKind.BLOCKED,
                entry.failure,
                entry.issue,
                entry.blocked_ms,
                entry.attempt,
                entry.settled,
                entry.workspace_path,
                entry.question,
                entry.resume,
            )
        case _:
            assert_never(entry)


def claim_record(entry: Entry, owner: Identity, now: Now) -> ClaimRecord:
    """The claim as it is remembered."""
    match entry:
        case Running():
            return ClaimRecord(
                issue=entry.issue,
                kind=ClaimKind.RUNNING,
                owner=owner,
                since_wall_ms=now.wall(entry.started_ms),
                run_id=entry.run_id,
                attempt=entry.attempt,
                idle_attempts=entry.idle_attempts,
                failures=entry.failures,
                workspace_path=entry.report.workspace_path,
                resume=entry.resume,
            )
        case Retry():
            return ClaimRecord(
                issue=entry.issue,
                kind=ClaimKind.RETRYING,
                owner=owner,
                since_wall_ms=now.wall_ms,
                attempt=entry.attempt,
                due_wall_ms=now.wall(entry.due_ms),
                error=entry.error,
                idle_attempts=entry.idle_attempts,
                failures=entry.failures,
                hopeless=entry.hopeless,
                workspace_path=entry.workspace_path,
                resume=entry.resume,
            )
        case Blocked():
            return ClaimRecord(
                issue=entry.issue,
                kind=ClaimKind.BLOCKED,
                owner=owner,
                since_wall_ms=now.wall(entry.blocked_ms),
                attempt=entry.attempt,
                workspace_path=entry.workspace_path,
                resume=entry.resume,
                failure=entry.failure,
                question=entry.question,
                settled=entry.settled,
            )
        case _:
            assert_never(entry)

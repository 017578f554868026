"""The daemon's records of pull requests: put into the journal before each step, and limited in number."""

import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

import anyio
import structlog

from symphony import domain
from symphony.daemon.core import Core
from symphony.daemon.forge.writes import KIND
from symphony.daemon.jobs import JobRunner
from symphony.journal.model import PullRequestRecord
from symphony.observability import bugs

FIRST_RETRY_MS: Final = 30_000
LONGEST_RETRY_MS: Final = 1_800_000
STEP_S: Final = 300.0
MAX_RECORDS: Final = 1_000
_MAX_DOUBLINGS: Final = 6
_MAX_LIST: Final = 500
_MAX_FILES: Final = 3_000
_MAX_COMMENT_CHARS: Final = 4_000
_log = structlog.get_logger(__name__)


class PullRequestRecords:
    """The records by the issue's id.

    Args:
        recovered: the records of the previous daemon.
        core: context, wall clock and journal.
        jobs: the jobs for the forge.
        record: puts a record into the journal.
    """

    def __init__(
        self,
        recovered: Sequence[PullRequestRecord],
        *,
        core: Core,
        jobs: JobRunner,
        record: Callable[[PullRequestRecord], None],
    ) -> None:
        self._core = core
        self._records = {record.issue.id: record for record in recovered}
        self._jobs = jobs
        self._record = record

    def __getitem__(self, issue_id: str) -> PullRequestRecord:
        return self._records[issue_id]

    def get(self, issue_id: str) -> PullRequestRecord | None:
        """The record of an issue, if there is one."""
        return self._records.get(issue_id)

    def all(self) -> Mapping[str, PullRequestRecord]:
        """All present records."""
        return dict(self._records)

    def put(self, record: PullRequestRecord) -> PullRequestRecord:
        """Store a record, and put it into the journal if it changed."""
        if record != self._records.pop(record.issue.id, None):
            record = replace(record, at_wall_ms=self._core.wall_ms())
            self._record(record)
        self._records[record.issue.id] = record
        return record

    def trim(self, results: Container[str]) -> None:
        """Drop the oldest ended records if there are too many, but none that is in use.

        Records of the scheduler's results stay, or else another pull request would be opened.
        """
        ended = [key for key, each in self._records.items() if not each.is_open and key not in results]
        for key in ended[: max(len(self._records) - MAX_RECORDS, 0)]:
            del self._records[key]

    def change(self, issue_id: str, **changes: Any) -> PullRequestRecord:
        """Change the present record, because it may have changed during a request."""
        return self.put(replace(self._records[issue_id], **changes))

    def _may_clear(self, issue_id: str, key: str = "") -> bool:
        """Whether no step of a pull request but the one with this key has failed."""
        steps = (job for job in self._jobs.jobs if job.kind == KIND and job.issue_id == issue_id)
        return not any(job.attempts and job.key != key for job in steps)

    async def take(self, issue_id: str, key: str, step: Awaitable[None]) -> None:
        """Carry out the step of a job for a pull request; a failure is recorded, and cleared by success.

        Raises:
            SymphonyError: the failure.
        """
        with about(self._records[issue_id]):
            failure = await failure_of(step)
            if failure is not None:
                failure = self._core.in_force.redaction.failure(failure)
            if failure is not None or self._may_clear(issue_id, key):
                self.change(issue_id, failure=failure)
            if failure is not None:
                raise domain.SymphonyError(failure)

    async def look(self, issue_id: str, step: Awaitable[None]) -> None:
        """Carry out a step that the next observation repeats; record a failure, clear it after success."""
        with about(self._records[issue_id]):
            failure = await failure_of(step)
            before = self._records[issue_id].failure
            if failure is not None:
                failure = self._core.in_force.redaction.failure(failure)
                repeated = before is not None and before.message == failure.message
                level = logging.DEBUG if repeated else logging.WARNING
                _log.log(level, "pull_request_failed", reason=failure.message, hint=failure.hint)
            if failure is not None or self._may_clear(issue_id):
                self.change(issue_id, failure=failure)


def about(record: PullRequestRecord) -> AbstractContextManager[None]:
    """Add the issue and the branch to log lines."""
    return structlog.contextvars.bound_contextvars(
        branch=record.branch, issue_id=record.issue.id, issue_identifier=record.issue.identifier
    )


async def failure_of(step: Awaitable[None]) -> domain.Failure | None:
    """Carry out a step; return why it failed, if it did. A bug costs one step, never the daemon."""
    try:
        with anyio.fail_after(STEP_S):
            await step
    except TimeoutError:
        return forge_failure(f"no end within {STEP_S:g} s", domain.Blame.TRACKER)
    except domain.SymphonyError as error:
        return error.failure
    except Exception as error:  # noqa: BLE001 - as said above
        return bugs.contained("pull_request_crashed", error, domain.Category.FORGE)
    return None


def forge_failure(
    message: str, blame: domain.Blame, *, hint: str | None = None, retryable: bool = True
) -> domain.Failure:
    """The failure of a pull request for a reason outside the forge."""
    return domain.Failure(
        category=domain.Category.FORGE, blame=blame, message=message, hint=hint, retryable=retryable
    )


def retry_wait_ms(failure: domain.Failure, failures: int) -> int:
    """How long to wait after `failures` failures in a row."""
    wait_ms = min(FIRST_RETRY_MS << min(failures - 1, _MAX_DOUBLINGS), LONGEST_RETRY_MS)
    if not failure.retryable:
        wait_ms = LONGEST_RETRY_MS
    return max(wait_ms, failure.retry_after_ms or 0)


def bounded(pull: domain.PullRequest) -> domain.PullRequest:
    """The snapshot for the journal, with limited texts; a cut snapshot is marked as incomplete."""

    def cut(comment: domain.PullComment) -> domain.PullComment:
        return replace(comment, body=comment.body[:_MAX_COMMENT_CHARS])

    def cut_thread(thread: domain.ReviewThread) -> domain.ReviewThread:
        return replace(thread, comments=tuple(cut(each) for each in thread.comments[-_MAX_LIST:]))

    lengths = [len(pull.checks), len(pull.reviews), len(pull.threads), len(pull.comments)]
    lengths += [len(thread.comments) for thread in pull.threads]
    return replace(
        pull,
        title=domain.one_line(pull.title),
        body=pull.body[:_MAX_COMMENT_CHARS],
        checks=pull.checks[:_MAX_LIST],
        reviews=tuple(
            replace(each, body=each.body[:_MAX_COMMENT_CHARS]) for each in pull.reviews[-_MAX_LIST:]
        ),
        threads=tuple(cut_thread(each) for each in pull.threads[-_MAX_LIST:]),
        comments=tuple(cut(each) for each in pull.comments[-_MAX_LIST:]),
        files=pull.files[:_MAX_FILES],
        complete=pull.complete and max(lengths) <= _MAX_LIST and len(pull.files) <= _MAX_FILES,
    )

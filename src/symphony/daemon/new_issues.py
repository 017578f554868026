"""Creates issues at the tracker: at once for a person, and as the kind `issue` of the outbox for a schedule.

An issue is marked with the key of its job, and the tracker is asked for the mark before the issue is created.
So an attempt whose answer was lost, or whose daemon was killed, does not create a second issue.
"""

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ClassVar, Final

import anyio
import structlog
from msgspec import Struct
from typing_extensions import override

from symphony import domain
from symphony.api import models
from symphony.api.documents import created_document
from symphony.daemon.context import RuntimeContext, tracker_key
from symphony.daemon.jobs import Attempt, JobKind, JobRunner
from symphony.journal.jobs import Job
from symphony.journal.model import decode, encode
from symphony.observability.redaction import masked
from symphony.scheduler import State
from symphony.trackers.base import CreatingCapability, IssueToCreate, TrackerError, creation_problem

KIND: Final = "issue"
TIMEOUT_S: Final = 60.0
_CLOCK_SKEW: Final = timedelta(hours=1)
_ATTEMPTS: Final = 2
_log = structlog.get_logger(__name__)


class WantedIssue(Struct, frozen=True, kw_only=True):
    """The issue that a job of the kind `issue` creates; secrets in `new` are masked."""

    schedule: str
    key: str
    new: IssueToCreate


class IssueCreations(JobKind):
    """Creates the issues of schedules.

    Args:
        on_created: called with the wanted and the created issue.
    """

    timeout_s: ClassVar[float] = TIMEOUT_S

    def __init__(self, on_created: Callable[[WantedIssue, domain.Issue], None]) -> None:
        self._on_created = on_created

    @override
    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        """Whether its schedule and its tracker are still in WORKFLOW.md."""
        name = decode(job.payload, WantedIssue).schedule
        names = {schedule.name for schedule in context.settings.schedules}
        return job.receiver == tracker_key(context) and name in names

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        """Create the issue, unless it exists.

        Raises:
            TrackerError: it may or may not exist now.
        """
        wanted, since = decode(attempt.job.payload, WantedIssue), domain.moment(attempt.job.created_wall_ms)
        issue = await _create(attempt.context, wanted.new, key=wanted.key, since=since)
        _log.info(
            "issue_filed", schedule=wanted.schedule, issue_id=issue.id, issue_identifier=issue.identifier
        )
        self._on_created(wanted, issue)


def queue_issue(jobs: JobRunner, context: RuntimeContext, wanted: WantedIssue) -> None:
    """Queue the issue of a schedule; it replaces an earlier pending one of the schedule."""
    jobs.queue(
        kind=KIND,
        key=wanted.schedule,
        receiver=tracker_key(context),
        issue_id="",
        issue_identifier="",
        payload=encode(wanted),
    )


async def create_now(context: RuntimeContext, new: IssueToCreate, *, now: datetime) -> domain.Issue:
    """Create an issue at once, and try again once if the answer is lost.

    Raises:
        SymphonyError: it was not created, or may have been; secrets are masked.
    """
    new = masked_issue(context, new)
    key, failure = secrets.token_hex(16), None
    for _ in range(_ATTEMPTS):
        try:
            with anyio.fail_after(TIMEOUT_S):
                issue = await _create(context, new, key=key, since=now)
        except domain.SymphonyError as error:
            failure = error.failure
        except TimeoutError:
            failure = domain.Failure(
                category=domain.Category.TRACKER_REQUEST,
                blame=domain.Blame.TRACKER,
                message=f"not created within {TIMEOUT_S:g} s",
                hint="check in the tracker that the issue does not exist before you try again",
            )
        else:
            _log.info("issue_filed", schedule=None, issue_id=issue.id, issue_identifier=issue.identifier)
            return issue
        if not failure.retryable or failure.retry_after_ms is not None:
            break
    assert failure is not None  # noqa: S101 - the loop ends without a return only after one
    raise domain.SymphonyError(context.redaction.failure(failure))


async def create_given(
    context: RuntimeContext, *, given: models.NewIssue, now: datetime
) -> models.CreatedIssue:
    """Create the issue that a person requested; return it with secrets masked.

    Raises:
        SymphonyError: as `create_now`, or there is no first state.
    """
    labels = (*given.labels, *([] if given.skill is None else [f"{domain.SKILL_LABEL_PREFIX}{given.skill}"]))
    state = first_state(context, given.state)
    new = IssueToCreate(title=given.title, body=given.body, state=state, labels=labels)
    issue = await create_now(context, new, now=now)
    public: models.CreatedIssue = masked(created_document(issue), context.redaction.text)
    return public


def first_state(context: RuntimeContext, wanted: str | None) -> str:
    """The first state of a new issue. Raises `SymphonyError` if there is none."""
    state = wanted or next(iter(context.active_states), None)
    if state is None:
        raise domain.SymphonyError(
            domain.Failure(
                category=domain.Category.INVALID_TRACKER_CONFIG,
                blame=domain.Blame.CONFIG,
                message="there is no active state in which an issue could begin",
                retryable=False,
                hint="name its state, or set tracker.active_states",
            )
        )
    return state


def masked_issue(context: RuntimeContext, new: IssueToCreate) -> IssueToCreate:
    """The issue without secrets of the daemon."""
    mask = context.redaction.text
    return IssueToCreate(title=mask(new.title), body=mask(new.body), state=new.state, labels=new.labels)


async def _create(context: RuntimeContext, new: IssueToCreate, *, key: str, since: datetime) -> domain.Issue:
    tracker = context.tracker
    if (problem := creation_problem(tracker, context.settings.tracker.kind)) is not None:
        raise TrackerError(problem)
    assert isinstance(tracker, CreatingCapability)  # noqa: S101 - else there is a problem
    return await tracker.create_issue(new, key=key, since=since - _CLOCK_SKEW)

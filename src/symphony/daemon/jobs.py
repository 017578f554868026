"""The outbox: carries out jobs, now or when the receiver is back.

    queue -> journal -> [when it is due, a few at once] -> carry out -> forgotten
                                  ^        |
                                  +--------+ it failed: later again, or given up

A job is in the journal before it is tried, in the same transaction as the decision that caused it, so that no
restart loses it. If the daemon is killed between the answer of a receiver and its record, the job is tried
again: job kinds recognise finished work by a marker or by a fresh read. A failing receiver is left alone for
a while, and then one job tests whether it is back. Jobs of one issue reach each receiver one after the other.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import ClassVar, Final, Protocol

import anyio
import structlog
from anyio.abc import TaskGroup
from msgspec import Struct

from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import Core
from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.journal.jobs import (
    LONGEST_LATE_RETRY_MS,
    LONGEST_RETRY_MS,
    Job,
    JobDone,
    JobState,
    after_failure,
    backoff_ms,
    newest,
    tried_again,
)
from symphony.journal.model import CodecError
from symphony.scheduler import MAX_THROTTLE_MS, Command, Event, Recovered, State

TIMEOUT_S: Final = 30.0
MAX_JOBS: Final = 20_000
MAX_GIVEN_UP: Final = 1_000
KEPT_MS: Final = 30 * 24 * 3_600_000
LATE_MS: Final = 10_000
_log = structlog.get_logger(__name__)


class Attempt(Struct, frozen=True, kw_only=True):
    """One try of a job, or of several that go together.

    Attributes:
        context: the context in force.
        jobs: the jobs to try.
        is_late: whether the job was delayed, so that circumstances may have changed since the decision.
        still_needed: whether nothing newer was decided meanwhile; call it after each wait.
    """

    context: RuntimeContext
    jobs: tuple[Job, ...]
    is_late: bool
    still_needed: Callable[[], bool]

    @property
    def job(self) -> Job:
        """The job, or the first one."""
        return self.jobs[0]


class NotYetError(Exception):
    """The receiver must get nothing for `wait_s` seconds; this is no failure."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"not for {wait_s:g} s")
        self.wait_s = wait_s


class JobKind(Protocol):
    """Carries out the jobs of one kind.

    Attributes:
        at_once: how many jobs are tried at the same time at one receiver.
        timeout_s: how long one try may take.
        together: whether one try includes all jobs that wait for a receiver.
    """

    at_once: ClassVar[int] = 8
    timeout_s: ClassVar[float] = TIMEOUT_S
    together: ClassVar[bool] = False

    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        """Whether the job is still needed. Raises `CodecError` if its payload cannot be read."""
        ...

    async def carry_out(self, attempt: Attempt) -> None:
        """Carry out the attempt; two tries must have the effect of one.

        Any exception means that it is tried again.

        Raises:
            NotYetError: it is tried later, and this try does not count.
        """
        ...


_Entry = tuple[int, int, Job]


@dataclass(slots=True)
class _Receiver:
    """The jobs of one receiver by due time, and its last answers."""

    due: list[_Entry] = field(default_factory=list)
    at_work: int = 0
    issues_at_work: dict[str, list[_Entry]] = field(default_factory=dict)
    """The issues in progress, with the jobs that wait for each."""
    failures: int = 0
    failure: str | None = None
    paused_until_ms: int = 0


class JobRunner:
    """Keeps the jobs of one daemon and carries them out; an observer of the service.

    Args:
        core: state, context and clocks.
        left: the jobs of the previous daemon, the oldest first.
        record: puts a change into the journal.
        max_jobs: how many are kept; the oldest is dropped.

    Attributes:
        kinds: the job kinds by name; complete before `run`.
    """

    def __init__(
        self,
        core: Core,
        left: Sequence[Job] = (),
        *,
        record: Callable[[Job | JobDone], None],
        max_jobs: int = MAX_JOBS,
    ) -> None:
        self.kinds: dict[str, JobKind] = {}
        self._core = core
        self._record = record
        self._max_jobs = max_jobs
        self._jobs: dict[str, Job] = {}
        self._receivers: dict[str, _Receiver] = {}
        self._untried: set[str] = set()  # by this daemon
        self._finishing = False
        self._numbers = count()
        self._changed = anyio.Event()
        for job in left:
            self._jobs[job.key] = job
            wait_ms, was_set_back = job.due_wall_ms - core.wall_ms(), job.created_wall_ms > core.wall_ms()
            # A longer wait was requested by the receiver.
            if job.attempts == 0 or wait_ms <= LONGEST_LATE_RETRY_MS or was_set_back:
                wait_ms = 0
                self._untried.update({job.key} if _waits(job) else ())
            self._schedule(job, wait_ms)

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Forget what is needed no more after a step."""
        del commands
        changed = before.blocked is not after.blocked or before.running is not after.running
        if changed or isinstance(event, Recovered):
            self._forget_given_up()

    # --- queued jobs ------------------------------------------------------------------------------------

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All jobs that wait or were given up, the oldest first."""
        return tuple(self._jobs.values())

    def waiting(self, receiver: str) -> list[Job]:
        """Jobs that wait for a receiver, the oldest first."""
        return [job for job in self._jobs.values() if job.receiver == receiver and _waits(job)]

    def knows(self, key: str, payload: str) -> bool:
        """Whether the job with this key has this payload, even if it was given up."""
        job = self._jobs.get(key)
        return job is not None and job.payload == payload

    def queue(
        self,
        *,
        kind: str,
        key: str,
        receiver: str,
        issue_id: str,
        issue_identifier: str,
        payload: str,
        wait_ms: int = 0,
    ) -> None:
        """Queue a job; it replaces an earlier one with the same key. Returns at once.

        The job is tried after `wait_ms`, or when the daemon ends.
        """
        now = self._core.wall_ms()
        known = self._jobs.get(f"{kind}:{key}")
        if known is not None and _waits(known):
            wait_ms = max(min(wait_ms, known.due_wall_ms - now), 0)
        wanted = Job(
            key=f"{kind}:{key}",
            kind=kind,
            receiver=receiver,
            issue_id=issue_id,
            issue_identifier=issue_identifier,
            payload=payload,
            created_wall_ms=now,
            due_wall_ms=now + wait_ms,
        )
        job = newest(known, wanted)
        if job is not known:
            self._jobs.pop(job.key, None)  # the newest comes last
            self._untried.add(job.key)
            self._keep(job, wait_ms)
        if len(self._jobs) > self._max_jobs:
            self._drop(next(iter(self._jobs.values())), "there are too many jobs")

    def is_waiting(self, key: str) -> bool:
        """Whether a job with this key waits to be tried."""
        job = self._jobs.get(key)
        return job is not None and _waits(job)

    def retry(self, key: str) -> bool:
        """Try a job again at once, even if it was given up; return whether there is one."""
        job = self._jobs.get(key)
        if job is None:
            return False
        receiver = self._receivers.get(job.receiver)
        if receiver is not None:
            receiver.paused_until_ms = 0
        self._keep(tried_again(job, now_wall_ms=self._core.wall_ms()), 0)
        return True

    def retry_kind(self, kind: str) -> None:
        """Try all failed jobs of a kind again at once."""
        for job in [job for job in self._jobs.values() if job.kind == kind and job.attempts]:
            self.retry(job.key)

    def drop(self, key: str, reason: str = "a person dropped it") -> bool:
        """Drop a job; return whether there was one."""
        job = self._jobs.get(key)
        if job is None:
            return False
        self._drop(job, reason)
        return True

    def _keep(self, job: Job, wait_ms: int) -> None:
        self._jobs[job.key] = job
        self._record(job)
        self._schedule(job, wait_ms)

    def _schedule(self, job: Job, wait_ms: int) -> None:
        if _waits(job):
            entry = (self._core.now_ms() + min(max(wait_ms, 0), MAX_THROTTLE_MS), next(self._numbers), job)
            heappush(self._receivers.setdefault(job.receiver, _Receiver()).due, entry)
            self._changed.set()

    def _forget(self, job: Job) -> None:
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
            self._untried.discard(job.key)
            self._record(JobDone(key=job.key))
            self._changed.set()

    def _drop(self, job: Job, reason: str) -> None:
        _log.warning("job_dropped", reason=reason, **_fields(job))
        self._forget(job)

    def _is_needed(self, job: Job) -> bool:
        """Whether the job is still needed; an unreadable one is dropped."""
        state, kind = self._core.state, self.kinds.get(job.kind)
        if self._jobs.get(job.key) is not job or state is None:
            return False
        try:
            if kind is not None:
                return kind.is_needed(job, state, self._core.in_force)
            reason = "this version of symphony does not know its kind"
        except CodecError as error:
            reason = str(error)
        self._drop(job, reason)
        return False

    # --- carrying out ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out due jobs until cancelled."""
        await self._core.recovered.wait()
        async with anyio.create_task_group() as tasks:
            while True:
                if self._changed.is_set():  # otherwise `finish` may wait for it
                    self._changed = anyio.Event()
                wait_s = min(
                    (self._start_due(tasks, each) for each in self._receivers.values()), default=60.0
                )
                with anyio.move_on_after(wait_s):
                    await self._changed.wait()

    async def finish(self) -> None:
        """Wait until each job with an answering receiver was tried once; the next daemon gets the rest."""
        self._finishing = True
        self._changed.set()
        while any(not self._receivers[self._jobs[key].receiver].failures for key in self._untried):
            await self._changed.wait()

    def _start_due(self, tasks: TaskGroup, receiver: _Receiver) -> float:
        """Start due jobs of a receiver; return how many seconds to wait for the next one."""
        now_ms = self._core.now_ms()
        while receiver.due:
            due_ms, _, job = entry = receiver.due[0]
            if self._jobs.get(job.key) is not job:
                heappop(receiver.due)  # a newer job replaced it
                continue
            kind = self.kinds.get(job.kind)
            if receiver.at_work >= (1 if receiver.failures or kind is None else kind.at_once):
                break
            if self._finishing and job.key in self._untried:
                due_ms = 0
            due_ms = max(due_ms, receiver.paused_until_ms)
            if due_ms > now_ms:
                return (due_ms - now_ms) / 1000
            heappop(receiver.due)
            if (waiting := receiver.issues_at_work.get(job.issue_id)) is None:
                self._start(tasks, receiver, job)
            else:
                waiting.append(entry)
        return float("inf")

    def _start(self, tasks: TaskGroup, receiver: _Receiver, job: Job) -> None:
        """Try a job, with all others of the receiver if they go together."""
        kind, wanted = self.kinds.get(job.kind), [job]
        if kind is not None and kind.together:
            wanted += [each for _, _, each in receiver.due if self._jobs.get(each.key) is each]
            receiver.due.clear()
        needed = tuple(each for each in wanted if self._is_needed(each))
        for each in wanted:
            if each not in needed:
                self._forget(each)
        if needed:
            receiver.at_work += 1
            receiver.issues_at_work[job.issue_id] = []
            tasks.start_soon(self._try, receiver, job, needed)

    async def _try(self, receiver: _Receiver, first: Job, jobs: tuple[Job, ...]) -> None:
        context, kind = self._core.in_force, self.kinds[jobs[0].kind]
        late_ms = self._core.wall_ms() - jobs[0].created_wall_ms
        attempt = Attempt(
            context=context,
            jobs=jobs,
            is_late=jobs[0].attempts > 0 or not 0 <= late_ms < LATE_MS,
            still_needed=lambda: self._is_needed(jobs[0]),
        )
        try:
            await self._core.recorded()
            with anyio.fail_after(kind.timeout_s):
                await kind.carry_out(attempt)
        except NotYetError as error:
            wait_ms = round(error.wait_s * 1000)
            receiver.paused_until_ms = self._core.now_ms() + wait_ms
            for job in jobs:
                self._untried.discard(job.key)
                self._schedule(job, wait_ms)
        except Exception as error:  # noqa: BLE001 - a job must not cost a run
            self._failed(receiver, jobs, context.redaction.failure(self._failure(jobs[0], error)))
        else:
            self._answered(receiver, jobs[0])
            for job in jobs:
                self._forget(job)
        finally:
            receiver.at_work -= 1
            for entry in receiver.issues_at_work.pop(first.issue_id):
                heappush(receiver.due, entry)
            self._changed.set()

    def _answered(self, receiver: _Receiver, job: Job) -> None:
        if receiver.failures:
            _log.info("receiver_recovered", receiver=job.receiver, failures=receiver.failures)
        receiver.failures, receiver.failure = 0, None

    def _failed(self, receiver: _Receiver, jobs: tuple[Job, ...], failure: Failure) -> None:
        known = failure.line == receiver.failure
        if not failure.retryable:  # it answered
            self._answered(receiver, jobs[0])
        else:
            receiver.failures, receiver.failure = receiver.failures + 1, failure.line
            pause_ms = max(backoff_ms(receiver.failures, LONGEST_RETRY_MS), failure.retry_after_ms or 0)
            receiver.paused_until_ms = self._core.now_ms() + min(pause_ms, MAX_THROTTLE_MS)
        now, given_up = self._core.wall_ms(), False
        for job in jobs:
            if self._jobs.get(job.key) is not job:
                continue  # a newer job replaced it
            known = known or failure.line == job.failure
            after = after_failure(job, failure, now_wall_ms=now)
            self._untried.discard(job.key)
            level = logging.DEBUG if known else logging.WARNING
            _log.log(level, "job_failed", reason=failure.line, hint=failure.hint, **_fields(job))
            self._keep(after, after.due_wall_ms - now)
            if not _waits(after):
                given_up = True
                level = logging.DEBUG if known and not job.attempts else logging.WARNING
                _log.log(level, "job_given_up", reason=failure.line, attempts=after.attempts, **_fields(job))
            known = True
        if given_up:
            self._forget_given_up()

    def _failure(self, job: Job, error: Exception) -> Failure:
        if isinstance(error, SymphonyError):
            return error.failure
        slow = isinstance(error, TimeoutError)
        if not slow and job.attempts == 0:
            _log.error("job_crashed", exc_info=error, **_fields(job))
        return Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"no answer within {self.kinds[job.kind].timeout_s:g} s"
            if slow
            else f"internal error: {error!r}",
        )

    def _forget_given_up(self) -> None:
        """Forget jobs that were given up and are no longer needed, too old, or too many."""
        given_up = [job for job in self._jobs.values() if job.state is JobState.GIVEN_UP]
        oldest_ms = self._core.wall_ms() - KEPT_MS
        excess = len(given_up) - MAX_GIVEN_UP
        for number, job in enumerate(given_up):
            if number < excess or job.created_wall_ms < oldest_ms or not self._is_needed(job):
                self._forget(job)


def _waits(job: Job) -> bool:
    return job.state is JobState.WAITING


def _fields(job: Job) -> dict[str, str]:
    return {
        "issue_id": job.issue_id,
        "issue_identifier": job.issue_identifier,
        "kind": job.kind,
        "key": job.key,
    }

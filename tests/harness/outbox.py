"""The outbox of a daemon, with a journal that outlives it and a state that a test decides on."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from harness.binding import StoryCore
from harness.scheduling import make_failure, make_issue, make_settings
from symphony.daemon.comments import CommentDraft, CommentWriter, queue_comment
from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import ActionRequest
from symphony.daemon.jobs import JobKind, JobRunner
from symphony.daemon.moves import Moves
from symphony.journal.jobs import Job, JobDone
from symphony.journal.model import decode, encode
from symphony.scheduler import Event, Recovered, Resume, State, WakeAsked, initial_state
from symphony.scheduler.state import Blocked, Running

__all__ = ["EPOCH_MS", "Outbox", "make_state"]

EPOCH_MS = 1_767_225_600_000  # 2026-01-01


def make_state(
    *,
    running: Sequence[str] = (),
    blocked: Sequence[str] = (),
    unblocked: bool = False,
    resume: Resume | None = None,
) -> State:
    """A state with issues that run, by `resume`, and blocked ones, which shall continue if `unblocked`."""
    return initial_state(make_settings(), epoch="e").changed(
        running={
            key: Running(
                run_id=f"e-{key}",
                issue=make_issue(key),
                attempt=None,
                started_ms=0,
                max_turns=1,
                attempts_without_progress=0,
                resume=resume,
            )
            for key in running
        },
        blocked={
            key: Blocked(
                issue=make_issue(key),
                failure=make_failure(),
                blocked_ms=0,
                unblock_reason="a person answered" if unblocked else None,
            )
            for key in blocked
        },
    )


class Outbox:
    """The jobs of one daemon.

    Attributes:
        context: the context in force.
        state: what the scheduler knows.
        journal: what a successor finds, by key.
        wakes: how often an issue was moved back.
        wall_shift_ms: by how much the wall clock was set.
    """

    def __init__(
        self,
        context: RuntimeContext,
        left: Sequence[Job] = (),
        *,
        comments: CommentWriter | None = None,
        kinds: Mapping[str, JobKind] | None = None,
        max_jobs: int = 20_000,
        wall_shift_ms: int = 0,
    ) -> None:
        self.context = context
        self.state = make_state(blocked=[str(number) for number in range(10)])
        self.journal = {job.key: job for job in left}
        self.wakes = 0
        self.wall_shift_ms = wall_shift_ms
        self.core = StoryCore(
            state=lambda: self.state,
            context=lambda: self.context,
            post=self._woken,
            now_ms=lambda: round(anyio.current_time() * 1000),
            wall_ms=self.wall_ms,
        )
        self.jobs = JobRunner(self.core, left, record=self._record, max_jobs=max_jobs)
        self.jobs.kinds = dict(kinds or {"comment": comments or CommentWriter(), "move": Moves(self.core)})
        self.core.observers = (self.jobs,)

    def wall_ms(self) -> int:
        """The wall clock."""
        return EPOCH_MS + round(anyio.current_time() * 1000) + self.wall_shift_ms

    def _woken(self, event: Event | ActionRequest) -> None:
        self.wakes += isinstance(event, WakeAsked)

    def _record(self, record: Job | JobDone) -> None:
        if isinstance(record, Job):
            self.journal[record.key] = record
        else:
            self.journal.pop(record.key, None)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Serve; at the end the daemon is gone without a farewell."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.jobs.run)
            self.core.stepped(self.state, Recovered(), self.state, ())
            with anyio.fail_after(7 * 86_400):
                yield
            tasks.cancel_scope.cancel()

    async def once(self) -> None:
        """Try everything that was not tried."""
        async with self.at_work():
            await self.jobs.finish()

    async def settle(self) -> None:
        """Serve until no job waits."""
        async with self.at_work():
            while self.waiting:  # noqa: ASYNC110 - virtual time passes at once
                await anyio.sleep(0.5)

    async def post(self, comment: CommentDraft) -> None:
        """Queue a comment, and try it."""
        queue_comment(self.jobs, self.context, comment)
        await self.once()

    @property
    def waiting(self) -> list[str]:
        """The keys of what is still tried."""
        return [job.key for job in self.jobs.jobs if job.state == "waiting"]

    def successor(self, **options: object) -> "Outbox":
        """The outbox of the next daemon, which finds the journal."""
        left = tuple(decode(encode(job), Job) for job in self.journal.values())
        return Outbox(self.context, left, **options)  # type: ignore[arg-type]

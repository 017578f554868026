"""The pull requests of one issue, against a forge in memory: what a daemon with real parts makes of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
from typing_extensions import override

from contract.forges import ForgeDesk
from contract.repository import Pull
from harness.binding import FakeWorkspaces, MovingTracker, StoryCore, make_context
from harness.scheduling import Story, make_issue
from symphony.api.observer import Observer
from symphony.config import ForgeSettings
from symphony.daemon.core import ActionRequest
from symphony.daemon.forge.pull_requests import PullRequests
from symphony.daemon.jobs import JobRunner
from symphony.domain import Category, DeliveredBranch, Verification, WorkSize
from symphony.journal.jobs import Job, JobDone
from symphony.journal.model import PullRequestRecord
from symphony.scheduler import (
    Command,
    Event,
    FeedbackGiven,
    Outcome,
    OutcomeKind,
    Recovered,
    RunEnded,
)
from symphony.services.pulls import Forge
from symphony.workspaces import Removal, WorkspaceError

__all__ = ["BRANCH", "Daemon", "KilledError", "given", "looks_later", "opened"]

BRANCH = "symphony/SYM-1"


class KilledError(BaseException):
    """The daemon dies here."""


@dataclass
class Workspaces(FakeWorkspaces):
    """Knows the branch at the remote's HEAD."""

    head: str | None = "main"
    fails: bool = False
    deleted: list[tuple[str, str]] = field(default_factory=list)
    deletion_fails: bool = False

    async def base_branch(self) -> str | None:
        if self.fails:
            raise ZeroDivisionError
        return self.head

    @override
    async def fetch_base(self, branch: str) -> str | None:
        if self.fails:
            raise WorkspaceError.of(Category.WORKSPACE_REPOSITORY, "no answer")
        return {"main": "c" * 40}.get(branch)

    @override
    async def delete_branch(self, branch: str, head: str) -> Removal:
        self.deleted.append((branch, head))
        if self.deletion_fails:
            raise WorkspaceError.of(Category.PUSH_FAILED, "no answer")
        return Removal(removed=True)


@dataclass
class Journal:
    """What the daemon recorded, and how often; it dies at the `dies_at`-th write and writes no more."""

    records: dict[str, PullRequestRecord] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    writes: int = 0
    dies_at: int | None = None

    def record(self, record: PullRequestRecord | Job | JobDone) -> None:
        self.writes += 1
        if self.dies_at is not None and self.writes >= self.dies_at:
            raise KilledError
        match record:
            case Job():
                self.jobs[record.key] = record
            case JobDone():
                self.jobs.pop(record.key, None)
            case _:
                self.records[record.issue.id] = record

    async def recorded(self) -> None:
        """Everything is written at once."""


class Judged(Observer):
    """Notes the codes of pull requests that wait for something else than before."""

    def __init__(self, codes: list[str]) -> None:
        self._codes = codes

    @override
    def pull_request_judged(self, record: PullRequestRecord, message: str) -> None:
        self._codes.append(record.code)


class Daemon(Story):
    """A story with pull requests on a forge; `restart` is the next daemon."""

    def __init__(self, desk: ForgeDesk, place: Path, **forge: Any) -> None:
        super().__init__(make_issue(title="Fix the login", url="https://tracker.example.test/SYM-1"))
        self.desk, self.place, self.journal = desk, place, Journal()
        self.workspaces = Workspaces()
        self.tracker = MovingTracker()
        self.broken: Any = None
        self.merged, self.changed = list[str](), list[str]()
        self.posted = list[Event]()
        self.wall_ms = 1_000_000
        self.configure(**forge)
        self.restart()

    def configure(self, *, verify: Sequence[str] = (), **forge: Any) -> None:
        given = {"kind": self.desk.kind, "repo": "octo-team/website", "token": "$T", **forge}
        workspace = {"root": str(self.place / "root"), "repo": "/repo"}
        more = json.dumps({"forge": given, "workspace": workspace, "verify": {"commands": verify}})
        self.context = make_context(self.place, self.tracker, self.workspaces, more=more)

    def restart(self, *, recovered: bool = True) -> None:
        """The next daemon, which knows what the one before left, unless not `recovered` yet."""
        self.journal.dies_at = None
        core = StoryCore(
            state=lambda: self.state if recovered else None,
            context=lambda: self.context,
            post=self._posted,
            now_ms=lambda: self.wall_ms,
            wall_ms=lambda: self.wall_ms,
        )
        core.recorded = self.journal.recorded
        self.jobs = JobRunner(core, tuple(self.journal.jobs.values()), record=self.journal.record)
        self.pulls = PullRequests(
            core,
            self.jobs,
            recovered=tuple(self.journal.records.values()),
            record=self.journal.record,
            on_merged=lambda issue: self.merged.append(issue.identifier),
            connect=self._connect,
        )
        self.jobs.kinds = {"pull_request": self.pulls.kind}
        core.observers = (self.jobs, self.pulls, Judged(self.changed))
        if recovered:
            core.stepped(self.state, Recovered(), self.state, ())

    def _posted(self, event: Event | ActionRequest) -> None:
        assert not isinstance(event, ActionRequest)
        self.posted.append(event)

    def _connect(self, settings: ForgeSettings, environment: Mapping[str, str]) -> Forge:
        del settings, environment
        return self.desk.forge if self.broken is None else cast("Forge", self.broken)

    @override
    def _step(self, fact: Event) -> tuple[Command, ...]:
        before = self.state
        commands = super()._step(fact)
        self.pulls(before, fact, self.state, commands)
        return commands

    def works(
        self,
        *,
        state: str = "Human Review",
        pushed: bool = True,
        summary: str = "Done it.",
        verified: bool = False,
    ) -> "Daemon":
        """An agent finishes the issue; its branch is delivered, and passes its verification if `verified`."""
        if not self.state.running:
            self.begin()
        self.streams(turn_count=1, total_tokens=700, cost_usd=0.5)
        self.put("1", state=state)
        self.turn_ends()
        self.head = self.desk.repository.push(BRANCH)
        delivered = DeliveredBranch(
            work=WorkSize(commits=2, files_changed=1, insertions=5, deletions=3),
            branch=BRANCH,
            head=self.head,
            pushed=pushed,
        )
        made = Outcome(
            kind=OutcomeKind.SUCCEEDED,
            progress=True,
            delivered=delivered,
            summary=summary,
            verification=Verification(head=self.head) if verified else None,
        )
        self.tell(RunEnded(run_id=self.run_id("1"), outcome=made))
        self.advance(2_000)
        return self

    async def looks(self) -> None:
        """Everything that is due happens."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.pulls.run)
            tasks.start_soon(self.jobs.run)
            await anyio.lowlevel.checkpoint()  # it looks
            for _ in range(3):  # a job of a look may lead to another look
                await self.pulls.finish()
                await self.jobs.finish()
                await self._tried()
            tasks.cancel_scope.cancel()

    async def _tried(self) -> None:
        """Everything that is due was tried, unless its receiver is left alone."""
        for _ in range(200):
            if not any(job.state == "waiting" and job.due_wall_ms <= self.wall_ms for job in self.jobs.jobs):
                return
            await anyio.lowlevel.checkpoint()

    @property
    def record(self) -> PullRequestRecord:
        return self.journal.records["1"]

    def opened(self) -> list[Pull]:
        return list(self.desk.repository.pulls.values())


async def opened(daemon: Daemon) -> Pull:
    """Its pull request is open, and looked at once."""
    daemon.works()
    await daemon.looks()
    (pull,) = daemon.opened()
    return pull


async def looks_later(daemon: Daemon, after_ms: int = 200_000) -> PullRequestRecord:
    daemon.wall_ms += after_ms
    await daemon.looks()
    return daemon.record


def given(daemon: Daemon) -> list[FeedbackGiven]:
    return [event for event in daemon.posted if isinstance(event, FeedbackGiven)]

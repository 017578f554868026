"""The daemon's end of a run: it answers what the worker asks, and the run ends exactly once."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from structlog.testing import capture_logs
from typing_extensions import override

from harness.binding import Mailbox
from harness.scheduling import make_failure, make_issue
from symphony.api.observer import Observer
from symphony.daemon.comments import ReadComments
from symphony.daemon.core import Core
from symphony.daemon.frames import (
    CommentsAsked,
    ConversationOpened,
    DaemonFrame,
    Report,
    RunOutcome,
    SkillsCollected,
    SkillsLoaded,
    Start,
    Stop,
    TurnFinished,
    WorkerFrame,
)
from symphony.daemon.frames import RequestAnswered as AnswerFrame
from symphony.daemon.runs.link import DaemonLink, LinkedTools
from symphony.daemon.runs.supervised_run import SupervisedRun
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Category, Issue, PeopleComments, RunFacts, SymphonyError, ToolResult, ToolSpec
from symphony.journal.model import ToldComment
from symphony.library.sync import CollectedSkills, Synced
from symphony.library.workspace import WrittenSkills
from symphony.scheduler import (
    ContinueRun,
    Outcome,
    OutcomeKind,
    RunEnded,
    RunReport,
    RunStage,
    StartRun,
    TurnEnded,
)
from symphony.skills import SkillSet

pytestmark = pytest.mark.asyncio

ISSUE = make_issue("1")
START = StartRun(run_id="e-1", issue=ISSUE, attempt=None)
SUCCEEDED = Outcome(kind=OutcomeKind.SUCCEEDED)
SPEC = ToolSpec(name="comment", description="", input_schema={})
FOUND = SkillSet(root=Path("/w/SYM-1"))
COLLECTED = CollectedSkills(
    written=WrittenSkills(directory=".agents/skills", skills={}), files={"a.md": b"a"}
)
READ = ReadComments(
    shown=PeopleComments(left_out=3), told=(ToldComment(comment_id="c", digest="d", times=1),)
)
SYNCED = Synced(created=("a",), proposals=(1,))


class Tools:
    """Tools that take their time, and record the issue that they ran on."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []
        self.go = anyio.Event()
        self.begun = anyio.Event()
        self.cancelled = False
        self.error: Exception | None = None
        self.commented = False

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        return (SPEC,)

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        self.issues.append(issue)
        self.begun.set()
        try:
            await self.go.wait()
        except BaseException:
            self.cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return ToolResult.of({"name": name, **arguments}, commented=self.commented)


class Onlooker(Observer):
    def __init__(self, bench: "Bench") -> None:
        self._bench = bench

    @override
    async def conversation_opened(self, run_id: str, thread_id: str) -> None:
        self._bench.reported.append(f"{run_id} {thread_id}")

    @override
    def comments_told(self, issue_id: str, told: tuple[ToldComment, ...]) -> None:
        self._bench.told.append((issue_id, told))


@dataclass
class Bench:
    """A supervised run whose worker does what the test says."""

    act: Callable[["Bench"], Awaitable[None]]
    tools: Tools = field(default_factory=Tools)
    mailbox: Mailbox = field(default_factory=Mailbox)
    frames: list[DaemonFrame] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    told: list[tuple[str, tuple[ToldComment, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        core = Core(
            state_dir=StateDirectory(Path("unused")),
            environment={},
            post=self.mailbox.post,
            now_ms=lambda: 0,
            wall_ms=lambda: 0,
        )
        core.observers = (Onlooker(self),)
        self.run = SupervisedRun(
            START, core, carrier=self.carry, tools=self.tools, requests=self, log_fields={}
        )

    async def read_comments(self, _command: StartRun) -> ReadComments:
        await checkpoint()
        return READ

    async def report_skills(self, issue: Issue, found: SkillSet) -> None:
        await checkpoint()
        self.reported.append(f"{issue.id} {found.root}")

    async def keep_artifact(self, run_id: str, name: str, data: bytes) -> None:
        await checkpoint()
        self.reported.append(f"{run_id} {name} {len(data)}")

    async def sync_skills(self, command: StartRun, collected: CollectedSkills) -> Synced:
        await checkpoint()
        self.reported.append(f"{command.run_id} {collected.written.directory}")
        return SYNCED

    def carry(self, start: Start, send: Callable[[WorkerFrame], None]) -> "Bench.End":
        self.link = DaemonLink(send)
        self.offered = LinkedTools(self.link, start.tools, session_id=lambda: "s")
        return Bench.End(self)

    @dataclass
    class End:
        """The end of the worker."""

        bench: "Bench"

        def on_frame(self, frame: DaemonFrame) -> None:
            self.bench.frames.append(frame)
            if isinstance(frame, AnswerFrame):
                self.bench.link.on_answer(frame)

        async def run(self) -> None:
            await self.bench.act(self.bench)

    async def call(self) -> ToolResult:
        return await self.offered.execute_agent_tool("comment", {"body": "x"}, issue=ISSUE)


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[anyio.CancelScope]:
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.run.run)
            yield tasks.cancel_scope


def ends(bench: Bench) -> list[RunEnded]:
    return [event for event in bench.mailbox.facts if isinstance(event, RunEnded)]


async def test_a_tool_runs_in_the_daemon_on_the_newest_copy_of_the_issue() -> None:
    results: list[ToolResult] = []

    async def act(bench: Bench) -> None:
        assert bench.offered.agent_tool_specs() == (SPEC,)
        bench.link.send(TurnFinished(turn=1))
        results.append(await bench.call())
        bench.link.send(RunOutcome(outcome=SUCCEEDED))

    bench, newer = Bench(act), make_issue("1", title="New")
    bench.tools.go.set()
    bench.run.direct(ContinueRun(run_id="e-1", issue=newer, turn=2))
    async with running(bench):
        pass
    assert bench.tools.issues == [newer]
    assert results == [ToolResult.of({"name": "comment", "body": "x"})]
    assert bench.mailbox.facts == [
        TurnEnded(run_id="e-1", turn=1),
        RunEnded(run_id="e-1", outcome=SUCCEEDED),
    ]


@pytest.mark.parametrize("commented", [True, False])
@pytest.mark.parametrize("said", [True, False])
async def test_whether_the_agent_commented_the_daemon_knows(commented: bool, said: bool) -> None:  # noqa: FBT001 - parameters
    async def act(bench: Bench) -> None:
        await bench.call()
        bench.link.send(RunOutcome(outcome=replace(SUCCEEDED, commented=said)))

    bench = Bench(act)
    bench.tools.commented = commented
    bench.tools.go.set()
    async with running(bench):
        pass
    assert [each.outcome.commented for each in ends(bench)] == [commented]


async def test_a_worker_that_asks_too_much_at_once_is_refused_and_the_rest_answered() -> None:
    failures: list[Category] = []

    async def ask(bench: Bench) -> None:
        try:
            await bench.call()
        except SymphonyError as error:
            failures.append(error.failure.category)

    async def act(bench: Bench) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(205):
                tasks.start_soon(ask, bench)
            await bench.tools.begun.wait()
            while len(failures) < 5:
                await checkpoint()
            bench.tools.go.set()
        bench.link.send(RunOutcome(outcome=SUCCEEDED))

    bench = Bench(act)
    async with running(bench):
        pass
    assert failures == [Category.INTERNAL] * 5
    assert len(bench.tools.issues) == 200


async def test_a_tool_that_raises_fails_its_call_and_nothing_else() -> None:
    caught: list[SymphonyError] = []

    async def act(bench: Bench) -> None:
        for error in (SymphonyError(make_failure()), ValueError("a bug")):
            bench.tools.error = error
            with pytest.raises(SymphonyError) as info:
                await bench.call()
            caught.append(info.value)
        bench.link.send(RunOutcome(outcome=SUCCEEDED))

    bench = Bench(act)
    bench.tools.go.set()
    with capture_logs() as logs:
        async with running(bench):
            pass
    assert caught[0].failure == make_failure()
    assert caught[1].failure.category is Category.INTERNAL
    assert [entry["event"] for entry in logs] == ["request_failed"]


async def test_a_call_that_the_agent_gave_up_is_cancelled_in_the_daemon() -> None:
    async def act(bench: Bench) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.call)
            await bench.tools.begun.wait()
            tasks.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert bench.tools.cancelled
        bench.link.send(RunOutcome(outcome=SUCCEEDED))

    bench = Bench(act)
    async with running(bench):
        pass
    assert len(ends(bench)) == 1


async def test_a_worker_that_ends_without_a_word_is_a_failed_run() -> None:
    async def act(bench: Bench) -> None:
        """Ends."""

    bench = Bench(act)
    async with running(bench):
        pass
    (ended,) = ends(bench)
    assert ended.outcome.kind is OutcomeKind.FAILED
    assert ended.outcome.failure is not None
    assert ended.outcome.failure.category is Category.WORKER_LOST


async def test_nothing_counts_behind_the_end() -> None:
    async def act(bench: Bench) -> None:
        bench.link.send(RunOutcome(outcome=SUCCEEDED))
        bench.link.send(TurnFinished(turn=9))
        bench.link.send(RunOutcome(outcome=Outcome(kind=OutcomeKind.FAILED)))

    bench = Bench(act)
    async with running(bench):
        pass
    bench.run.stop()
    assert bench.mailbox.facts == [RunEnded(run_id="e-1", outcome=SUCCEEDED)]
    assert not any(isinstance(frame, Stop) for frame in bench.frames)


async def test_a_daemon_that_is_cancelled_still_answers_a_worker_that_finishes() -> None:
    async def act(bench: Bench) -> None:
        with anyio.CancelScope(shield=True):
            with pytest.raises(SymphonyError):
                await bench.call()
            await bench.link.request(lambda number: SkillsLoaded(request=number, found=FOUND))
            answer = await bench.link.request(
                lambda number: SkillsCollected(request=number, collected=COLLECTED)
            )
            assert answer is not None
            assert answer.synced == SYNCED
            bench.link.send(RunOutcome(outcome=Outcome(kind=OutcomeKind.CANCELED)))

    bench = Bench(act)
    async with running(bench) as scope:
        await bench.tools.begun.wait()
        scope.cancel()
    assert bench.reported == [f"1 {FOUND.root}", "e-1 .agents/skills"]
    assert [ended.outcome.kind for ended in ends(bench)] == [OutcomeKind.CANCELED]


async def test_a_conversation_is_recorded_before_the_worker_goes_on() -> None:
    async def act(bench: Bench) -> None:
        await bench.link.request(lambda number: ConversationOpened(request=number, thread_id="t-1"))
        assert bench.reported == ["e-1 t-1"]
        bench.link.send(RunOutcome(outcome=SUCCEEDED))

    bench = Bench(act)
    async with running(bench):
        pass
    assert len(ends(bench)) == 1


async def test_without_a_daemon_no_request_waits() -> None:
    link, sent = DaemonLink(lambda _: None), list[object]()

    async def ask() -> None:
        sent.append(await link.request(lambda number: ConversationOpened(request=number, thread_id="t")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert sent == []
        link.lose()
    await ask()
    assert sent == [None, None]


async def test_comments_count_as_told_when_the_agent_has_begun_its_turn() -> None:
    async def act(bench: Bench) -> None:
        answer = await bench.link.request(lambda number: CommentsAsked(request=number))
        assert answer is not None
        assert answer.comments == READ.shown
        bench.link.send(Report(report=RunReport(stage=RunStage.STREAMING_TURN, facts=RunFacts(turn_count=0))))
        assert bench.told == []
        for _ in range(2):
            bench.link.send(
                Report(report=RunReport(stage=RunStage.STREAMING_TURN, facts=RunFacts(turn_count=1)))
            )
        bench.link.send(RunOutcome(outcome=SUCCEEDED))

    bench = Bench(act)
    async with running(bench):
        pass
    assert bench.told == [("1", READ.told)]

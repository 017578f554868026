from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import anyio
import pytest
from anyio import to_thread
from anyio.lowlevel import checkpoint
from structlog.testing import capture_logs

from harness.binding import (
    SECRET,
    CommentingTracker,
    FakeTracker,
    FakeWorkspaces,
    Mailbox,
    make_context,
    nothing,
)
from harness.outbox import Outbox
from harness.scheduling import make_failure, make_issue
from symphony.daemon import effects as module
from symphony.daemon.clock import Timers
from symphony.daemon.comments import PeopleCommentReader, SkillComments
from symphony.daemon.core import Core
from symphony.daemon.effects import Effects, Timeouts
from symphony.daemon.frames import Start
from symphony.daemon.hosts.hosts import Hosts
from symphony.daemon.runs.tracing import Traces
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Category, Failure
from symphony.processes.local import LocalHost
from symphony.scheduler import (
    AnswersRead,
    AnswersReadFailed,
    CleanWorkspace,
    ContinueRun,
    Exit,
    FetchCandidates,
    FinishReason,
    FinishRun,
    IssueComment,
    Notify,
    OutcomeKind,
    Polled,
    PollFailed,
    PostComment,
    ReadAnswers,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    RunEnded,
    SetTimer,
    StartRun,
    StopReason,
    StopRun,
    Timer,
    TimerFired,
    TimerKind,
)
from symphony.trackers.base import TrackerError
from symphony.trackers.memory import MemoryTracker
from symphony.workspaces import Removal, WorkspaceError

pytestmark = pytest.mark.asyncio

DEFAULT_TIMEOUTS = Timeouts()
ONE, TWO = make_issue("1"), make_issue("2")
START = StartRun(run_id="e-1", issue=ONE, attempt=None)
CLEAN = CleanWorkspace(issue_id="1", identifier="SYM-1", path="/w/SYM-1")
LEAK = f"Authorization: Bearer abcdef0123456789 for {SECRET}"


@dataclass
class Desk:
    """Effects with a mailbox, in a task group that ends with the test."""

    effects: Effects
    mailbox: Mailbox
    exited: anyio.Event
    core: Core
    outbox: Outbox


@asynccontextmanager
async def at_work(
    path: Path,
    tracker: FakeTracker | None = None,
    workspaces: FakeWorkspaces | None = None,
    before_poll: Callable[[], Awaitable[None]] = nothing,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> AsyncIterator[Desk]:
    mailbox, exited = Mailbox(), anyio.Event()
    core = Core(
        state_dir=StateDirectory(path / "state"),
        environment={},
        post=mailbox.post,
        now_ms=lambda: 0,
        wall_ms=lambda: 0,
    )
    core.timers, core.context = Timers(mailbox.post), make_context(path, tracker or FakeTracker(), workspaces)
    await to_thread.run_sync(core.state_dir.create)
    async with anyio.create_task_group() as tasks:
        effects = Effects(
            core,
            tasks=tasks,
            before_poll=before_poll,
            review_tools=lambda _issue_id, tools: tools,
            handled=checkpoint,
            on_exit=exited.set,
            jobs=(outbox := Outbox(core.context)).jobs,
            skill_comments=SkillComments(outbox.jobs, record=lambda _: None, recorded=checkpoint),
            people_comments=PeopleCommentReader(lambda _: ()),
            traces=Traces(None, found_ms=lambda _: None, now_ms=lambda: 0),
            hosts=Hosts(LocalHost(), {}, path),
            timeouts=timeouts,
        )
        tasks.start_soon(core.timers.run)
        async with outbox.at_work():
            yield Desk(effects, mailbox, exited, core, outbox)
        tasks.cancel_scope.cancel()


def raising(error: Exception) -> Callable[[], Awaitable[None]]:
    async def step() -> NoReturn:
        raise error

    return step


# --- the tracker ---


async def test_a_poll_asks_for_the_active_states_and_hands_the_issues_on(tmp_path: Path) -> None:
    tracker = FakeTracker((ONE, TWO))
    async with at_work(tmp_path, tracker) as desk:
        desk.effects.carry_out(FetchCandidates(request=7))
        assert await desk.mailbox.until(Polled) == Polled(request=7, issues=(ONE, TWO))
    assert tracker.asked == [("Todo", "In Progress")]


async def test_a_poll_tells_what_the_tracker_left_out_without_secrets(tmp_path: Path) -> None:
    class Skipping(FakeTracker):
        def skipped(self) -> tuple[Failure, ...]:
            return (make_failure(LEAK, where="SYM-2.md:1"),)

    async with at_work(tmp_path, Skipping((ONE,))) as desk:
        desk.effects.carry_out(FetchCandidates(request=7))
        polled = await desk.mailbox.until(Polled)
    (left_out,) = polled.skipped_records
    assert (polled.issues, left_out.where) == ((ONE,), "SYM-2.md:1")
    assert SECRET not in left_out.message


async def test_a_refresh_is_one_request_for_all_ids(tmp_path: Path) -> None:
    tracker = FakeTracker((ONE, TWO))
    async with at_work(tmp_path, tracker) as desk:
        desk.effects.carry_out(RefreshIssues(request=8, ids=frozenset({"2", "3"})))
        assert await desk.mailbox.until(Refreshed) == Refreshed(request=8, issues=(TWO,))
    assert tracker.asked == [frozenset({"2", "3"})]


async def test_a_failing_tracker_becomes_a_fact_without_secrets(tmp_path: Path) -> None:
    error = TrackerError(make_failure(LEAK, hint=LEAK), culprits=frozenset({"2"}))
    async with at_work(tmp_path, FakeTracker(before_answer=raising(error))) as desk:
        desk.effects.carry_out(FetchCandidates(request=1))
        desk.effects.carry_out(RefreshIssues(request=2, ids=frozenset({"1", "2"})))
        poll = await desk.mailbox.until(PollFailed)
        refresh = await desk.mailbox.until(RefreshFailed)
    assert (poll.request, refresh.request, refresh.culprits) == (1, 2, frozenset({"2"}))
    for failure in (poll.failure, refresh.failure):
        assert failure.category is error.failure.category
        assert SECRET not in failure.message + (failure.hint or "")
        assert "abcdef0123456789" not in failure.message + (failure.hint or "")


async def test_a_bug_in_an_adapter_becomes_a_fact_too(tmp_path: Path) -> None:
    async with at_work(tmp_path, FakeTracker(before_answer=raising(KeyError(SECRET)))) as desk:
        with capture_logs() as logs:
            desk.effects.carry_out(FetchCandidates(request=1))
            desk.effects.carry_out(RefreshIssues(request=2, ids=frozenset({"1"})))
            poll = await desk.mailbox.until(PollFailed)
            refresh = await desk.mailbox.until(RefreshFailed)
    assert poll.failure.category is refresh.failure.category is Category.TRACKER_REQUEST
    assert poll.failure.message == "internal error: KeyError('***')"
    assert refresh.culprits == frozenset()
    assert [line["event"] for line in logs] == ["tracker_crashed", "tracker_crashed"]


async def test_a_reload_that_breaks_before_a_poll_costs_that_poll(tmp_path: Path) -> None:
    async with at_work(tmp_path, before_poll=raising(OSError("gone"))) as desk:
        with capture_logs():
            desk.effects.carry_out(FetchCandidates(request=1))
            assert "gone" in (await desk.mailbox.until(PollFailed)).failure.message


async def test_a_poll_uses_what_the_reload_before_it_bound(tmp_path: Path) -> None:
    newer = FakeTracker((TWO,))

    async def reload() -> None:
        desk.core.context = make_context(tmp_path, newer)

    async with at_work(tmp_path, FakeTracker((ONE,)), before_poll=reload) as desk:
        desk.effects.carry_out(FetchCandidates(request=1))
        assert (await desk.mailbox.until(Polled)).issues == (TWO,)


@pytest.mark.conformance("S-7")
async def test_a_tracker_that_never_answers_is_given_up_and_named(tmp_path: Path) -> None:
    tracker = FakeTracker(before_answer=anyio.sleep_forever)
    async with at_work(tmp_path, tracker, timeouts=Timeouts(tracker_s=0.01)) as desk:
        desk.effects.carry_out(FetchCandidates(request=1))
        desk.effects.carry_out(RefreshIssues(request=2, ids=frozenset({"1"})))
        poll = await desk.mailbox.until(PollFailed)
        refresh = await desk.mailbox.until(RefreshFailed)
    assert poll.failure == refresh.failure
    assert poll.failure.line == "tracker_request: no answer within 0.01 s"
    assert poll.failure.hint is not None
    assert refresh.culprits == frozenset()


async def test_while_a_tracker_hangs_everything_else_is_carried_out(tmp_path: Path) -> None:
    timer = Timer(TimerKind.RETRY, "2")
    async with at_work(tmp_path, FakeTracker(before_answer=anyio.sleep_forever)) as desk:
        desk.effects.carry_out(FetchCandidates(request=1))
        desk.effects.carry_out(RefreshIssues(request=2, ids=frozenset({"1"})))
        desk.effects.carry_out(SetTimer(timer=timer, token=3, due_ms=0))
        desk.effects.carry_out(Exit())
        assert await desk.mailbox.until(TimerFired) == TimerFired(timer=timer, token=3)
        with anyio.fail_after(60):
            await desk.exited.wait()


# --- runs ---


async def test_a_worker_that_cannot_be_made_is_a_failed_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> NoReturn:
        raise OSError(f"no memory for {SECRET}")

    monkeypatch.setattr(module, "Worker", broken)
    async with at_work(tmp_path) as desk:
        with capture_logs():
            desk.effects.carry_out(START)
            ended = await desk.mailbox.until(RunEnded)
    assert (ended.run_id, ended.outcome.kind) == ("e-1", OutcomeKind.FAILED)
    assert ended.outcome.failure is not None
    assert ended.outcome.failure.message == "failed to spawn agent: OSError('no memory for ***')"


class FakeWorker:
    """Stands in for a `Worker`: tells what happened, and goes on when `go` is set."""

    def __init__(self, story: list[str]) -> None:
        self.story = story
        self.go = anyio.Event()
        self.begun = anyio.Event()

    def make(self, start: Start, _send: object, **_: object) -> "FakeWorker":
        assert start.command is START
        return self

    async def run(self) -> None:
        self.story.append("run begins")
        self.begun.set()
        await self.go.wait()
        self.story.append("run ends")


async def test_a_removal_waits_for_the_run_of_its_issue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story: list[str] = []
    worker = FakeWorker(story)
    both = anyio.Event()

    async def removal() -> None:
        story.append("removed")
        if story.count("removed") == 2:
            both.set()

    monkeypatch.setattr(module, "Worker", worker.make)
    workspaces = FakeWorkspaces(removal)
    async with at_work(tmp_path, workspaces=workspaces) as desk:
        desk.effects.carry_out(START)
        with anyio.fail_after(60):
            await worker.begun.wait()
        desk.effects.carry_out(CLEAN)
        desk.effects.carry_out(CleanWorkspace(issue_id="2", identifier="SYM-2", path=None))
        await anyio.wait_all_tasks_blocked()
        assert story == ["run begins", "removed"], "only that of the other issue"
        worker.go.set()
        with anyio.fail_after(60):
            await both.wait()
        assert story == ["run begins", "removed", "run ends", "removed"]
    assert [str(record.path) for record in workspaces.removed] == [
        "/workspaces/SYM-2",
        "/w/SYM-1",
    ]


async def test_no_lock_of_a_workspace_is_kept_when_nobody_needs_it(tmp_path: Path) -> None:
    async with at_work(tmp_path) as desk:
        async with desk.effects._workspace_lock("1"):
            assert desk.effects._workspace_lock("1").locked()
            assert len(desk.effects._workspace_locks) == 1
        assert not desk.effects._workspace_locks


async def test_a_run_waits_for_the_removal_of_its_issue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story: list[str] = []
    worker, go = FakeWorker(story), anyio.Event()
    worker.go.set()

    async def removal() -> None:
        story.append("removal begins")
        await go.wait()
        story.append("removal ends")

    monkeypatch.setattr(module, "Worker", worker.make)
    async with at_work(tmp_path, workspaces=FakeWorkspaces(removal)) as desk:
        desk.effects.carry_out(CLEAN)
        await anyio.wait_all_tasks_blocked()
        desk.effects.carry_out(START)
        await anyio.wait_all_tasks_blocked()
        assert story == ["removal begins"]
        go.set()
        await anyio.wait_all_tasks_blocked()
    assert story == ["removal begins", "removal ends", "run begins", "run ends"]


async def test_a_run_that_is_stopped_while_it_waits_still_answers_once(tmp_path: Path) -> None:
    go = anyio.Event()
    async with at_work(tmp_path, workspaces=FakeWorkspaces(go.wait)) as desk:
        desk.effects.carry_out(CLEAN)
        await anyio.wait_all_tasks_blocked()
        desk.effects.carry_out(START)
        desk.effects.carry_out(StopRun(run_id="e-1", reason=StopReason.TERMINAL))
        await anyio.wait_all_tasks_blocked()
        assert desk.mailbox.facts == []
        go.set()
        ended = await desk.mailbox.until(RunEnded)
        await anyio.wait_all_tasks_blocked()
        assert desk.mailbox.facts.count(ended) == 1
        assert ended.outcome.kind is OutcomeKind.CANCELED


async def test_words_to_a_run_that_is_over_are_dropped(tmp_path: Path) -> None:
    async with at_work(tmp_path) as desk:
        desk.effects.carry_out(StopRun(run_id="gone", reason=StopReason.TERMINAL))
        desk.effects.carry_out(ContinueRun(run_id="gone", issue=ONE, turn=2))
        desk.effects.carry_out(FinishRun(run_id="gone", reason=FinishReason.INACTIVE))
        await anyio.wait_all_tasks_blocked()
        assert desk.mailbox.facts == []


# --- beside the work ---


async def test_the_outcome_of_a_removal_is_logged(tmp_path: Path) -> None:
    refused = WorkspaceError(make_failure("outside"))
    for answer, step, expected in (
        (Removal(removed=True), nothing, [("info", "workspace_removed", None)]),
        (Removal(removed=False, kept_reason="dirty"), nothing, [("warning", "workspace_kept", "dirty")]),
        (Removal(removed=False), nothing, []),
        (Removal(removed=False), raising(refused), [("warning", "workspace_kept", refused.failure.line)]),
    ):
        async with at_work(tmp_path, workspaces=FakeWorkspaces(step, answer)) as desk:
            with capture_logs() as logs:
                desk.effects.carry_out(CLEAN)
                await anyio.wait_all_tasks_blocked()
        assert [(line["log_level"], line["event"], line.get("reason")) for line in logs] == expected
        assert all(line["issue_identifier"] == "SYM-1" for line in logs)


async def test_what_breaks_beside_the_work_is_logged_and_ends_there(tmp_path: Path) -> None:
    async with at_work(tmp_path, workspaces=FakeWorkspaces(raising(RuntimeError("bug")))) as desk:
        with capture_logs() as logs:
            desk.effects.carry_out(CLEAN)
            await anyio.wait_all_tasks_blocked()
        assert [line["event"] for line in logs] == ["effect_crashed"]
        desk.effects.carry_out(Exit())
        with anyio.fail_after(60):
            await desk.exited.wait()


async def test_a_note_goes_onto_its_issue(tmp_path: Path) -> None:
    tracker = CommentingTracker()
    async with at_work(tmp_path, tracker) as desk:
        desk.effects.carry_out(PostComment(issue=ONE, kind="blocked", body="Help."))
        await anyio.wait_all_tasks_blocked()
    assert [body.splitlines()[-1] for body in tracker.comments.values()] == ["Help."]


async def test_comments_are_read_and_what_fails_is_a_fact(tmp_path: Path) -> None:
    note = PostComment(issue=ONE, kind="blocked", body="Red or blue?", occasion="r1")
    tracker = MemoryTracker([ONE])
    async with at_work(tmp_path) as desk:
        desk.core.context = replace(desk.core.in_force, tracker=tracker)
        desk.outbox.context = desk.core.in_force
        desk.effects.carry_out(note)
        await anyio.wait_all_tasks_blocked()
        tracker.comment(ONE.id, "Blue", author="ann")
        desk.effects.carry_out(ReadAnswers(question="r1", comment=note))
        await anyio.wait_all_tasks_blocked()
        tracker.remove(ONE.id)
        desk.effects.carry_out(ReadAnswers(question="r1", comment=note))
        await anyio.wait_all_tasks_blocked()
    read, unread = desk.mailbox.facts
    assert read == AnswersRead(
        issue_id=ONE.id, question="r1", answers=(IssueComment(id="c2", author="ann", text="Blue"),)
    )
    assert isinstance(unread, AnswersReadFailed)
    assert (unread.question, unread.failure.category) == ("r1", Category.TRACKER_STATUS)


async def test_leaving_waits_for_what_is_under_way(tmp_path: Path) -> None:
    go = anyio.Event()
    async with at_work(tmp_path, workspaces=FakeWorkspaces(go.wait)) as desk:
        desk.effects.carry_out(CLEAN)
        desk.effects.carry_out(CleanWorkspace(issue_id="2", identifier="SYM-2", path=None))
        desk.effects.carry_out(Exit())
        await anyio.wait_all_tasks_blocked()
        assert not desk.exited.is_set()
        go.set()
        with anyio.fail_after(60):
            await desk.exited.wait()


async def test_leaving_waits_for_a_bounded_time(tmp_path: Path) -> None:
    workspaces = FakeWorkspaces(anyio.sleep_forever)
    async with at_work(tmp_path, workspaces=workspaces, timeouts=Timeouts(exit_s=0.01)) as desk:
        desk.effects.carry_out(CLEAN)
        desk.effects.carry_out(Exit())
        with anyio.fail_after(60):
            await desk.exited.wait()


@pytest.mark.parametrize("early", [True, False])
async def test_who_stops_at_once_does_not_wait_for_a_tracker_that_hangs(
    tmp_path: Path, *, early: bool
) -> None:
    workspaces = FakeWorkspaces(anyio.sleep_forever)
    async with at_work(tmp_path, workspaces=workspaces, timeouts=Timeouts(hurried_exit_s=0.01)) as desk:
        desk.effects.carry_out(CLEAN)
        if early:
            desk.effects.hurry()
        desk.effects.carry_out(Exit())
        await anyio.wait_all_tasks_blocked()
        if not early:
            desk.effects.hurry()
        with anyio.fail_after(60):
            await desk.exited.wait()


async def test_a_timer_comes_back_as_a_fact(tmp_path: Path) -> None:
    timer = Timer(TimerKind.POLL)
    async with at_work(tmp_path) as desk:
        desk.effects.carry_out(SetTimer(timer=timer, token=3, due_ms=0))
        assert await desk.mailbox.until(TimerFired) == TimerFired(timer=timer, token=3)


async def test_a_notification_is_a_log_line_of_its_level_without_empty_fields(tmp_path: Path) -> None:
    async with at_work(tmp_path) as desk:
        with capture_logs() as logs:
            fields = {"reason": None, "turns": 0}
            desk.effects.carry_out(Notify(level="warning", event="run_ended", fields=fields))
            desk.effects.carry_out(Notify(level="info", event="x", issue_id="1", issue_identifier="SYM-1"))
            await anyio.wait_all_tasks_blocked()
    assert logs == [
        {"event": "run_ended", "log_level": "warning", "turns": 0},
        {"event": "x", "log_level": "info", "issue_id": "1", "issue_identifier": "SYM-1"},
    ]

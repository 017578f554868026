from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.project import Project, marked_processes, scripted
from harness.scheduling import make_failure
from harness.serving import DEADLINE_S, Watcher, make_service, serving
from harness.shell import word
from symphony.daemon import reload, service
from symphony.daemon.core import ActionRequest
from symphony.daemon.runs.skills import RunCatalog, load_run_skills
from symphony.domain import Blame, Category, Issue, SymphonyError
from symphony.scheduler import (
    CleanWorkspace,
    Command,
    Cycle,
    DayBegan,
    DrainAsked,
    Event,
    FinishReason,
    FinishRun,
    OperatorAction,
    OperatorAsked,
    Polled,
    Recovered,
    RunEnded,
    RunStage,
    SettingsChanged,
    StartRun,
    State,
    StopReason,
    StopRun,
    TurnEnded,
    WakeAsked,
    WorkflowRejected,
    step,
)
from symphony.trackers.markdown import MarkdownTracker
from symphony.workspaces import WorkspaceManager

pytestmark = pytest.mark.asyncio

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
WORK = [{"write": "a", "text": "a"}, {"commit": "A"}]
BROKEN = "---\ntracker: [\n---\n"


async def exists(path: Path) -> None:
    """Wait until another process has made the file."""
    with anyio.fail_after(DEADLINE_S):
        while not await anyio.Path(path).exists():  # noqa: ASYNC110 - the writer is another process
            await anyio.sleep(0.01)


def _as_process(project: Project) -> str:
    """The scripted agent where its process is looked for; elsewhere it is a thread of the test."""
    return scripted("--pid-file", str(project.root / "pids"))


async def no_process_of(run_ids: list[str]) -> None:
    assert run_ids
    assert await to_thread.run_sync(marked_processes, run_ids) == []


# --- reloading ---


async def test_a_reload_takes_settings_and_prompt_over_together(project: Project) -> None:
    project.workflow(body="old {{ issue.title }}")
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until_seen(Polled)
        script = '```scripted\n[[{"write": "new", "text": "x"}, {"commit": "New prompt"}, %s]]\n```\n'
        move_it = '{"tool": "board_move", "arguments": {"state": "Done"}}'
        await to_thread.run_sync(
            lambda: project.workflow(body=script % move_it, agent={"max_concurrent_agents": 3})
        )
        changed = await watcher.until_seen(SettingsChanged)
        assert changed.settings.max_concurrent_agents == 3
        await to_thread.run_sync(lambda: project.issue("SYM-1"))
        await watcher.until_seen(CleanWorkspace)
        log = await to_thread.run_sync(project.branch_log, "SYM-1")
    assert log == ["New prompt"]
    assert watcher.outcomes == ["succeeded"]


@pytest.mark.slow
async def test_what_is_odd_in_a_changed_workflow_is_told(project: Project) -> None:
    project.workflow()
    with capture_logs() as logs:
        async with serving(project) as served:
            await served.watcher.until_seen(Polled)
            await to_thread.run_sync(lambda: project.workflow(polling={"intervall_ms": 1}))
            await served.watcher.until_seen(SettingsChanged)
    told = [line["reason"] for line in logs if line["event"] == "workflow_warning"]
    assert any("intervall_ms" in reason for reason in told)


@pytest.mark.conformance("S-15")
async def test_a_broken_workflow_holds_dispatch_until_it_is_mended(project: Project) -> None:
    workflow = project.workflow()
    good = workflow.read_text()
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until_seen(Polled)
        await to_thread.run_sync(project.write, workflow.name, BROKEN)
        rejected = await watcher.until_seen(WorkflowRejected)
        assert rejected.failure.where is not None
        assert "WORKFLOW.md:" in rejected.failure.where
        await to_thread.run_sync(lambda: project.issue("SYM-1", [*WORK, DONE]))
        served.service.post(WakeAsked(reason="test"))
        await watcher.until_seen(WakeAsked)
        assert watcher.all(StartRun) == []
        await to_thread.run_sync(project.write, workflow.name, good + "\n")
        await watcher.until_seen(RunEnded)
    assert watcher.outcomes == ["succeeded"]


@pytest.mark.slow
async def test_a_reload_whose_agent_is_missing_is_rejected_and_the_old_one_works_on(project: Project) -> None:
    project.workflow()
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until_seen(Polled)
        await to_thread.run_sync(lambda: project.workflow(command="/nowhere/agent"))
        rejected = await watcher.until_seen(WorkflowRejected)
    assert rejected.failure.category is Category.CODEX_NOT_FOUND
    assert watcher.all(SettingsChanged) == []


# --- starting ---


@pytest.mark.conformance("S-17")
async def test_the_workspace_of_an_issue_that_ended_meanwhile_is_swept_at_the_start(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its first life the daemon works on two issues; one of them ends while no daemon runs."""
    project.workflow()
    for name in ("SYM-1", "SYM-2"):
        await to_thread.run_sync(project.issue, name, [{"wait_for": "never"}])
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until(
            lambda: [run.report.stage for run in watcher.running] == [RunStage.STREAMING_TURN] * 2
        )
    places = [project.workspaces / name for name in ("SYM-1", "SYM-2")]
    assert all(place.exists() for place in places)
    await to_thread.run_sync(lambda: project.issue("SYM-1", state="Done"))
    await to_thread.run_sync(lambda: project.issue("SYM-2", state="Backlog"))

    refresh = MarkdownTracker.fetch_issues_by_ids
    monkeypatch.setattr(MarkdownTracker, "fetch_issues_by_ids", _down)
    with capture_logs() as logs:
        async with serving(project) as served:
            await served.watcher.until_seen(Polled)
    assert {line["log_level"] for line in logs if line["event"] == "refresh_failed"} == {"warning"}
    assert all(place.exists() for place in places), "a tracker that fails costs a warning, and no workspace"

    monkeypatch.setattr(MarkdownTracker, "fetch_issues_by_ids", refresh)
    async with serving(project) as served:
        await served.watcher.until_seen(CleanWorkspace)
        await served.watcher.until_seen(Polled)
        assert len(served.watcher.all(CleanWorkspace)) == 1
    assert [place.exists() for place in places] == [False, True]


# --- ending ---


@pytest.mark.slow
async def test_an_agent_that_is_installed_after_the_reload_is_found_without_another_edit(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "_RETRY_MS", 0)
    project.workflow()
    later = project.root / "later"
    async with serving(project) as served:
        await served.watcher.until_seen(Recovered)
        await to_thread.run_sync(lambda: project.workflow(command=word(later)))
        await served.watcher.until_seen(WorkflowRejected)
        await to_thread.run_sync(_install, later)
        await served.watcher.until_seen(SettingsChanged)
        assert len(served.watcher.all(WorkflowRejected)) == 1, "the same refusal is told once"


def _install(path: Path) -> None:
    path.write_text(f"#!/bin/sh\nexec {scripted()}\n")
    path.chmod(0o755)


@pytest.mark.conformance("S-21")
async def test_a_drain_between_two_turns_gives_the_session_no_further_turn(project: Project) -> None:
    project.workflow(command=_as_process(project))
    project.issue("SYM-1", WORK, [DONE])
    async with serving(project) as served:
        served.watcher.then.append((TurnEnded, served.service.request_shutdown))
        await served.ended()
    assert [finish.reason for finish in served.watcher.all(FinishRun)] == [FinishReason.DRAINING]
    assert served.watcher.outcomes == ["succeeded"]
    assert len(served.watcher.all(TurnEnded)) == 1
    assert project.state("SYM-1") == "Todo"
    assert project.branch_log("SYM-1") == ["A"], "what it did is delivered"
    await no_process_of(served.watcher.run_ids)


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["after_create", "before_run"])
async def test_a_stop_cuts_a_hook_short(project: Project, hook: str) -> None:
    begun = project.root / "begun"
    project.workflow(hooks={hook: f"touch {word(begun)}; sleep 600"})
    project.issue("SYM-1", [*WORK, DONE])
    async with serving(project) as served:
        await exists(begun)
        served.service.request_shutdown(now=True)
        await served.ended()
    assert served.watcher.outcomes == ["canceled"]
    await no_process_of(served.watcher.run_ids)


@pytest.mark.conformance("S-21", "A-17")
async def test_a_stop_ends_an_agent_in_mid_turn(project: Project) -> None:
    project.workflow(command=_as_process(project))
    project.issue("SYM-1", [*WORK, {"wait_for": "never"}])
    async with serving(project) as served:
        await served.watcher.until(lambda: _streaming(served.watcher))
        served.service.request_shutdown(now=True)
        await served.ended()
    assert served.watcher.outcomes == ["canceled"]
    await no_process_of(served.watcher.run_ids)


async def _down(*_: object) -> NoReturn:
    raise SymphonyError(make_failure("the board is away"))


def _streaming(watcher: Watcher) -> bool:
    return any(run.report.stage is RunStage.STREAMING_TURN for run in watcher.running)


@pytest.mark.slow
async def test_with_once_the_end_is_asked_for_once_though_a_removal_takes_its_time(project: Project) -> None:
    go = project.root / "go"
    project.workflow(hooks={"before_remove": f"until [ -e {word(go)} ]; do sleep 0.01; done"})
    project.issue("SYM-1", [*WORK, DONE])
    async with serving(project, once=True) as served:
        await served.watcher.until_seen(DrainAsked)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert not served.done.is_set(), "the removal is under way"
        asked = len(served.watcher.all(DrainAsked))
        await to_thread.run_sync(go.touch)
        await served.ended()
    assert asked == 1


# --- runs ---


async def test_a_crash_in_a_run_is_answered_once_and_costs_one_attempt(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    async def breaks_once(*arguments: Any) -> RunCatalog:
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("a bug of ours")
        return await load_run_skills(*arguments)

    monkeypatch.setattr("symphony.daemon.runs.session_skills.load_run_skills", breaks_once)
    project.workflow()
    project.issue("SYM-1", [*WORK, DONE])
    with capture_logs() as logs:
        async with serving(project, once=True) as served:
            await served.ended()
    first, second = served.watcher.all(RunEnded)
    assert first.run_id != second.run_id
    assert first.outcome.failure is not None
    assert first.outcome.failure.category is Category.INTERNAL
    assert "a bug of ours" in first.outcome.failure.message
    assert served.watcher.outcomes == ["failed", "succeeded"]
    assert "run_crashed" in {line["event"] for line in logs}
    assert project.state("SYM-1") == "Done"


@pytest.mark.slow
async def test_a_session_that_moved_its_issue_may_end_its_turn(project: Project) -> None:
    go = project.root / "go"
    project.workflow()
    project.issue("SYM-1", [DONE, {"wait_for": str(go)}, *WORK])
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until(lambda: any(run.in_grace_period for run in watcher.running))
        await to_thread.run_sync(go.touch)
        await watcher.until_seen(RunEnded)
    assert watcher.all(StopRun) == []
    assert watcher.outcomes == ["succeeded"]
    assert project.branch_log("SYM-1") == ["A"]


@pytest.mark.conformance("S-11", "A-17")
async def test_a_silent_agent_is_stopped_and_tried_again_and_leaves_nothing(project: Project) -> None:
    command = scripted("--silent-after", "turn/start", "--ignore-sigterm")
    project.workflow(codex={"command": command, "stall_timeout_ms": 300})
    project.issue("SYM-1", [*WORK, DONE])
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until_seen(RunEnded)
        first = watcher.run_ids[0]
        await no_process_of([first])
        await watcher.until_seen(StartRun, 2)
    assert watcher.all(StopRun)[0].reason is StopReason.STALLED
    assert watcher.all(StartRun)[1].attempt == 1
    await no_process_of(watcher.run_ids)


# --- what must not take the daemon down ---


@pytest.mark.slow
async def test_an_observer_that_breaks_is_logged_and_the_work_goes_on(project: Project) -> None:
    def broken(before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        raise RuntimeError("cannot draw", before, fact, after, commands)

    project.workflow()
    project.issue("SYM-1", [*WORK, DONE])
    with capture_logs() as logs:
        async with serving(project, broken, once=True) as served:
            await served.ended()
    assert served.watcher.outcomes == ["succeeded"]
    assert "observer_failed" in {line["event"] for line in logs}


@pytest.mark.slow
async def test_a_refresh_whose_step_failed_does_not_swallow_those_after_it(project: Project) -> None:
    failures = iter([RuntimeError("a bug")])

    def breaks_once(state: State, fact: Event, now_ms: int) -> tuple[State, tuple[Command, ...]]:
        if isinstance(fact, WakeAsked) and fact.reason == "operator":
            for failure in failures:
                raise failure
        return step(state, fact, now_ms)

    project.workflow(polling={"interval_ms": 3_600_000})
    with capture_logs() as logs:
        async with serving(project, step=breaks_once) as served:
            watcher, operator = served.watcher, served.service._operator
            await watcher.until(lambda: bool(watcher.states) and watcher.states[-1].polls == 1)
            for asked in (1, 2):
                operator.refresh()
                wakes = partial(_operators, watcher, asked)
                await watcher.until(wakes)
            await watcher.until(lambda: watcher.states[-1].polls == 2)
    assert "decision_failed" in {line["event"] for line in logs}


def _operators(watcher: Watcher, asked: int) -> bool:
    return sum(wake.reason == "operator" for wake in watcher.all(WakeAsked)) == asked


async def test_a_board_that_cannot_be_watched_is_still_polled(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: MarkdownTracker) -> AsyncIterator[None]:
        raise RuntimeError("no watches left")
        yield

    monkeypatch.setattr(MarkdownTracker, "changes", broken)
    project.workflow()
    project.issue("SYM-1", [*WORK, DONE])
    with capture_logs() as logs:
        async with serving(project, once=True) as served:
            await served.ended()
    assert served.watcher.outcomes == ["succeeded"]
    assert [line["reason"] for line in logs if line["event"] == "watch_failed"] == ["no watches left"]


@pytest.mark.slow
async def test_a_workflow_file_that_cannot_be_watched_is_still_looked_at(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: object) -> AsyncIterator[None]:
        raise RuntimeError("no watches left")
        yield

    monkeypatch.setattr("symphony.config.loader.WorkflowStore.changes", broken)
    project.workflow()
    async with serving(project) as served:
        await served.watcher.until_seen(Polled)
        await to_thread.run_sync(lambda: project.workflow(agent={"max_turns": 3}))
        changed = await served.watcher.until_seen(SettingsChanged)
    assert changed.settings.max_turns == 3


@pytest.mark.slow
async def test_a_bug_while_reloading_leaves_the_daemon_and_what_is_in_force(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("a bug of ours")

    project.workflow()
    async with serving(project) as served:
        await served.watcher.until_seen(Polled)
        monkeypatch.setattr("symphony.daemon.service.build_context", broken)
        with capture_logs() as logs:
            await to_thread.run_sync(lambda: project.workflow(agent={"max_turns": 3}))
            await to_thread.run_sync(lambda: project.issue("SYM-1", [*WORK, DONE]))
            await served.watcher.until_seen(RunEnded)
    assert "reload_failed" in {line["event"] for line in logs}
    assert served.watcher.outcomes == ["succeeded"]


# --- start-up ---


async def test_a_second_service_is_refused_while_the_first_lives(project: Project) -> None:
    project.workflow()
    async with serving(project) as served:
        await served.watcher.until_seen(Polled)
        second = await make_service(project)
        with pytest.raises(SymphonyError) as told:
            await second.run()
    assert told.value.failure.category is Category.INSTANCE_LOCKED


async def test_an_agent_that_is_missing_refuses_the_start_and_frees_the_lock(project: Project) -> None:
    project.workflow(command="/nowhere/agent")
    for _ in range(2):
        service = await make_service(project)
        with pytest.raises(SymphonyError) as told:
            await service.run()
        assert told.value.failure.category is Category.CODEX_NOT_FOUND


async def test_an_action_during_the_start_meets_what_the_last_daemon_left(project: Project) -> None:
    project.workflow()
    pause, resume = (
        ActionRequest(OperatorAsked(action=each)) for each in (OperatorAction.PAUSE, OperatorAction.RESUME)
    )
    async with serving(project) as first:
        first.service.post(pause)
        await pause.taken.wait()
    before = list[State | None]()

    def decide(state: State, event: Event, now_ms: int) -> tuple[State, tuple[Command, ...]]:
        before.append(second.service.state)
        return step(state, event, now_ms)

    async with serving(project, step=decide) as second:
        second.service.post(resume)
        await resume.taken.wait()
    assert (resume.refused, resume.no_change) == (None, False)
    assert isinstance(second.watcher.facts[0], Recovered)
    assert before[0] is None, "until then a client is told that the daemon is starting"
    assert [state.paused for state in (second.watcher.states[0], second.watcher.states[-1])] == [True, False]


@pytest.mark.slow
async def test_with_once_a_board_that_cannot_be_read_is_a_failure(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> NoReturn:
        raise RuntimeError("unreachable")

    monkeypatch.setattr(MarkdownTracker, "fetch_issues_by_states", broken)
    project.workflow()
    service = await make_service(project, once=True)
    with capture_logs(), pytest.raises(SymphonyError, match="unreachable"):
        await service.run()


@pytest.mark.slow
async def test_with_once_an_outage_comes_to_an_end(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is to blame and not the issue, which is never blocked for that; yet it is given up."""

    async def broken(*_: object, **__: object) -> NoReturn:
        raise SymphonyError(make_failure("disk full", blame=Blame.HOST))

    monkeypatch.setattr(WorkspaceManager, "prepare", broken)
    project.workflow(agent={"budget": {"max_attempts_without_progress": 3}})
    project.issue("SYM-1", [*WORK, DONE])
    async with serving(project, once=True) as served:
        await served.ended()
    assert served.watcher.outcomes == ["failed"] * 3
    assert not served.watcher.states[-1].blocked


@pytest.mark.slow
async def test_with_once_a_workflow_that_breaks_is_a_failure(project: Project) -> None:
    project.workflow(agent={"max_turns": 1})
    project.issue("SYM-1", [{"write": "WORKFLOW.md", "text": "nothing"}])
    workflow = project.repo / "WORKFLOW.md"

    def breaks(before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        del before, after, commands
        if isinstance(fact, TurnEnded):
            daemon.post(WorkflowRejected(failure=make_failure("broken", where=str(workflow))))

    daemon = await make_service(project, breaks, once=True)
    with capture_logs(), pytest.raises(SymphonyError, match="broken"):
        await daemon.run()


@pytest.mark.slow
async def test_a_tracker_that_hangs_leaves_the_rest_at_work(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends and is delivered, a reload is taken over and the way out is open, while a poll hangs."""
    hangs = anyio.Event()
    fetch = MarkdownTracker.fetch_issues_by_states

    async def first_only(tracker: MarkdownTracker, states: Sequence[str]) -> Sequence[Issue]:
        if watcher.all(StartRun):
            hangs.set()
            await anyio.sleep_forever()
        return await fetch(tracker, states)

    monkeypatch.setattr(MarkdownTracker, "fetch_issues_by_states", first_only)
    go = project.root / "go"
    project.workflow()
    project.issue("SYM-1", [*WORK, {"wait_for": str(go)}, DONE])
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until_seen(StartRun)
        served.service.post(WakeAsked(reason="test"))
        with anyio.fail_after(DEADLINE_S):
            await hangs.wait()
        await to_thread.run_sync(go.touch)
        await watcher.until_seen(CleanWorkspace)
        await to_thread.run_sync(lambda: project.workflow(agent={"max_concurrent_agents": 3}))
        await watcher.until_seen(SettingsChanged)
        assert watcher.states[-1].cycle is Cycle.POLLING, "it is visible that the poll has no answer"
        served.service.request_shutdown()
        await served.ended()
    assert watcher.outcomes == ["succeeded"]


@pytest.mark.slow
async def test_facts_after_the_end_are_dropped(project: Project) -> None:
    project.workflow()
    async with serving(project, once=True) as served:
        await served.ended()
        count = len(served.watcher.facts)
        served.service.request_shutdown()
    assert len(served.watcher.facts) == count


# --- days ---


@pytest.mark.slow
async def test_a_day_that_begins_is_told_also_when_somebody_sets_the_clock(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon_ms, day_ms = 1_767_268_800_000, 86_400_000
    monkeypatch.setattr(service, "_RECHECK_S", 0.01)
    project.workflow()
    clock = [noon_ms - 10 * day_ms]
    async with serving(project, wall_ms=lambda: clock[-1]) as served:
        watcher = served.watcher
        await watcher.until_seen(Recovered)
        for days, day in ((0, "2026-01-01"), (1, "2026-01-02"), (-1, "2025-12-31")):
            clock.append(noon_ms + days * day_ms)
            await watcher.until(partial(_is_day, watcher, day))
    assert [fact.day for fact in watcher.all(DayBegan)] == ["2026-01-01", "2026-01-02", "2025-12-31"]


def _is_day(watcher: Watcher, day: str) -> bool:
    return watcher.states[-1].day == day

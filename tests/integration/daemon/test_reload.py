"""A changed WORKFLOW.md under a daemon at work: what holds at once, what later, and what never."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.project import Project
from harness.serving import Watcher, serving
from symphony.config import WorkflowStore
from symphony.daemon import service
from symphony.domain import Category
from symphony.scheduler import (
    FinishReason,
    FinishRun,
    Polled,
    RunEnded,
    RunStage,
    SettingsChanged,
    StartRun,
    WorkflowRejected,
)

pytestmark = pytest.mark.asyncio

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
WORK = [{"write": "a", "text": "a"}, {"commit": "A"}]


async def rewrite(project: Project, **sections: Any) -> None:
    await to_thread.run_sync(lambda: project.workflow(**sections))


def streaming(watcher: Watcher) -> bool:
    return any(run.report.stage is RunStage.STREAMING_TURN for run in watcher.running)


@pytest.mark.conformance("C-8")
async def test_live_keys_hold_at_once_and_session_keys_in_sessions_that_start_later(project: Project) -> None:
    go = project.root / "go"
    project.workflow(agent={"max_concurrent_agents": 1, "max_turns": 20})
    project.issue("SYM-1", [*WORK, {"wait_for": str(go)}], [DONE])
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until(lambda: streaming(watcher))
        await rewrite(project, agent={"max_concurrent_agents": 2, "max_turns": 1})
        await watcher.until_seen(SettingsChanged)
        await to_thread.run_sync(lambda: project.issue("SYM-2", [*WORK], [DONE]))

        second = await watcher.until_seen(StartRun, 2)
        assert second.issue.identifier == "SYM-2", "the new limit holds while the first session goes on"
        await watcher.until_seen(FinishRun)
        (limited,) = watcher.all(FinishRun)
        assert limited.reason is FinishReason.MAX_TURNS, (
            "a session that starts later has the new number of turns"
        )
        assert limited.run_id == second.run_id

        await to_thread.run_sync(go.touch)
        first = watcher.all(StartRun)[0].run_id
        await watcher.until(lambda: first in {ended.run_id for ended in watcher.all(RunEnded)})
        state = await to_thread.run_sync(project.state, "SYM-1")
    assert state == "Done", "the first session had its second turn: it keeps what it was started with"


@pytest.mark.conformance("W-2")
async def test_a_change_that_no_watch_reports_is_found_all_the_same(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_store: WorkflowStore) -> AsyncIterator[None]:
        for _ in ():
            yield

    monkeypatch.setattr(WorkflowStore, "changes", deaf)
    monkeypatch.setattr(service, "_RECHECK_S", 0.02)
    project.workflow(polling={"interval_ms": 600_000})
    async with serving(project) as served:
        await served.watcher.until_seen(Polled)
        await rewrite(project, polling={"interval_ms": 600_000}, agent={"max_concurrent_agents": 3})
        changed = await served.watcher.until_seen(SettingsChanged)
    assert changed.settings.max_concurrent_agents == 3


@pytest.mark.conformance("W-3")
async def test_a_file_that_vanishes_and_comes_back_is_a_rejection_and_a_reload(project: Project) -> None:
    path = project.workflow()
    text = path.read_text()
    async with serving(project) as served:
        await served.watcher.until_seen(Polled)
        await to_thread.run_sync(path.unlink)
        rejected = await served.watcher.until_seen(WorkflowRejected)
        assert rejected.failure.category is Category.MISSING_WORKFLOW_FILE
        await to_thread.run_sync(project.write, path.name, text)
        await served.watcher.until_seen(SettingsChanged)
    assert len(served.watcher.all(WorkflowRejected)) == 1


@pytest.mark.conformance("C-8")
async def test_a_key_that_waits_for_a_restart_is_told_by_name(project: Project) -> None:
    project.workflow()
    with capture_logs() as logs:
        async with serving(project) as served:
            await served.watcher.until_seen(Polled)
            await rewrite(
                project, server={"port": 0}, observability={"refresh_ms": 7}, polling={"interval_ms": 50}
            )
            changed = await served.watcher.until_seen(SettingsChanged)
            await rewrite(
                project, server={"port": 0}, observability={"refresh_ms": 7}, polling={"interval_ms": 60}
            )
            await served.watcher.until_seen(SettingsChanged, 2)
    told = [line for line in logs if line["event"] == "restart_needed"]
    assert [line["keys"] for line in told] == [("server.port", "observability.refresh_ms")], "told once"
    assert changed.settings.poll_interval_ms == 50, "the other keys of the same file hold"


@pytest.mark.conformance("L-4", "W-3")
async def test_a_reload_cannot_take_the_sandbox_away_unnoticed(project: Project) -> None:
    project.workflow()
    async with serving(project) as served:
        await served.watcher.until_seen(Polled)
        await rewrite(project, codex={"thread_sandbox": "danger-full-access"})
        rejected = await served.watcher.until_seen(WorkflowRejected)
    assert rejected.failure.message == "codex.thread_sandbox lets sessions run without a sandbox"
    assert served.watcher.all(SettingsChanged) == []


@pytest.mark.conformance("C-9")
async def test_a_board_in_memory_is_worked_off(project: Project) -> None:
    script = json.dumps([[*WORK, {"tool": "memory_move", "arguments": {"state": "Done"}}]])
    issue = {
        "id": "MEM-1",
        "title": "From the file",
        "state": "Todo",
        "dispatchable": True,
        "description": f"```scripted\n{script}\n```\n",
    }
    project.workflow(tracker={"kind": "memory", "provider": {"issues": [issue]}})
    async with serving(project, once=True) as served:
        await served.ended()
    assert served.watcher.outcomes == ["succeeded"]
    assert project.branch_log("MEM-1") == ["A"]

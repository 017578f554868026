import os
import shutil
import signal
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.project import Project, until
from harness.serving import DEADLINE_S, Watcher, make_service
from harness.shell import word
from symphony.daemon.shutdown import serve_until_signalled
from symphony.daemon.state_dir import StateDirectory, instance_of
from symphony.domain import Category, SymphonyError
from symphony.processes.local import LocalHost
from symphony.scheduler import (
    DrainAsked,
    Event,
    Polled,
    Recovered,
    RunEnded,
    SettingsChanged,
    StopAsked,
    WorkflowRejected,
)

pytestmark = pytest.mark.asyncio

HANGS = """#!/bin/sh
case " $* " in *" fetch "*) : > {begun}; exec sleep 600 ;; esac
exec {git} "$@"
"""
SLEEP = [{"write": "a", "text": "a"}, {"commit": "A"}, {"wait_for": "never"}]


async def serve_and_signal(project: Project, when: Callable[[Watcher], bool]) -> Watcher:
    """Serve; send SIGTERM once it polls, and once more when `when` holds afterwards."""
    watcher = Watcher()
    service = await make_service(project, watcher)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_until_signalled, service)
            await watcher.until_seen(Polled)
            await watcher.until(lambda: when(watcher))
            os.kill(os.getpid(), signal.SIGTERM)
            await watcher.until_seen(DrainAsked)
            if watcher.running:
                os.kill(os.getpid(), signal.SIGINT)
    return watcher


@pytest.mark.conformance("L-3")
async def test_one_signal_ends_an_idle_daemon(project: Project) -> None:
    project.workflow()
    with capture_logs() as logs:
        watcher = await serve_and_signal(project, lambda _: True)
    assert watcher.all(StopAsked) == []
    told = [(line["signal"], line["now"]) for line in logs if line["event"] == "signal_received"]
    assert told == [("SIGTERM", False)]


@pytest.mark.conformance("S-21")
async def test_a_second_signal_stops_what_the_first_one_let_run(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", SLEEP)
    with capture_logs() as logs:
        watcher = await serve_and_signal(
            project, lambda seen: any(run.report.facts.session_id for run in seen.running)
        )
    kinds: list[type[Event]] = [type(fact) for fact in watcher.facts]
    assert kinds.index(DrainAsked) < kinds.index(StopAsked) < kinds.index(RunEnded)
    assert watcher.outcomes == ["canceled"]
    told = [(line["signal"], line["now"]) for line in logs if line["event"] == "signal_received"]
    assert told == [("SIGTERM", False), ("SIGINT", True)]


async def test_an_interrupt_stops_at_once_without_being_asked_twice(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", SLEEP)
    watcher = Watcher()
    service = await make_service(project, watcher)
    with capture_logs() as logs, anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_until_signalled, service)
            await watcher.until(lambda: any(run.report.facts.session_id for run in watcher.running))
            os.kill(os.getpid(), signal.SIGINT)
    assert watcher.outcomes == ["canceled"]
    assert watcher.all(DrainAsked) == []
    told = [(line["signal"], line["now"]) for line in logs if line["event"] == "signal_received"]
    assert told == [("SIGINT", True)]


@pytest.mark.slow
async def test_an_interrupt_does_not_wait_for_interrupted_work_that_is_delivered_at_the_start(
    project: Project,
) -> None:
    begun = project.root / "begun"

    def die_in_mid_run() -> None:
        project.workflow()
        project.issue("SYM-1", [*SLEEP[:2], {"write": "b", "text": "b"}, SLEEP[2]])
        committed = project.workspaces / "SYM-1" / "b"
        with project.daemon() as daemon:
            until(lambda: committed.exists() or None, daemon.log.read_text)
        project.write("bin/git", HANGS.format(begun=word(begun), git=shutil.which("git")))
        (project.repo / "bin" / "git").chmod(0o755)
        project.environment["PATH"] = f"{project.repo / 'bin'}:{os.environ['PATH']}"

    await to_thread.run_sync(die_in_mid_run)
    watcher = Watcher()
    service = await make_service(project, watcher)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_until_signalled, service)
            while not await anyio.Path(begun).exists():  # noqa: ASYNC110 - the writer is another process
                await anyio.sleep(0.01)
            begun_s = anyio.current_time()
            os.kill(os.getpid(), signal.SIGINT)
        assert anyio.current_time() - begun_s < 30, "the delivery may take a minute"
    assert [type(fact) for fact in watcher.facts][:2] == [Recovered, StopAsked]


@pytest.mark.slow
async def test_a_storm_of_signals_does_what_the_first_two_did(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", SLEEP)
    watcher = Watcher()
    service = await make_service(project, watcher)
    with capture_logs() as logs, anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_until_signalled, service)
            await watcher.until(lambda: any(run.report.facts.session_id for run in watcher.running))
            for _ in range(50):
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGHUP)
                await anyio.lowlevel.checkpoint()
    assert watcher.outcomes == ["canceled"]
    told = [(line["signal"], line["now"]) for line in logs if line["event"] == "signal_received"]
    assert told == [("SIGTERM", False), ("SIGTERM", True)]


async def test_a_hangup_reloads_the_workflow_and_ends_nothing(project: Project) -> None:
    project.workflow()
    watcher = Watcher()
    service = await make_service(project, watcher)
    with capture_logs() as logs, anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_until_signalled, service)
            while not callable(signal.getsignal(signal.SIGHUP)):
                await anyio.lowlevel.checkpoint()
            os.kill(os.getpid(), signal.SIGHUP)  # before it serves: nothing to reload yet
            await watcher.until_seen(Polled)
            await to_thread.run_sync(lambda: project.workflow(agent={"max_turns": 7}))
            os.kill(os.getpid(), signal.SIGHUP)
            changed = await watcher.until_seen(SettingsChanged)
            os.kill(os.getpid(), signal.SIGTERM)
    assert changed.settings.max_turns == 7
    assert [line["event"] for line in logs].count("stopped") == 1


@pytest.mark.slow
async def test_a_workflow_that_was_refused_a_moment_ago_is_tried_again_at_a_hangup(project: Project) -> None:
    """The repository was not there; now it is, and nobody wants to wait for the next try."""
    project.workflow()
    watcher = Watcher()
    service = await make_service(project, watcher)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_until_signalled, service)
            await watcher.until_seen(Polled)
            occupied = project.root / "occupied"
            await to_thread.run_sync(occupied.write_text, "a file")
            await to_thread.run_sync(lambda: project.workflow(workspace={"root": str(occupied)}))
            await watcher.until_seen(WorkflowRejected)
            await to_thread.run_sync(occupied.unlink)
            os.kill(os.getpid(), signal.SIGHUP)
            await watcher.until_seen(SettingsChanged)
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_the_agent_is_checked_ends_the_start_and_the_agent(
    project: Project, number: signal.Signals
) -> None:
    begun = project.root / "begun"
    os.mkfifo(begun)
    project.workflow(command=f"echo > {word(begun)}; exec sleep 621")
    watcher = Watcher()
    service = await make_service(project, watcher)
    with capture_logs() as logs, anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_until_signalled, service)
            await to_thread.run_sync(begun.read_text)
            os.kill(os.getpid(), number)
    assert [line["event"] for line in logs][-1] == "stopped"
    assert watcher.facts == []
    host = LocalHost(instance=await to_thread.run_sync(instance_of, project.state_dir))
    assert await to_thread.run_sync(host.find_survivors) == ()
    assert not (project.state_dir / "runs").exists()
    with StateDirectory(project.state_dir).lock():
        pass


@pytest.mark.slow
async def test_what_signals_did_before_they_do_again_behind_the_service(project: Project) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    project.workflow(command="/nowhere/agent")
    for last in (False, True):
        service = await make_service(project)
        with pytest.raises(SymphonyError):
            await serve_until_signalled(service, last)
        after = [signal.getsignal(number) for number in numbers]
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        assert after == ([signal.SIG_IGN] * 3 if last else before)


@pytest.mark.slow
async def test_a_start_that_is_refused_is_raised_as_it_is(project: Project) -> None:
    project.workflow(command="/nowhere/agent")
    service = await make_service(project)
    with pytest.raises(SymphonyError) as told:
        await serve_until_signalled(service)
    assert told.value.failure.category is Category.CODEX_NOT_FOUND

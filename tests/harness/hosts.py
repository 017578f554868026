"""Runs on other machines, as tests watch them: an agent that ignores everything, and whether it is alive."""

from collections.abc import Callable

import psutil
from anyio import to_thread

from harness.project import Daemon, Project, scripted, until
from harness.serving import Watcher, serving
from symphony.domain import Category, Failure
from symphony.processes.local import LocalHost
from symphony.scheduler import Outcome, RunEnded, Running

__all__ = [
    "DONE",
    "HOST",
    "STUBBORN",
    "fenced_by",
    "host_unavailable",
    "live_run",
    "lose_its_worker",
    "until_alive",
    "until_gone",
    "worker_of",
]

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
STUBBORN = scripted("--ignore-eof", "--ignore-sigterm", "--own-session-child")
HOST = LocalHost()


async def live_run(watcher: Watcher) -> Running:
    """The one run, once it has an agent that is alive: the positive control of what says that none is."""
    await watcher.until(lambda: any(run.report.pid for run in watcher.running))
    (run,) = watcher.running
    await to_thread.run_sync(until_alive, run.run_id)
    return run


def until_alive(run_id: str) -> None:
    """Wait until a process of the run can be seen, which is not so in the middle of an `exec`; blocking."""
    until(lambda: HOST.find_marked([run_id]) or None, lambda: "no process of the run is there")


def until_gone(run_id: str) -> None:
    """Wait until no process of the run is alive; blocking."""
    until(lambda: None if HOST.find_marked([run_id]) else True, lambda: "its agent lives on")


async def lose_its_worker(project: Project, kill: Callable[[str], object]) -> None:
    """Lose the worker of a run by what `kill` does: no agent is alive when the run counts as ended."""
    async with serving(project) as served:
        run = await live_run(served.watcher)
        await to_thread.run_sync(kill, run.run_id)
        ended = await served.watcher.until_seen(RunEnded)
        assert not HOST.find_marked([run.run_id])
    assert ended.outcome.failure is not None
    assert ended.outcome.failure.category is Category.WORKER_LOST


def fenced_by(daemon: Daemon, run_id: str) -> str:
    """Wait until the next daemon ended a run and only then started another one; returns the id of that."""
    daemon.wait_for("remote_run_fenced", run_id=run_id)
    assert not HOST.find_marked([run_id])
    second = str(daemon.wait_for("turn_started")["run_id"])
    assert second != run_id
    names = [event["event"] for event in daemon.events()]
    order = [names.index(name) for name in ("remote_run_left", "remote_run_fenced", "turn_started")]
    assert order == sorted(order)
    return second


def host_unavailable(outcome: Outcome) -> Failure:
    """The failure of a run whose host cannot be used: it is tried again, and told in one line with a hint."""
    failure = outcome.failure
    assert failure is not None
    assert (failure.category, failure.retryable) == (Category.HOST_UNAVAILABLE, True), failure
    assert "\n" not in failure.message
    assert failure.hint
    return failure


def worker_of(run_id: str) -> psutil.Process:
    """The worker program that has the agent of the run below it; one that waits for a run has none."""

    def found() -> psutil.Process | None:
        for agent in HOST.find_marked([run_id]):
            for ancestor in HOST.lineage(agent.pid):
                try:
                    process = psutil.Process(ancestor.pid)
                    if {"worker", "--stdio"} <= set(process.cmdline()):
                        return process
                except psutil.Error:  # it ended meanwhile
                    continue
        return None

    return until(found, lambda: "no worker has an agent of the run")

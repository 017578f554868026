"""What a dead predecessor left: processes, which end before anything is dispatched, and workspaces (FL1).

Processes are found by the marks in their environment and by recorded identity, never by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import structlog
from anyio import to_thread

from symphony.domain.failures import Blame, Category, Failure, SymphonyError
from symphony.hosts.base import Host, Identity
from symphony.runtime.bound import Bound
from symphony.runtime.state_dir import LiveRun, StateDirectory, StateDirectoryError
from symphony.scheduler.inputs import WorkspaceRef

__all__ = ["Glance", "glance", "left_workspaces", "reap_predecessor"]

_GRACE_MS = 2_000
_SWEEPS = 20
_EXEC_S = 0.01
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """A look at what a predecessor left: in the middle of an `exec` marks hide, so that one is not enough.

    Attributes:
        runs: those that files of earlier versions tell of.
        alive: the processes that were seen.
        at_s: when they were looked for, by the clock of the event loop.
    """

    runs: tuple[LiveRun, ...]
    alive: frozenset[Identity]
    at_s: float


async def glance(state_dir: StateDirectory, host: Host) -> Glance:
    """Look once; there is time for other work until the next look is worth something."""

    def look() -> tuple[tuple[LiveRun, ...], frozenset[Identity]]:
        runs = state_dir.left_runs()
        return runs, frozenset(_alive(runs, (), host))

    runs, alive = await to_thread.run_sync(look)
    return Glance(runs=runs, alive=alive, at_s=anyio.current_time())


async def reap_predecessor(
    state_dir: StateDirectory, host: Host, first: Glance, *, agents: Sequence[Identity] = ()
) -> int:
    """End every process that a predecessor left; returns how many were found.

    That is what carries the mark of our instance, however little is left of the state directory, and besides
    the `agents` that the journal tells of, and what the files of runs tell that earlier versions wrote. Such
    a run whose processes survive even SIGKILL keeps its file, so that the next start tries again.

    Raises:
        StateDirectoryError: category `predecessor_alive`: some could not be ended. Their issues must not get
            a second session beside them, so this start is given up.
    """
    found: set[Identity] = set()
    alive = await _alive_since(first, agents, host)
    for sweep in range(_SWEEPS):  # a process may fork between the look and the signal
        if not alive:
            break
        found |= alive
        await host.end(tuple(alive), grace_ms=0 if sweep else _GRACE_MS)
        alive = await _alive_since(await glance(state_dir, host), agents, host)
    if found:
        _log.warning("predecessor_reaped", runs=len(first.runs) + len(agents), processes=len(found))
    for run in first.runs:
        if not alive or not _alive_of([run], host):
            state_dir.remove_run(run.run_id)
    if alive:
        raise _survivors(alive)
    return len(found)


def _survivors(alive: set[Identity]) -> StateDirectoryError:
    pids = ", ".join(str(one.pid) for one in sorted(alive, key=lambda one: one.pid))
    return StateDirectoryError(
        Failure(
            category=Category.PREDECESSOR_ALIVE,
            blame=Blame.HOST,
            message=f"processes of an earlier daemon survive even SIGKILL: pid {pids}",
            hint="find out what holds them (a debugger, a file system that hangs), end them, and start again",
        )
    )


async def _alive_since(first: Glance, agents: Sequence[Identity], host: Host) -> set[Identity]:
    """What is alive; where nothing seemed to be, by a second look, as long after the first as an `exec`."""
    if not first.alive:
        await anyio.sleep_until(first.at_s + _EXEC_S)
    return {*first.alive, *await to_thread.run_sync(_alive, first.runs, agents, host)}


def _alive(left: Sequence[LiveRun], agents: Sequence[Identity], host: Host) -> set[Identity]:
    known = (agent for agent in agents if host.alive(agent))
    return {*host.find_left(), *known, *_alive_of(left, host)}


def _alive_of(left: Sequence[LiveRun], host: Host) -> set[Identity]:
    marked = set(host.find_marked([run.run_id for run in left]))
    return marked | {run.agent for run in left if run.agent is not None and host.alive(run.agent)}


async def left_workspaces(bound: Bound) -> tuple[WorkspaceRef, ...]:
    """The workspaces on disk with the issues they belong to (SC2)."""
    try:
        records = await bound.workspaces.recorded()
    except SymphonyError as error:
        _log.warning("sweep_failed", reason=error.failure.line, hint=error.failure.hint)
        return ()
    return tuple(
        WorkspaceRef(issue_id=record.issue_id, identifier=record.identifier, path=str(record.path))
        for record in records
    )

"""What a dead predecessor left: processes, which end before anything is dispatched, and workspaces (FL1).

Processes are found by the marks in their environment and by recorded identity, never by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import structlog
from anyio import to_thread

from symphony.daemon.context import RuntimeContext
from symphony.daemon.http_server import control_socket_answers
from symphony.daemon.state_dir import InstanceLock, StateDirectory, StateDirectoryError
from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.processes.base import Host, Identity
from symphony.scheduler import (
    WorkspaceRef,
)

_log = structlog.get_logger(__name__)

_GRACE_MS = 2_000
_SWEEPS = 20
_EXEC_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanScan:
    """A look at what a predecessor left: in the middle of an `exec` marks hide, so that one is not enough.

    Attributes:
        alive: the processes that were seen.
        at_s: when they were looked for, by the clock of the event loop.
    """

    alive: frozenset[Identity]
    at_s: float


async def scan_orphans(host: Host) -> OrphanScan:
    """Look once; there is time for other work until the next look is worth something."""
    alive = frozenset(await to_thread.run_sync(host.find_survivors))
    return OrphanScan(alive=alive, at_s=anyio.current_time())


async def refuse_second_daemon(state_dir: StateDirectory, host: Host, lock: InstanceLock) -> None:
    """Make sure that what would be taken for left is not a living daemon's, whose lock file somebody removed.

    Raises:
        StateDirectoryError: category `instance_locked`: there is one.
    """

    def look() -> str | None:
        if control_socket_answers(state_dir):
            return "answers on the control socket"
        found = host.find_running_daemon() if lock.names_nobody else None
        return None if found is None else f"(pid {found.pid}) runs agents"

    what = await to_thread.run_sync(look)
    if what is not None:
        raise StateDirectoryError(
            Failure(
                category=Category.INSTANCE_LOCKED,
                blame=Blame.HOST,
                message=f"another symphony {what} of {state_dir.path}, although its lock file is gone",
                hint="stop it first; somebody removed or replaced the file `lock` while it ran",
            )
        )


async def reap_predecessor(host: Host, first: OrphanScan, *, agents: Sequence[Identity] = ()) -> int:
    """End every process that a predecessor left; returns how many were found.

    Those are the processes that carry the mark of our instance, however little is left of the state
    directory, and the `agents` that the journal tells of.

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
        alive = await _alive_since(await scan_orphans(host), agents, host)
    if found:
        _log.warning("predecessor_reaped", runs=len(agents), processes=len(found))
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


async def _alive_since(first: OrphanScan, agents: Sequence[Identity], host: Host) -> set[Identity]:
    """What is alive; where nothing seemed to be, by a second look, as long after the first as an `exec`."""
    if not first.alive:
        await anyio.sleep_until(first.at_s + _EXEC_S)
    return {*first.alive, *await to_thread.run_sync(_alive, agents, host)}


def _alive(agents: Sequence[Identity], host: Host) -> set[Identity]:
    return {*host.find_survivors(), *(agent for agent in agents if host.is_alive(agent))}


async def existing_workspaces(context: RuntimeContext) -> tuple[WorkspaceRef, ...]:
    """The workspaces on disk with the issues they belong to (SC2)."""
    try:
        records = await context.workspaces.records()
    except SymphonyError as error:
        _log.warning("sweep_failed", reason=error.failure.line, hint=error.failure.hint)
        return ()
    return tuple(
        WorkspaceRef(issue_id=record.issue_id, identifier=record.identifier, path=str(record.path))
        for record in records
    )

"""Cleans up after a killed daemon: its processes, before any dispatch, and its workspaces.

Processes are found by the marks in their environment and by their recorded identity, never by name.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

import anyio
import structlog
from msgspec import Struct

from symphony import to_thread
from symphony.daemon.context import RuntimeContext
from symphony.daemon.http_server import control_socket_answers
from symphony.daemon.instance_lock import InstanceLock, StateDirectoryError
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Blame, Category, DeliveredBranch, Failure, SymphonyError
from symphony.processes.base import Host, Identity
from symphony.scheduler import WorkspaceRef

_GRACE_MS: Final = 2_000
_MAX_SWEEPS: Final = 20
_EXEC_S: Final = 0.01
_DELIVERY_S: Final = 60.0
_log = structlog.get_logger(__name__)


class OrphanScan(Struct, frozen=True, kw_only=True):
    """One scan for processes of a previous daemon.

    A process in the middle of an `exec` shows no marks, so an empty scan needs a second one.

    Attributes:
        alive: the processes found.
        at_s: when, by the clock of the event loop.
    """

    alive: frozenset[Identity]
    at_s: float


async def scan_orphans(host: Host) -> OrphanScan:
    """Scan once."""
    alive = frozenset(await to_thread.run_sync(host.find_survivors))
    return OrphanScan(alive=alive, at_s=anyio.current_time())


async def refuse_second_daemon(state_dir: StateDirectory, host: Host, lock: InstanceLock) -> None:
    """Check that no other daemon still serves this state directory although its lock file was removed.

    Its agents would be taken for orphans.

    Raises:
        StateDirectoryError: category `instance_locked`: there is one.
    """

    def find() -> str | None:
        if control_socket_answers(state_dir):
            return "answers on the control socket"
        daemon = host.find_running_daemon() if lock.had_no_holder else None
        return None if daemon is None else f"(pid {daemon.pid}) runs agents"

    found = await to_thread.run_sync(find)
    if found is not None:
        raise StateDirectoryError(
            Failure(
                category=Category.INSTANCE_LOCKED,
                blame=Blame.HOST,
                message=f"another symphony {found} of {state_dir.path}, but its lock file is gone",
                hint="stop it first; the file `lock` was removed or replaced while it ran",
            )
        )


async def reap_predecessor(host: Host, scan: OrphanScan, *, agents: Sequence[Identity] = ()) -> int:
    """End every process that a previous daemon left; return how many were found.

    These are the processes with the mark of this state directory, and the `agents` in the journal.

    Raises:
        StateDirectoryError: category `predecessor_alive`: some could not be ended. The start is abandoned,
            because their issues must not get a second session.
    """

    def still_alive() -> set[Identity]:
        return {*host.find_survivors(), *(agent for agent in agents if host.is_alive(agent))}

    async def rescan(first: OrphanScan) -> set[Identity]:
        if not first.alive:
            await anyio.sleep_until(first.at_s + _EXEC_S)
        return {*first.alive, *await to_thread.run_sync(still_alive)}

    found: set[Identity] = set()
    alive = await rescan(scan)
    for sweep in range(_MAX_SWEEPS):  # a process may fork between the scan and the signal
        if not alive:
            break
        found |= alive
        await host.end(tuple(alive), grace_ms=0 if sweep else _GRACE_MS)
        alive = await rescan(await scan_orphans(host))
    if found:
        _log.warning("predecessor_reaped", runs=len(agents), processes=len(found))
    if alive:
        pids = ", ".join(str(pid) for pid in sorted(one.pid for one in alive))
        raise StateDirectoryError(
            Failure(
                category=Category.PREDECESSOR_ALIVE,
                blame=Blame.HOST,
                message=f"processes of an earlier daemon survive even SIGKILL: pid {pids}",
                hint="find out what blocks them (a debugger, a file system that hangs), end them, "
                "and start again",
            )
        )
    return len(found)


async def deliver_interrupted(
    context: RuntimeContext, issue_ids: Collection[str]
) -> dict[str, DeliveredBranch]:
    """Deliver the commits of interrupted runs, by issue id; failed ones wait for the next delivery."""
    found: dict[str, DeliveredBranch] = {}
    with anyio.move_on_after(_DELIVERY_S), suppress(SymphonyError):
        for record in await context.workspaces.records():
            if record.issue_id in issue_ids:
                delivery = await context.workspaces.deliver(record)
                if delivery.delivered is not None:
                    found[record.issue_id] = delivery.delivered
    return found


async def existing_workspaces(context: RuntimeContext) -> tuple[WorkspaceRef, ...]:
    """The workspaces on disk, with their issues; empty if they cannot be read, which is logged."""
    try:
        records = await context.workspaces.records()
    except SymphonyError as error:
        _log.warning("sweep_failed", reason=error.failure.line, hint=error.failure.hint)
        return ()
    return tuple(
        WorkspaceRef(issue_id=record.issue_id, identifier=record.identifier, path=str(record.path))
        for record in records
    )

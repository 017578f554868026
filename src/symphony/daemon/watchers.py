"""Watches what other programs may change: files, the instance lock, processes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import structlog

from symphony import to_thread
from symphony.daemon.context import RuntimeContext
from symphony.daemon.instance_lock import InstanceLock, StateDirectoryError
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Category
from symphony.processes.base import Host

_INTERVAL_S: Final = 1.0
_LOCK_ATTEMPTS: Final = 3
_log = structlog.get_logger(__name__)


async def on_change(what: str, changes: AsyncIterator[None], act: Callable[[], Awaitable[None]]) -> None:
    """Act on each change of `what`. Changes are hints: if watching fails, polling goes on without them."""
    try:
        async for _ in changes:
            await act()
    except Exception as error:  # noqa: BLE001 - inotify limits, unusual file systems
        _log.warning("watch_failed", what=what, reason=str(error) or type(error).__name__)


class TrackerWatch:
    """Calls `wake` when the tracker reports a change; a part of the daemon."""

    def __init__(self, wake: Callable[[], Awaitable[None]]) -> None:
        self._wake = wake
        self._context: RuntimeContext | None = None
        self._reconfigured = anyio.Event()

    def reconfigure(self, context: RuntimeContext) -> None:
        """Watch the tracker of new settings."""
        self._context = context
        self._reconfigured.set()

    async def run(self) -> None:
        """Watch, until cancelled."""
        while True:
            self._reconfigured = anyio.Event()
            async with anyio.create_task_group() as tasks:
                if self._context is not None:
                    tasks.start_soon(on_change, "tracker", self._context.tracker.changes(), self._wake)
                await self._reconfigured.wait()
                tasks.cancel_scope.cancel()


async def watch_lock(state_dir: StateDirectory, lock: InstanceLock) -> StateDirectoryError:
    """Lock the lock file again whenever it is replaced; return the error if another daemon has it.

    A starting second daemon finds this one and exits, so it gets a few seconds to do so.
    """

    def renew() -> bool:
        if not state_dir.path.is_dir():
            state_dir.create()
        return lock.renew()

    attempts = 0
    lost: StateDirectoryError | None = None
    while lost is None or attempts < _LOCK_ATTEMPTS:
        await anyio.sleep(_INTERVAL_S)
        try:
            if await to_thread.run_sync(renew):
                _log.warning("instance_lock_restored", path=str(state_dir.path / "lock"))
            attempts, lost = 0, None
        except StateDirectoryError as error:
            if lost is None:
                _log.warning("instance_lock_missing", reason=error.failure.line, hint=error.failure.hint)
            lost = error
            attempts = attempts + 1 if error.failure.category is Category.INSTANCE_LOCKED else 0
    _log.error("instance_lock_lost", reason=lost.failure.line, hint=lost.failure.hint)
    return lost


async def watch_orphans(host: Host) -> None:
    """End processes of agents whose own supervisor was killed and that the daemon inherited."""
    while True:
        await anyio.sleep(_INTERVAL_S)
        try:
            await host.end_orphans()
        except OSError:
            _log.exception("orphans_not_ended")


async def watch_library(file: Path, changed: Callable[[], None], interval_s: float = _INTERVAL_S) -> None:
    """Call `changed` after each change of the library, by this daemon or another process."""

    def look() -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(_signature, (file, file.with_name(f"{file.name}-wal"))))

    seen = await to_thread.run_sync(look)
    while True:
        await anyio.sleep(interval_s)
        found = await to_thread.run_sync(look)
        if found != seen:
            seen = found
            changed()


def _signature(file: Path) -> tuple[int, int] | None:
    """A value that differs after a write; `None` for an empty file, such as the log of a reader."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size) if stat.st_size else None

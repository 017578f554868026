"""Locks between processes, and the removal of lock files that a crashed git left behind.

Git never removes such a lock file by itself, and a ref with a lock file cannot be written. A lock file is
abandoned if it is older than the longest command, or if every process that could have created it has ended.
The latter is true when the only daemon at a workspace root starts, because it has then ended the processes of
its predecessor. Git removes its lock files when it gets a signal, but not one that it is just creating.
"""

import fcntl
import math
import os
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Self

import anyio
import structlog

from symphony import to_thread
from symphony.domain import BRANCH_PREFIX
from symphony.files import try_lock
from symphony.workspaces.files import entries_below, make_directory
from symphony.workspaces.git import NETWORK_TIMEOUT_MS, GitError, common_dir

_STALE_AGE_S: Final = 2 * NETWORK_TIMEOUT_MS / 1000
_ATTEMPTS: Final = 100
_PAUSE_S: Final = 0.05
_OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_log = structlog.get_logger(__name__)


class RootLease:
    """A daemon's use of a workspace root; it ends with this object or with the process.

    `alone` says whether no other daemon used the root. That holds until `share` is called: a daemon that
    starts meanwhile waits for it.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)
        self.alone = try_lock(fd, fcntl.LOCK_EX)

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """The lease on the root with this lock file; `None` if the file cannot be created."""
        try:
            return cls(os.open(path, _OPEN_FLAGS | os.O_NOFOLLOW, 0o600))
        except OSError:
            return None

    def share(self) -> None:
        """Let other daemons in. Waits a bounded time for their locks, because an agent may hold one."""
        for _ in range(_ATTEMPTS):
            if try_lock(self._fd, fcntl.LOCK_SH):
                break
            time.sleep(_PAUSE_S)


@asynccontextmanager
async def locked(path: Path, wait_s: float) -> AsyncIterator[None]:
    """Hold a lock file against other processes.

    Polls the lock, because a wait in a thread cannot be cancelled. The wait is bounded, because an agent that
    can read the file can lock it too.

    Raises:
        GitError: another process held it all the time.
        OSError: the file cannot be created.
    """
    await to_thread.run_sync(make_directory, path.parent)
    fd = os.open(path, _OPEN_FLAGS, 0o600)
    try:
        with anyio.move_on_after(wait_s) as waiting:
            while not try_lock(fd, fcntl.LOCK_EX):  # noqa: ASYNC110 - another process holds it
                await anyio.sleep(_PAUSE_S)
        if waiting.cancelled_caught:
            raise GitError(f"another process has held {path} for {wait_s:g} s")
        yield
    finally:
        os.close(fd)


def clear_stale_locks(git_dir: Path) -> None:
    """Remove the lock files of a repository that are older than the longest command."""
    _clear(git_dir, into="refs", before=time.time() - _STALE_AGE_S)


def clear_abandoned_locks(git_dir: Path) -> None:
    """Remove all lock files of a repository that no process uses."""
    _clear(git_dir, into="refs")


def clear_fetch_locks(mirror: Path) -> None:
    """Remove the lock files that a fetch left in a mirror; only the holder of the mirror's lock fetches."""
    _clear(mirror / "refs" / "remotes")
    _clear(mirror / "refs" / "symphony", into="")  # only the commit of a detached `HEAD`


def clear_branch_locks(repository: Path) -> None:
    """Remove the lock files of issue branches in the operator's repository; other lock files stay."""
    git_dir = common_dir(repository)
    if git_dir is not None:
        _clear(git_dir / "refs" / "heads" / BRANCH_PREFIX)


def _clear(top: Path, *, into: str | None = None, before: float = math.inf) -> None:
    try:
        for directory, path in entries_below(top, into=into):
            name = path.rpartition("/")[2]
            if name.endswith(".lock"):
                with suppress(OSError):
                    if os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime < before:
                        os.unlink(name, dir_fd=directory)
    except OSError as error:
        _log.warning("locks_not_cleared", path=str(top), error=str(error))

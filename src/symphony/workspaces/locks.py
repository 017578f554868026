"""Locks between processes, and the lock files of git that a crash leaves.

Of the latter: with one of them in place no ref of that name can ever be written.

git never leaves one by itself. Who made it cannot be told, only that nobody can be using it any more: it is
older than any command may take, or every command that could have made it is known to have ended. The latter
is so for the only daemon at a workspace root, at its start: by then it has ended what its predecessor left.
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
from anyio import to_thread

from symphony.domain.ids import BRANCH_PREFIX
from symphony.workspaces.files import entries_below, make_directory
from symphony.workspaces.git import NETWORK_TIMEOUT_MS, GitError
from symphony.workspaces.refs import common_dir

__all__ = ["Tenancy", "clear_abandoned_locks", "clear_branch_locks", "clear_stale_locks", "locked"]

_log = structlog.get_logger(__name__)
_STALE_LOCK_S: Final = 2 * NETWORK_TIMEOUT_MS / 1000
_PATIENCE: Final = 100
_PAUSE_S: Final = 0.05


class Tenancy:
    """One daemon's use of a workspace root, as others see it; it ends with this object or the process.

    `alone` says whether nobody else was there, and holds until `settle`: who comes meanwhile waits that long.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)
        self.alone = self._take(fcntl.LOCK_EX)

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """The use of the root that this file stands for; null where there can be no such file."""
        try:
            return cls(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError:
            return None

    def settle(self) -> None:
        """Let others in; blocks while another is alone there, for a bounded time: an agent can do as if."""
        for _ in range(_PATIENCE):
            if self._take(fcntl.LOCK_SH):
                break
            time.sleep(_PAUSE_S)

    def _take(self, kind: int) -> bool:
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


@asynccontextmanager
async def locked(path: Path, wait_s: float) -> AsyncIterator[None]:
    """Hold a lock file against other processes; the lock ends with this process at the latest.

    Asked for again and again and never waited for in a thread, because such a wait cannot be cancelled.
    An agent that can read the file can lock it too, so the wait has an end.

    Raises:
        GitError: somebody else has held it all the time.
    """
    await to_thread.run_sync(make_directory, path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with anyio.move_on_after(wait_s) as waiting:
            while not _try_lock(fd):  # noqa: ASYNC110 - another process holds it and can set no event of ours
                await anyio.sleep(_PAUSE_S)
        if waiting.cancelled_caught:
            raise GitError(f"another process has held {path} for {wait_s:g} s")
        yield
    finally:
        os.close(fd)


def clear_stale_locks(git_dir: Path) -> None:
    """Remove locks that are older than any command may take."""
    _clear(git_dir, into="refs", before=time.time() - _STALE_LOCK_S)


def clear_abandoned_locks(git_dir: Path) -> None:
    """Remove all locks of a repository that nobody works with: every command that could have is ended."""
    _clear(git_dir, into="refs")


def clear_branch_locks(repository: Path) -> None:
    """Remove the locks of the branches that are ours in somebody's own repository; others are theirs."""
    git_dir = common_dir(repository)
    if git_dir is not None:
        _clear(git_dir / "refs" / "heads" / BRANCH_PREFIX)


def _clear(top: Path, *, into: str | None = None, before: float = math.inf) -> None:
    """Remove locks older than a moment, as far as what an agent may have made of the directory lets us."""
    try:
        for directory, path in entries_below(top, into=into):
            name = path.rpartition("/")[2]
            if name.endswith(".lock"):
                with suppress(OSError):
                    if os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime < before:
                        os.unlink(name, dir_fd=directory)
    except OSError as error:
        _log.warning("locks_not_cleared", path=str(top), error=str(error))


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

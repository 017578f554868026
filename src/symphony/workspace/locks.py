"""Lock files of git that a crash leaves: with one of them in place no ref of that name can ever be written.

git never leaves one by itself. Who made it cannot be told, only that nobody can be using it any more: it is
older than any command may take, or every command that could have made it is known to have ended. The latter
is so for the only daemon at a workspace root, at its start: by then it has ended what its predecessor left.
"""

import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from symphony.domain.ids import BRANCH_PREFIX
from symphony.workspace.files import is_directory
from symphony.workspace.git import NETWORK_TIMEOUT_MS

__all__ = ["Tenancy", "clear_abandoned_locks", "clear_branch_locks", "clear_stale_locks"]

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


def clear_stale_locks(git_dir: Path) -> None:
    """Remove locks that are older than any command may take."""
    limit = time.time() - _STALE_LOCK_S
    for lock in _locks(git_dir):
        with suppress(OSError):
            if lock.lstat().st_mtime < limit:
                lock.unlink()


def clear_abandoned_locks(git_dir: Path) -> None:
    """Remove all locks of a repository that nobody works with: every command that could have is ended."""
    if is_directory(git_dir):
        for lock in _locks(git_dir):
            with suppress(OSError):
                lock.unlink()


def clear_branch_locks(repository: Path) -> None:
    """Remove the locks of the branches that are ours in somebody's own repository; others are theirs."""
    for git_dir in (repository / ".git", repository):
        branches = git_dir / "refs" / "heads" / BRANCH_PREFIX
        for lock in branches.rglob("*.lock") if is_directory(branches) else ():
            with suppress(OSError):
                lock.unlink()


def _locks(git_dir: Path) -> Iterator[Path]:
    yield from list(git_dir.glob("*.lock"))
    refs = git_dir / "refs"
    yield from list(refs.rglob("*.lock")) if is_directory(refs) else ()

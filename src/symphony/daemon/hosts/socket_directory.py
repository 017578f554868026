"""A private directory with a short path, for the sockets of ssh and of the bridge to Ray."""

import os
import secrets
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from symphony.files import try_lock

_TEMPORARY: Final = Path("/tmp")  # noqa: S108 - the directory is made private
_PREFIX: Final = "symphony-ssh-"
_MIN_AGE_S: Final = 60.0  # a younger one may be about to be locked


class SocketDirectory:
    """A directory that is locked as long as this process uses it; the methods block.

    The path of a Unix socket has at most 107 bytes, so it cannot be in the state directory. A killed daemon
    leaves it, and the next one removes it. systemd-tmpfiles does not touch locked directories.

    Args:
        parent: has the directory.
    """

    def __init__(self, parent: Path = _TEMPORARY) -> None:
        self.path = parent / f"{_PREFIX}{secrets.token_hex(8)}"
        self._lock: int | None = None
        self._making = Lock()  # hosts are asked in several threads at once

    def create(self) -> None:
        """Make the directory unless it exists, and remove directories of killed daemons. Raises `OSError`."""
        with self._making:
            if self._lock is None:
                for left in self.path.parent.glob(f"{_PREFIX}*"):
                    _remove_left(left)
            if not self.path.is_dir():
                self.remove()
                self.path.mkdir(mode=0o700)
                self._lock = _locked(self.path)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove_left(path: Path) -> None:
    with suppress(OSError):
        info = path.lstat()
        young = time.time() - info.st_mtime < _MIN_AGE_S
        if young or info.st_uid != os.geteuid() or not stat.S_ISDIR(info.st_mode):
            return
        lock = _locked(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of a directory; `None` if another process holds it."""
    found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if try_lock(found):
        return found
    os.close(found)
    return None

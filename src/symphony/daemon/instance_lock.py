"""The instance lock: ensures at most one daemon per state directory, and names it.

The kernel keeps the lock on the open file and frees it however the daemon ends. If a person removes or
replaces the file, a second daemon could start, so the holder calls `InstanceLock.renew` regularly. The
content, one JSON object, is for people and for commands that look for the daemon: `{"pid", "boot_id",
"started", "workflow"}`. A file with other content is left alone.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from symphony.domain import DECODE_ERRORS, Blame, Category, Failure, SymphonyError

_MAX_CONTENT_BYTES: Final = 16_384
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CONTENT_START: Final = b'{"pid": '
# Errors of file systems without locks; EIO and ENOLCK come from NFS without its lock service.
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO})


class StateDirectoryError(SymphonyError):
    """The state directory cannot be used, or another daemon holds it."""

    @classmethod
    def unusable(cls, message: str, *, hint: str) -> "StateDirectoryError":
        """The error for a directory or a lock file that cannot be used."""
        return cls(Failure(category=Category.STATE_DIRECTORY, blame=Blame.HOST, message=message, hint=hint))


class LockHolder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The daemon that the lock file names.

    Attributes:
        pid: its process id.
        boot_id: the boot id in its `Identity`; `None` if unknown.
        started: the start time in its `Identity`; `None` if unknown.
        workflow: the real path of the workflow file it serves.
    """

    pid: int
    boot_id: str | None = None
    started: float | None = None
    workflow: str | None = None


def parse_lock_holder(content: bytes) -> LockHolder | None:
    """The daemon that a lock file names; `None` if it names none, or if symphony did not write it."""
    try:
        holder = msgspec.json.decode(content, type=LockHolder)
    except DECODE_ERRORS:
        return None
    return holder if holder.pid > 0 else None


@contextmanager
def hold_lock(
    path: Path, holder: LockHolder, *, flock: Callable[[int, int], None] = fcntl.flock
) -> Iterator["InstanceLock"]:
    """Hold the lock file for `holder`; afterwards it names no daemon.

    Raises:
        StateDirectoryError: category `instance_locked`: another daemon holds it; or `state_directory`: the
            file cannot be used.
    """
    lock = InstanceLock(path, holder, flock)
    try:
        yield lock
    finally:
        lock.release()


class InstanceLock:
    """A held lock file.

    Attributes:
        had_no_holder: whether the file named no daemon when it was locked.
    """

    def __init__(self, path: Path, holder: LockHolder, flock: Callable[[int, int], None]) -> None:
        self._path = path
        self._holder = holder
        self._flock = flock
        self._handle, self.had_no_holder = self._lock()

    def renew(self) -> bool:
        """Lock the present file if it is not the held one; return whether that was needed.

        Raises:
            StateDirectoryError: as `hold_lock`.
        """
        with suppress(OSError):
            if os.path.samestat(self._path.lstat(), os.fstat(self._handle)):
                return False
        handle, _ = self._lock()
        os.close(self._handle)
        self._handle = handle
        return True

    def release(self) -> None:
        """Empty the file and free the lock."""
        with suppress(OSError):
            os.ftruncate(self._handle, 0)
        os.close(self._handle)

    def _lock(self) -> tuple[int, bool]:
        """Open, check and lock the file, and write the holder; its handle, and whether it named no daemon."""
        try:
            handle = os.open(self._path, _FLAGS, 0o600)
        except OSError as error:
            reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise self._unusable(reason or str(error)) from error
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise self._unusable("it is no file")
            if facts.st_uid != os.geteuid():
                raise self._unusable(f"it belongs to another user (uid {facts.st_uid})")
            return handle, self._take(handle)
        except StateDirectoryError:
            os.close(handle)
            raise

    def _take(self, handle: int) -> bool:
        try:
            self._flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = os.pread(handle, _MAX_CONTENT_BYTES, 0)
        except BlockingIOError as error:
            raise self._held_by(parse_lock_holder(os.pread(handle, _MAX_CONTENT_BYTES, 0))) from error
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno in _NO_LOCKS:
                raise StateDirectoryError.unusable(
                    f"files in the state directory {self._path.parent} cannot be locked: {reason}",
                    hint="set SYMPHONY_STATE_DIR to a directory on a local disk that this user can write",
                ) from error
            raise self._unusable(reason) from error
        before = parse_lock_holder(content)
        # A crash may leave only the start of the content, or zeros.
        text = content.strip(b"\0 \n")
        if text and before is None and not text.startswith(_CONTENT_START):
            raise self._unusable("something else than symphony wrote it")
        with suppress(OSError):  # with a full disk the lock is held, but names no daemon
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(structs.asdict(self._holder)).encode() + b"\n", 0)
        return before is None

    def _held_by(self, other: LockHolder | None) -> StateDirectoryError:
        directory = self._path.parent
        daemon = f"another symphony (pid {'unknown' if other is None else other.pid})"
        if other is None or other.workflow is None or other.workflow == self._holder.workflow:
            message = f"{daemon} already serves this workflow, with the state directory {directory}"
        else:
            message = f"{daemon} serves {other.workflow} with the state directory {directory}"
        return StateDirectoryError(
            Failure(
                category=Category.INSTANCE_LOCKED,
                blame=Blame.HOST,
                message=message,
                hint="stop it first, or give this one its own SYMPHONY_STATE_DIR",
            )
        )

    def _unusable(self, reason: str) -> StateDirectoryError:
        return StateDirectoryError.unusable(
            f"the lock file {self._path} cannot be used: {reason}",
            hint="move it out of the way if nothing needs it, or set SYMPHONY_STATE_DIR to another directory",
        )

"""The instance lock: at most one daemon per state directory, and who it is.

What counts is the lock that the kernel keeps on the file and frees however the daemon ends. Who removes the
file or puts another in its place lets a second daemon in, so `InstanceLock.renew` looks. The content, one
JSON object, is for people and for commands that look for the daemon: `{"pid", "boot_id", "started",
"workflow"}`. A file that we have not written is left alone.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from symphony.domain.failures import Blame, Category, Failure, SymphonyError

__all__ = ["Holder", "InstanceLock", "StateDirectoryError", "holding", "parse_holder"]

_MAX_BYTES: Final = 16_384
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_BEGINNING: Final = b'{"pid": '
_ELSEWHERE: Final = "set SYMPHONY_STATE_DIR to a directory on a local disk that this user can write"
# What file systems answer that know no locks; EIO and ENOLCK come of NFS without its lock service.
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO})


class StateDirectoryError(SymphonyError):
    """The state directory cannot be used, or another daemon holds it."""

    @classmethod
    def unusable(cls, what: str, *, hint: str = _ELSEWHERE) -> "StateDirectoryError":
        """The error for a directory or a lock file that will not do."""
        return cls(Failure(category=Category.STATE_DIRECTORY, blame=Blame.HOST, message=what, hint=hint))


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The daemon that wrote itself into the lock file.

    `boot_id` and `started` are those of its `Identity`, `workflow` is a real path; all three are null where
    an older version wrote the file.
    """

    pid: int
    boot_id: str | None = None
    started: float | None = None
    workflow: str | None = None


def parse_holder(content: bytes) -> Holder | None:
    """Who is named in a lock file; null where nobody is, or what stands there is not ours."""
    try:
        raw = json.loads(content)
        fields = {"pid": raw} if isinstance(raw, int) else dict(raw)
        holder = Holder(**fields)
    except (ValueError, TypeError, RecursionError):
        return None
    named = type(holder.pid) is int and holder.pid > 0
    return holder if named and isinstance(holder.workflow, str | None) else None


class InstanceLock:
    """The lock file as it is held. `names_nobody`: no predecessor was named in it when it was taken."""

    def __init__(self, path: Path, holder: Holder, flock: Callable[[int, int], None]) -> None:
        self._path = path
        self._holder = holder
        self._flock = flock
        self._handle, self.names_nobody = self._taken()

    def renew(self) -> bool:
        """Take the file that stands there now if it is not the one we hold; whether that was needed.

        Raises:
            StateDirectoryError: as `holding`; another daemon has the new one, or it cannot be made.
        """
        with suppress(OSError):
            there, held = self._path.lstat(), os.fstat(self._handle)
            if os.path.samestat(there, held):
                return False
        handle, _ = self._taken()
        os.close(self._handle)
        self._handle = handle
        return True

    def release(self) -> None:
        """Name nobody any more, and let the next one in."""
        with suppress(OSError):
            os.ftruncate(self._handle, 0)
        os.close(self._handle)

    def _taken(self) -> tuple[int, bool]:
        handle = _open(self._path)
        try:
            return handle, _take(handle, self._path, self._holder, self._flock)
        except StateDirectoryError:
            os.close(handle)
            raise


@contextmanager
def holding(
    path: Path, holder: Holder, *, flock: Callable[[int, int], None] = fcntl.flock
) -> Iterator[InstanceLock]:
    """Hold the lock file `path` in the name of `holder`; at the end nobody is named in it any more.

    Raises:
        StateDirectoryError: category `instance_locked`: another daemon has it; or `state_directory`: the file
            cannot be used, or is not ours to use.
    """
    lock = InstanceLock(path, holder, flock)
    try:
        yield lock
    finally:
        lock.release()


def _open(path: Path) -> int:
    try:
        handle = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise _not_usable(path, reason or str(error)) from error
    objection = _objection(os.fstat(handle))
    if objection is not None:
        os.close(handle)
        raise _not_usable(path, objection)
    return handle


def _objection(facts: os.stat_result) -> str | None:
    if not stat.S_ISREG(facts.st_mode):
        return "it is no file"
    if facts.st_uid != os.geteuid():
        return f"it belongs to another user (uid {facts.st_uid})"
    return None


def _take(handle: int, path: Path, holder: Holder, flock: Callable[[int, int], None]) -> bool:
    """Lock it and write our name; whether nobody's stood there."""
    try:
        flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        content = os.pread(handle, _MAX_BYTES, 0)
    except BlockingIOError as error:
        other = parse_holder(os.pread(handle, _MAX_BYTES, 0))
        raise StateDirectoryError(_taken(path.parent, holder, other)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NO_LOCKS:
            what = f"files in the state directory {path.parent} cannot be locked: {reason}"
            raise StateDirectoryError.unusable(what) from error
        raise _not_usable(path, reason) from error
    if not _is_ours(content):
        raise _not_usable(path, "something else than symphony wrote it")
    with suppress(OSError):  # a full disk: the lock is held, and only its name plate is missing
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(asdict(holder)).encode() + b"\n", 0)
    return parse_holder(content) is None


def _is_ours(content: bytes) -> bool:
    """Whether we wrote it, be it only the beginning, or the zeros that a lost disk cache leaves."""
    text = content.strip(b"\0 \n")
    return not text or text.startswith(_BEGINNING) or parse_holder(content) is not None


def _taken(place: Path, holder: Holder, other: Holder | None) -> Failure:
    who = f"another symphony (pid {'unknown' if other is None else other.pid})"
    if other is None or other.workflow is None or other.workflow == holder.workflow:
        what = f"{who} already serves this workflow, with the state directory {place}"
    else:
        what = f"{who} serves {other.workflow} with the state directory {place}"
    return Failure(
        category=Category.INSTANCE_LOCKED,
        blame=Blame.HOST,
        message=what,
        hint="stop it first, or give this one its own SYMPHONY_STATE_DIR",
    )


def _not_usable(path: Path, reason: str) -> StateDirectoryError:
    return StateDirectoryError.unusable(
        f"the lock file {path} cannot be used: {reason}",
        hint="move it out of the way if nothing needs it, or set SYMPHONY_STATE_DIR to another directory",
    )

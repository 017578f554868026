"""The state directory: which daemon holds it, and the logs of agents."""

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final

from symphony.domain import (
    Blame,
    Category,
    Failure,
    SymphonyError,
    disk_full_hint,
    is_disk_full,
)
from symphony.processes.base import Identity

# Where the state directory of a workflow file is (DESIGN 10).
#
# Apart from the directory itself, because a command that only asks a daemon needs the place and nothing
# else.


SYSTEM_STATE_HOMES = (Path("/var/lib/symphony"), Path("/var/lib/private/symphony"))
"""Where a service manager makes the state directories of services, one below the other."""

_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def locate(workflow_path: Path, environment: Mapping[str, str]) -> Path:
    """The state directory of a workflow file; nothing is created.

    A service manager may name several directories, separated by colons: ours is the first.
    """
    managed = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if given := environment.get("SYMPHONY_STATE_DIR") or managed:
        return Path(given).expanduser().absolute()
    real = os.path.realpath(workflow_path)
    name = _UNSAFE_NAME.sub("-", Path(real).parent.name).strip("-.") or "workflow"
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
    return state_home(environment) / f"{name}-{digest}"


def state_home(environment: Mapping[str, str]) -> Path:
    """Where the state directories of this user are made that nobody gave a place of their own."""
    home = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser().absolute() / "symphony"


def instance_of(state_dir: Path) -> str:
    """The name under which the daemons of a state directory, one after the other, mark their children.

    It is made of the path and not kept in the directory, so that children are found although everything in
    it was deleted. The root of the file system is in it too: two containers may see one process table, and
    each have a directory of this path.
    """
    root = Path("/").stat()
    seen_from = f"{root.st_dev}:{root.st_ino}:"
    digest = hashlib.sha256(seen_from.encode() + os.fsencode(os.path.realpath(state_dir)))
    return digest.hexdigest()[:24]


# The instance lock: at most one daemon per state directory, and who it is.
#
# What counts is the lock that the kernel keeps on the file and frees however the daemon ends. Who removes
# the file or puts another in its place lets a second daemon in, so `InstanceLock.renew` looks. The content,
# one JSON object, is for people and for commands that look for the daemon: `{"pid", "boot_id", "started",
# "workflow"}`. A file that we have not written is left alone.


_MAX_HOLDER_BYTES: Final = 16_384
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
class LockHolder:
    """The daemon that wrote itself into the lock file.

    `boot_id` and `started` are those of its `Identity`, `workflow` is a real path; all three are null where
    an older version wrote the file.
    """

    pid: int
    boot_id: str | None = None
    started: float | None = None
    workflow: str | None = None


def parse_lock_holder(content: bytes) -> LockHolder | None:
    """Who is named in a lock file; null where nobody is, or what stands there is not ours."""
    try:
        raw = json.loads(content)
        fields = {"pid": raw} if isinstance(raw, int) else dict(raw)
        holder = LockHolder(**fields)
    except (ValueError, TypeError, RecursionError):
        return None
    named = type(holder.pid) is int and holder.pid > 0
    return holder if named and isinstance(holder.workflow, str | None) else None


class InstanceLock:
    """The lock file as it is held. `names_nobody`: no predecessor was named in it when it was taken."""

    def __init__(self, path: Path, holder: LockHolder, flock: Callable[[int, int], None]) -> None:
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
    path: Path, holder: LockHolder, *, flock: Callable[[int, int], None] = fcntl.flock
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


def _take(handle: int, path: Path, holder: LockHolder, flock: Callable[[int, int], None]) -> bool:
    """Lock it and write our name; whether nobody's stood there."""
    try:
        flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        content = os.pread(handle, _MAX_HOLDER_BYTES, 0)
    except BlockingIOError as error:
        other = parse_lock_holder(os.pread(handle, _MAX_HOLDER_BYTES, 0))
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
    return parse_lock_holder(content) is None


def _is_ours(content: bytes) -> bool:
    """Whether we wrote it, be it only the beginning, or the zeros that a lost disk cache leaves."""
    text = content.strip(b"\0 \n")
    return not text or text.startswith(_BEGINNING) or parse_lock_holder(content) is not None


def _taken(place: Path, holder: LockHolder, other: LockHolder | None) -> Failure:
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


class StateDirectory:
    """One directory per workflow file, private to its user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"

    def create(self) -> None:
        """Make the directory and its parts, mode 0700.

        Raises:
            StateDirectoryError: it cannot be created or written.
        """
        try:
            for part in (self.path, self.logs):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise self._unusable(error) from error

    @contextmanager
    def lock(
        self, workflow: Path | None = None, *, identity: Identity | None = None
    ) -> Iterator[InstanceLock]:
        """Hold the instance lock; the kernel frees it however the daemon ends.

        `workflow` and `identity` tell others who serves what here.

        Raises:
            StateDirectoryError: as `instance_lock.holding`.
        """
        holder = LockHolder(
            pid=os.getpid(),
            boot_id=None if identity is None else identity.boot_id,
            started=None if identity is None else identity.started,
            workflow=None if workflow is None else os.path.realpath(workflow),
        )
        with holding(self.path / "lock", holder) as lock:
            yield lock

    def _unusable(self, error: OSError) -> StateDirectoryError:
        what = f"the state directory {self.path} cannot be used: {error.strerror}"
        usual = "set SYMPHONY_STATE_DIR to a directory that this user can write"
        return StateDirectoryError.unusable(
            what, hint=disk_full_hint(self.path) if is_disk_full(error) else usual
        )

    def stderr_log(self, run_id: str) -> Path:
        """Where the agent of a run writes its stderr."""
        return self.logs / f"{run_id}.stderr.log"

    def drop_empty_log(self, run_id: str) -> None:
        """Remove the stderr log of an ended run that said nothing."""
        log = self.stderr_log(run_id)
        with suppress(OSError):
            if log.stat().st_size == 0:
                log.unlink()


# The operator's token: what a client off this machine must show (AP10). Never logged, never shown.


TOKEN_VARIABLE = "SYMPHONY_OPERATOR_TOKEN"  # noqa: S105 - a name, not a secret
_FILE_NAME = "operator.token"
_MIN_CHARS = 16
_MAX_TOKEN_BYTES = 4_096


def operator_token(state_dir: StateDirectory, environment: Mapping[str, str]) -> str:
    """The token of the environment, else of the state directory's `operator.token`, made there if absent.

    Raises:
        SymphonyError: `http_server`: it is too short to protect anything, or others can read it.
    """
    given = environment.get(TOKEN_VARIABLE)
    if given is not None:
        return _checked(given, TOKEN_VARIABLE)
    path = state_dir.path / _FILE_NAME
    try:
        return _checked(_read(path), str(path))
    except FileNotFoundError:
        return _make(path)
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"{path} cannot be read: {error}") from error


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise _refused(f"{path} can be read by others, or is not a file of this user")
        return os.read(descriptor, _MAX_TOKEN_BYTES).decode("ascii")
    finally:
        os.close(descriptor)


def _make(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{token}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refused(f"{path} cannot be written: {error.strerror}") from error
    return token


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if len(token) < _MIN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise _refused(f"the operator token in {where} is not {_MIN_CHARS} or more plain characters")
    return token


def _refused(message: str) -> SymphonyError:
    return SymphonyError(
        Failure(
            category=Category.HTTP_SERVER,
            blame=Blame.CONFIG,
            message=message,
            retryable=False,
            hint=f"set {TOKEN_VARIABLE}, or remove the file and a new one is made (mode 0600)",
        )
    )


# Remembers, for `symphony status --all`, state directories that lie where nobody would look for them.
#
# Those below `state_home` are found by listing it. For any other a daemon leaves a small file in `known/`
# there, `{"state_dir"}`, named by a digest of the path. It is written once and outlasts the daemon, so that
# a killed one is found too; what it names may be gone, and then the next daemon removes it. A home that
# cannot be written costs a place in the list and nothing else.


KNOWN_FOLDER: Final = "known"
_MOST: Final = 1_000


def register_state_dir(state_dir: Path, environment: Mapping[str, str]) -> None:
    """Leave word of a state directory; nothing happens where it will be found anyway."""
    home, real = state_home(environment), Path(os.path.realpath(state_dir))
    if real.parent in {Path(os.path.realpath(home)), *SYSTEM_STATE_HOMES}:
        return
    folder = home / KNOWN_FOLDER
    with suppress(OSError, ValueError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget_what_is_gone(folder)
        file = folder / f"{sha256(os.fsencode(real)).hexdigest()[:24]}.json"
        if not file.exists():
            draft = file.with_suffix(f".{os.getpid()}.tmp")
            draft.write_text(json.dumps({"state_dir": str(real)}) + "\n", encoding="utf-8")
            draft.replace(file)


def parse_known_state_dir(content: bytes) -> Path | None:
    """The state directory that a file of ours names; null for anything else."""
    try:
        told = json.loads(content)["state_dir"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    sensible = isinstance(told, str) and told.startswith("/") and "\0" not in told
    return Path(told) if sensible else None


def _forget_what_is_gone(folder: Path) -> None:
    for file in islice(folder.glob("*.json"), _MOST):
        with suppress(OSError):  # of one that cannot be looked at nothing is known, and the others count
            place = parse_known_state_dir(file.read_bytes()) if file.is_file() else None
            if place is not None and not place.exists():
                file.unlink(missing_ok=True)

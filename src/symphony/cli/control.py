"""Which daemon serves a workflow, by the files in its state directory; nothing is asked of it yet.

A daemon leaves `control.json` (`{"socket", "host", "port", "pid", "workflow"}`) and the file of its instance
lock behind when it is killed. Both name a process, which counts only if it was there when the file was
written. The lock itself is never tried: a reader that held it for a moment could keep a daemon from starting.
Two workflows may be given one state directory: the daemon there is that of the workflow it names.
"""

import errno
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from symphony.cli.failures import CommandError, ExitCode
from symphony.daemon.instance_lock import Holder, parse_holder
from symphony.daemon.state_place import locate

__all__ = [
    "Control",
    "Traces",
    "UnreachableError",
    "absence",
    "content_of",
    "find_daemon",
    "traces",
    "unreachable",
]

_MAX_BYTES = 64 * 1024
_SLACK_S = 5.0


class UnreachableError(CommandError):
    """There is a daemon, or there has to be one, and it cannot be asked; exit code 5."""


def unreachable(message: str, *, hint: str) -> UnreachableError:
    """The error with its `Failure` built from the arguments."""
    failure = CommandError.of(message, hint=hint).failure
    return UnreachableError(failure, code=ExitCode.UNREACHABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """How a daemon can be asked.

    Attributes:
        socket: of its HTTP application; a path of this machine.
        pid: its process.
        host, port: where it listens on TCP as well; null where it does not.
        started: when its process began; null where that cannot be told.
        workflow: the real path of the file it serves; null where it does not say.
    """

    socket: Path
    pid: int
    host: str | None = None
    port: int | None = None
    started: datetime | None = None
    workflow: str | None = None

    def serves(self, workflow: Path) -> bool:
        """Whether it is the daemon of this file, as far as it says."""
        return self.workflow is None or self.workflow == os.path.realpath(workflow)


def find_daemon(workflow: Path, environment: Mapping[str, str]) -> Control | None:
    """The daemon that serves a workflow file; null where none does.

    Raises:
        UnreachableError: one seems to, and there is no telling how to ask it.
    """
    directory = locate(workflow, environment)
    try:
        found = _read(directory / "control.json")
        holder = _holder(directory / "lock")
    except OSError as error:
        raise unreachable(
            f"the state directory {directory} cannot be read: {error.strerror or error}",
            hint="run this as the user of the daemon, or set SYMPHONY_STATE_DIR to the daemon's directory",
        ) from error
    if found is not None and _lived(found.pid, directory / "control.json"):
        return found if found.serves(workflow) else None
    if holder is not None:
        raise unreachable(
            f"a daemon (pid {holder}) serves this workflow and offers no control socket",
            hint="it may be starting or ending, so try again in a moment; if it stays so, restart it",
        )
    return None


def absence(workflow: Path, environment: Mapping[str, str]) -> str | None:
    """What is odd about there being no daemon of a workflow; null where nothing is."""
    note = locate(workflow, environment) / "control.json"
    try:
        found = _read(note)
    except OSError:
        return None
    if found is None:
        return None
    alive, ours = _lived(found.pid, note), found.serves(workflow)
    if alive and not ours:
        return (
            f"The daemon of another workflow, {found.workflow} (pid {found.pid}), has the state directory "
            f"{note.parent}; give this one its own SYMPHONY_STATE_DIR"
        )
    if ours and not alive:
        return (
            f"The last daemon (pid {found.pid}) did not end in order; the next `symphony run` ends what it "
            "left running and goes on"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What a daemon has left in a state directory.

    Attributes:
        pid: its process; `alive` says whether that is still there.
        control: how it can be asked; null where it offers no socket.
        workflow: the real path of the file it serves; null where it does not say.
    """

    pid: int
    alive: bool
    control: Control | None
    workflow: str | None


def traces(directory: Path, owner: int) -> Traces | None:
    """The daemon of a state directory, whatever it serves; null where none is that has not ended in order.

    What does not belong to the user `owner` counts for nothing.

    Raises:
        OSError: the directory cannot be read.
    """
    note, lock = directory / "control.json", directory / "lock"
    found, holder = _read(note, owner), _named(lock, owner)
    if found is not None and (holder is None or holder.pid == found.pid):
        workflow = found.workflow or (holder.workflow if holder else None)
        return Traces(pid=found.pid, alive=_lived(found.pid, note), control=found, workflow=workflow)
    if holder is not None:
        alive = _lived(holder.pid, lock)
        return Traces(pid=holder.pid, alive=alive, control=None, workflow=holder.workflow)
    return None


def _read(path: Path, owner: int | None = None) -> Control | None:
    """What the file says; null where there is none, or nothing sensible in it. Raises `OSError`."""
    try:
        return _typed(json.loads(content_of(path, owner)))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, RecursionError):
        return None


def content_of(path: Path, owner: int | None = None) -> bytes:
    """The beginning of a file; empty for what is none, such as a pipe, or is not of the user `owner`.

    Raises:
        OSError: it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        facts = os.fstat(handle)
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        ours = stat.S_ISREG(facts.st_mode) and owner in {None, facts.st_uid}
        return os.read(handle, _MAX_BYTES) if ours else b""
    finally:
        os.close(handle)


def _typed(raw: Mapping[str, Any]) -> Control:
    socket, pid, host, port = raw["socket"], raw["pid"], raw.get("host"), raw.get("port")
    workflow = raw.get("workflow")
    sensible = isinstance(socket, str) and socket.startswith("/") and isinstance(pid, int) and pid > 0
    if not sensible or "\0" in socket:
        raise ValueError("not the note of a daemon")
    return Control(
        socket=Path(socket),
        pid=pid,
        host=host if isinstance(host, str) else None,
        port=port if isinstance(port, int) else None,
        started=_started(pid),
        workflow=workflow if isinstance(workflow, str) else None,
    )


def _holder(lock: Path) -> int | None:
    """The process that took the instance lock last, if it is still there. Raises `OSError`."""
    holder = _named(lock)
    return holder.pid if holder is not None and _lived(holder.pid, lock) else None


def _named(lock: Path, owner: int | None = None) -> Holder | None:
    """Who stands in the lock file. Raises `OSError`."""
    try:
        return parse_holder(content_of(lock, owner))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _lived(pid: int, written: Path) -> bool:
    """Whether the process was there when the file was written, and is: else its number is another's now."""
    started = _started(pid)
    if started is None:
        return False
    try:
        return started.timestamp() <= written.stat().st_mtime + _SLACK_S
    except OSError:
        return False


def _started(pid: int) -> datetime | None:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return datetime.fromtimestamp(process.create_time(), UTC)
    except (psutil.Error, ValueError, OverflowError, OSError):
        return None

"""Finds the daemon that serves a workflow, from the files in its state directory.

A daemon writes two files there: `control.json` (`{"socket", "host", "port", "pid", "workflow"}`) and
`lock`, the file of its instance lock. A killed daemon leaves both behind, so a process id counts only if
that process already existed when the file was written. The lock itself is never taken: a reader that holds
it for a moment could keep a daemon from starting. Two workflows may share one state directory; the daemon
there belongs to the workflow that its files name.
"""

import errno
import os
import socket
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Struct

from symphony.cli.failures import CommandError, ExitCode
from symphony.daemon.instance_lock import LockHolder, parse_lock_holder
from symphony.daemon.state_dir import locate
from symphony.domain import DECODE_ERRORS
from symphony.processes.table import ProcessTable

_CONNECT_S: Final = 2.0
_MAX_FILE_BYTES: Final = 64 * 1024
_CLOCK_SLACK_S: Final = 5.0
_CREDENTIALS: Final = struct.Struct("3i")


class UnreachableError(CommandError):
    """A daemon exists, or is required, and cannot be asked; exit code 5."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(CommandError.of(message, hint=hint).failure, code=ExitCode.UNREACHABLE)


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where a daemon answers.

    Attributes:
        socket: path of the Unix socket of its HTTP application.
        pid: its process.
        host, port: its TCP address, if it listens on TCP.
        started: when its process began; None if that is unknown.
    """

    socket: Path
    pid: int
    host: str | None = None
    port: int | None = None
    started: datetime | None = None


class DaemonRecord(Struct, frozen=True, kw_only=True):
    """The daemon that wrote the files of a state directory and did not remove them in a normal shutdown.

    Attributes:
        pid: its process.
        alive: whether that process still exists.
        workflow: the real path of the workflow file that it serves, if it says so.
        endpoint: None if it offers no control socket (yet).
    """

    pid: int
    alive: bool
    workflow: str | None
    endpoint: Endpoint | None

    def serves(self, workflow: Path) -> bool:
        """Whether this is the daemon of the workflow file; a record without a workflow counts for all."""
        return self.workflow is None or self.workflow == os.path.realpath(workflow)


class _ControlFile(msgspec.Struct, frozen=True):
    socket: Annotated[str, msgspec.Meta(pattern=r"^/[^\0]*$")]
    pid: Annotated[int, msgspec.Meta(ge=1)]
    host: str | None = None
    port: int | None = None
    workflow: str | None = None


def find_daemon(workflow: Path, environment: Mapping[str, str]) -> Endpoint | None:
    """The endpoint of the daemon that serves a workflow file; None if no daemon does.

    Raises:
        UnreachableError: a daemon seems to serve it, but its endpoint is unknown.
    """
    directory = locate(workflow, environment)
    try:
        record = read_record(directory)
    except OSError as error:
        raise UnreachableError(
            f"the state directory {directory} cannot be read: {error.strerror or error}",
            hint="run this as the user of the daemon, or set SYMPHONY_STATE_DIR to the daemon's directory",
        ) from error
    if record is None or not record.alive or not record.serves(workflow):
        return None
    if record.endpoint is None:
        raise UnreachableError(
            f"a daemon (pid {record.pid}) serves this workflow and offers no control socket",
            hint="it may be starting or ending: try again in a moment; if that does not help, restart it",
        )
    return record.endpoint


def absence_notice(workflow: Path, environment: Mapping[str, str]) -> str | None:
    """What a person should know when no daemon serves the workflow; None if everything is in order."""
    directory = locate(workflow, environment)
    try:
        record = read_record(directory)
    except OSError:
        return None
    if record is None or record.alive is record.serves(workflow):
        return None
    if record.alive:
        return (
            f"The daemon of another workflow, {record.workflow} (pid {record.pid}), uses the state directory "
            f"{directory}; set another SYMPHONY_STATE_DIR for this workflow"
        )
    return (
        f"The last daemon (pid {record.pid}) had no normal end; the next `symphony run` ends its left-over "
        "processes and continues its work"
    )


def read_record(directory: Path, owner: int | None = None) -> DaemonRecord | None:
    """The daemon of a state directory, for any workflow; `None` after a normal shutdown.

    With `owner`, a user id, only files of that user count.

    Raises:
        OSError: the directory cannot be read.
    """
    control_path, lock_path = directory / "control.json", directory / "lock"
    control, holder = _read_control(control_path, owner), _read_holder(lock_path, owner)
    if control is not None:
        alive = _existed_at(control.pid, control_path)
        if alive or holder is None or holder.pid == control.pid:
            endpoint = Endpoint(
                socket=Path(control.socket),
                pid=control.pid,
                host=control.host,
                port=control.port,
                started=ProcessTable().started_at(control.pid),
            )
            workflow = control.workflow or (holder.workflow if holder else None)
            return DaemonRecord(pid=control.pid, alive=alive, workflow=workflow, endpoint=endpoint)
    if holder is not None:
        alive = _existed_at(holder.pid, lock_path)
        return DaemonRecord(pid=holder.pid, alive=alive, workflow=holder.workflow, endpoint=None)
    return None


def read_small_file(path: Path, owner: int | None = None) -> bytes:
    """The first 64 KiB of a file; empty if it is not a regular file, or not a file of the user `owner`.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode) or owner not in {None, status.st_uid}:
            return b""
        return os.read(descriptor, _MAX_FILE_BYTES)
    finally:
        os.close(descriptor)


def check_listener(endpoint: Endpoint, owner: int | None = None) -> None:
    """Check that the daemon's own process serves the socket, as `owner` (default: this user) or root.

    Raises:
        UnreachableError: nothing or another process listens there.
    """
    owner = os.geteuid() if owner is None else owner
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(os.fsencode(endpoint.socket))
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError as error:
            raise UnreachableError(
                f"the daemon (pid {endpoint.pid}) cannot be reached over {endpoint.socket}: "
                f"{error.strerror or error}",
                hint="it may be starting or ending; only its own user can ask a daemon",
            ) from error
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    if pid not in {0, endpoint.pid} or uid not in {owner, 0}:  # 0: a process outside of this PID namespace
        raise UnreachableError(
            f"{endpoint.socket} is served by another process (pid {pid}) than the daemon "
            f"(pid {endpoint.pid})",
            hint="no request was sent to it; restart the daemon, which creates the socket again",
        )


def _read_control(path: Path, owner: int | None) -> _ControlFile | None:
    with suppress(FileNotFoundError, NotADirectoryError, *DECODE_ERRORS):
        return msgspec.json.decode(read_small_file(path, owner), type=_ControlFile)
    return None


def _read_holder(lock: Path, owner: int | None) -> LockHolder | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return parse_lock_holder(read_small_file(lock, owner))
    return None


def _existed_at(pid: int, file: Path) -> bool:
    """Whether the process that had this id when the file was written still exists."""
    started = ProcessTable().started_at(pid)
    if started is None:
        return False
    try:
        return started.timestamp() <= file.stat().st_mtime + _CLOCK_SLACK_S
    except OSError:
        return False

"""Where the daemon can be reached: a control socket always, a TCP port if asked for, and a note that says so.

The note is `control.json` in the state directory: `{"socket", "host", "port", "pid", "workflow"}`. Clients
read it, because the path of a Unix socket may be too long for the system, and a port may be any free one.
"""

import errno
import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import structlog

from symphony.domain.failures import Blame, Category, Failure, SymphonyError
from symphony.runtime.state_dir import StateDirectory

__all__ = ["NOTE_NAME", "Doors", "open_doors"]

NOTE_NAME = "control.json"
_MAX_PATH_BYTES = 107
_BACKLOG = 64
_TEMP_PREFIX = "symphony-"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Listening sockets. `control` is null where no Unix socket can be made, `tcp` where none is wanted."""

    control: socket.socket | None
    tcp: socket.socket | None

    @property
    def port(self) -> int | None:
        """The bound port."""
        return None if self.tcp is None else int(self.tcp.getsockname()[1])


@contextmanager
def open_doors(
    state_dir: StateDirectory,
    *,
    host: str,
    port: int | None,
    environment: Mapping[str, str],
    workflow: Path | None = None,
) -> Iterator[Doors]:
    """Bind what is wanted and write the note; everything is gone at the end. Called under the instance lock.

    `workflow` is whom the note names, so that a client of another one does not take the daemon for its own.

    Raises:
        SymphonyError: `http_server`: the port is taken, or the address is none of this machine.
    """
    with ExitStack() as stack:
        tcp = None if port is None else stack.enter_context(_listen_tcp(host, port))
        control, path = _listen_control(state_dir, environment, stack)
        doors = Doors(control=control, tcp=tcp)
        _write_note(
            state_dir,
            {
                "socket": None if path is None else str(path),
                "host": None if doors.port is None else host,
                "port": doors.port,
                "pid": os.getpid(),
                "workflow": None if workflow is None else os.path.realpath(workflow),
            },
        )
        stack.callback(_remove, state_dir.path / NOTE_NAME)
        yield doors


# --- TCP -------------------------------------------------------------------------------------------------


def _listen_tcp(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # the latter for a name that cannot be looked up at all
        raise _unreachable(host, port, error) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        bound.close()
        raise _unreachable(host, port, error) from error
    return bound


def _unreachable(host: str, port: int, error: Exception) -> SymphonyError:
    if isinstance(error, UnicodeError):
        reason = "no machine can have this name"
    else:
        reason = getattr(error, "strerror", None) or str(error)
    return SymphonyError(
        Failure(
            category=Category.HTTP_SERVER,
            blame=Blame.HOST,
            message=f"cannot listen on {host} port {port}: {reason}",
            retryable=False,
            hint="give another --port (0 takes a free one), or see who has this one: ss -ltnp",
        )
    )


# --- the control socket ----------------------------------------------------------------------------------


def _listen_control(
    state_dir: StateDirectory, environment: Mapping[str, str], stack: ExitStack
) -> tuple[socket.socket | None, Path | None]:
    """The first place that will do. Without any the daemon works, and says that nobody can ask it."""
    _remove_left_socket(state_dir)
    reason = "no place is private"
    for place in (_in_runtime_directory, _in_state_directory, _in_temp_directory):
        path = None
        try:
            path = place(state_dir, environment)
            if path is not None:
                bound = _bind(path)
                stack.callback(_remove_socket, path)
                stack.enter_context(bound)
                return bound, path
        except OSError as error:
            reason = error.strerror or str(error)
        if path is not None:
            _remove_socket(path)
    _log.warning("control_socket_failed", reason=reason)
    return None, None


def _bind(path: Path) -> socket.socket:
    """A socket file that only its owner may use; its directory is private, so no moment is open to others."""
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    with suppress(FileNotFoundError):
        path.unlink()
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(os.fspath(path))
        path.chmod(0o600)
        bound.listen(_BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def _name(state_dir: StateDirectory) -> str:
    """Like the state directory, and unlike that of any other: two may have the same last part."""
    digest = sha256(os.fsencode(os.path.realpath(state_dir.path))).hexdigest()[:8]
    return f"{state_dir.path.name[:40]}-{digest}.sock"


def _in_runtime_directory(state_dir: StateDirectory, environment: Mapping[str, str]) -> Path | None:
    """Below `$XDG_RUNTIME_DIR`, if that is a private directory of ours."""
    given = environment.get("XDG_RUNTIME_DIR", "")
    if not given.startswith("/") or not _is_private(Path(given)):
        return None
    directory = Path(given) / "symphony"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory / _name(state_dir) if _is_private(directory) else None


def _in_state_directory(state_dir: StateDirectory, _: Mapping[str, str]) -> Path | None:
    return state_dir.path / "control.sock" if _is_private(state_dir.path) else None


def _in_temp_directory(_: StateDirectory, __: Mapping[str, str]) -> Path:
    return Path(tempfile.mkdtemp(prefix=_TEMP_PREFIX)) / "control.sock"


def _is_private(directory: Path) -> bool:
    """Whether it is a real directory of this user that nobody else may enter."""
    try:
        facts = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077


def _remove_left_socket(state_dir: StateDirectory) -> None:
    """What a killed predecessor left in a temp directory: its note says where; only a socket is removed."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        path = Path(json.loads((state_dir.path / NOTE_NAME).read_bytes())["socket"])
        if path.is_socket():
            _remove_socket(path)


def _remove_socket(path: Path) -> None:
    _remove(path)
    if path.parent.name.startswith(_TEMP_PREFIX):
        with suppress(OSError):
            path.parent.rmdir()


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _write_note(state_dir: StateDirectory, note: Mapping[str, object]) -> None:
    """Written whole or not at all; without it clients take the daemon for unreachable."""
    draft = state_dir.path / f"{NOTE_NAME}.tmp"
    try:
        draft.write_text(json.dumps(note) + "\n", encoding="utf-8")
        draft.replace(state_dir.path / NOTE_NAME)
    except OSError as error:
        _log.warning("control_socket_failed", reason=str(error.strerror))

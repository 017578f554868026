"""The HTTP server: a control socket always, a TCP port if asked for, and a note that says where they are.

The note is `control.json` in the state directory: `{"socket", "host", "port", "pid", "workflow"}`. Clients
read it, because the path of a Unix socket may be too long for the system, and a port may be any free one.

Each way in has an application and a server of its own on the daemon's event loop, each with its own bounds:
a crowd on the port cannot lock the operator out of the control socket, and no client can hold up the daemon.
"""

import asyncio
import errno
import json
import logging
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import anyio
import structlog
import uvicorn
from anyio import to_thread
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from symphony.api.access import CONTROL, Access, is_loopback
from symphony.api.app import create_app
from symphony.api.http import MAX_HEAD_BYTES
from symphony.api.interface import Operator, WebhookReceiver
from symphony.daemon.state_dir import StateDirectory, operator_token
from symphony.domain import Blame, Category, Failure, SymphonyError

NOTE_NAME: Final = "control.json"
MAX_CONNECTIONS = 64
EXCHANGE_S = 75.0
_IDLE_S: Final = 5
_GOODBYE_S: Final = 1
_MAX_PATH_BYTES: Final = 107
_BACKLOG: Final = 64
_PROBE_S: Final = 2.0
_TEMP_PREFIX: Final = "symphony-"
_log = structlog.get_logger(__name__)


@asynccontextmanager
async def serve_http(
    operator: Operator,
    state_dir: StateDirectory,
    *,
    host: str,
    port: int | None,
    environment: Mapping[str, str],
    workflow: Path | None = None,
    hooks: WebhookReceiver | None = None,
) -> AsyncIterator["Listeners"]:
    """Open the doors and answer on them while the body runs. Called under the instance lock.

    Raises:
        SymphonyError: `http_server`: the port or the token cannot be used; or what the body raised.
    """
    token, public = "", False
    if port is not None:
        token = await to_thread.run_sync(operator_token, state_dir, environment)
        public = not is_loopback(host)
    opened = open_listeners(state_dir, host=host, port=port, environment=environment, workflow=workflow)
    refused: SymphonyError | None = None
    with _logs():
        doors = await to_thread.run_sync(opened.__enter__)
        try:
            if doors.port is not None:
                _log.info("http_serving", host=host, port=doors.port, token_needed=public)
            servers = list(_servers(doors, operator, Access.tcp(host, token), hooks))
            async with anyio.create_task_group() as tasks:
                for server, door in servers:
                    tasks.start_soon(_serve, server, door)
                try:
                    yield doors
                except SymphonyError as error:
                    refused = error  # raised below, where no task group wraps it
                finally:
                    for server, _ in servers:
                        server.should_exit = True
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(opened.__exit__, None, None, None)
    if refused is not None:
        raise refused


# --- answering -------------------------------------------------------------------------------------------


def _servers(
    doors: "Listeners", operator: Operator, access: Access, hooks: WebhookReceiver | None
) -> Iterator[tuple[uvicorn.Server, socket.socket]]:
    """One for each way in; `access` is the rule of the TCP one, which alone has hooks."""
    if doors.control is not None:
        yield _server(create_app(operator, CONTROL)), doors.control
    if doors.tcp is not None:
        yield _server(create_app(operator, access, hooks)), doors.tcp


def _server(app: ASGIApp) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=_Exchange,
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_GOODBYE_S,
    )
    return _Server(config)


async def _serve(server: uvicorn.Server, door: socket.socket) -> None:
    """Answer until `should_exit` is set: it takes nothing new then, and lets answers go out for a moment."""
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[door])


class _Server(uvicorn.Server):
    """A server that leaves signals to the daemon. There is no setting for that."""

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Exchange(H11Protocol):
    """A connection on which a request and its answer take at most `EXCHANGE_S`, however slow the client is.

    The time counts from the connection or the last answer. This is a subclass because neither an application
    nor a setting can bound what happens outside of the application: a client that sends no or half a head
    has not reached it yet, and one that reads its answer slowly has left it. `limit_concurrency` refuses
    requests, and leaves the connections open on which none comes.
    """

    _deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._count()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._count()

    def _count(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(EXCHANGE_S, self.transport.abort)


class _Forward(logging.Handler):
    """Passes what uvicorn logs to our log.

    What a client did wrong, and which answers were cut off by the end, is logged for debugging only.
    """

    @override
    def emit(self, record: logging.LogRecord) -> None:
        raised = None if record.exc_info is None else record.exc_info[1]
        if isinstance(raised, Exception):
            _log.error("http_failed", reason=record.getMessage(), exc_info=record.exc_info)
        else:
            _log.debug("http_notice", reason=record.getMessage())


@contextmanager
def _logs() -> Iterator[None]:
    logger = logging.getLogger("uvicorn.error")
    forward = _Forward()
    before = logger.propagate
    logger.addHandler(forward)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(forward)
        logger.propagate = before


# --- listening -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Listening sockets. `control` is null where no Unix socket can be made, `tcp` where none is wanted."""

    control: socket.socket | None
    tcp: socket.socket | None

    @property
    def port(self) -> int | None:
        """The bound port."""
        return None if self.tcp is None else int(self.tcp.getsockname()[1])


@contextmanager
def open_listeners(
    state_dir: StateDirectory,
    *,
    host: str,
    port: int | None,
    environment: Mapping[str, str],
    workflow: Path | None = None,
) -> Iterator[Listeners]:
    """Bind what is wanted and write the note; everything is gone at the end. Called under the instance lock.

    `workflow` is whom the note names, so that a client of another one does not take the daemon for its own.

    Raises:
        SymphonyError: `http_server`: the port is taken, or the address is none of this machine.
    """
    with ExitStack() as stack:
        tcp = None if port is None else stack.enter_context(_listen_tcp(host, port))
        control, path = _listen_control(state_dir, environment, stack)
        doors = Listeners(control=control, tcp=tcp)
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


def control_socket_answers(state_dir: StateDirectory) -> bool:
    """Whether a living process listens on the control socket that the note names."""
    with suppress(OSError, ValueError, TypeError, KeyError), socket.socket(socket.AF_UNIX) as probe:
        path = json.loads((state_dir.path / NOTE_NAME).read_bytes())["socket"]
        probe.settimeout(_PROBE_S)
        probe.connect(path)
        return True
    return False


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

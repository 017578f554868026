"""The HTTP server: always a control socket, and a TCP port if one is configured or requested later.

`control.json` in the state directory tells clients their addresses: `{"socket", "host", "port", "pid",
"workflow"}`. The path of a Unix socket has a short limit, so the socket may be elsewhere, and the port may be
any free one. Each listener has its own application and server on the daemon's event loop, with its own
limits. So clients of the port cannot lock the operator out of the control socket, and no client can stop the
daemon.
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
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

import anyio
import structlog
import uvicorn
from anyio.abc import TaskGroup
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from symphony import to_thread
from symphony.api.access import Access
from symphony.api.app import create_app
from symphony.api.http import MAX_HEAD_BYTES
from symphony.api.interface import ConflictError, Operator, WebhookReceiver
from symphony.api.live import RESTART_DEADLINE, Changes
from symphony.api.sign_in import BrowserSignIn
from symphony.config import ServerSettings
from symphony.daemon.state_dir import StateDirectory, operator_token
from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.files import write_atomic

CONTROL_FILE: Final = "control.json"
MAX_CONNECTIONS = 64
EXCHANGE_S = 75.0
_KEEP_ALIVE_S: Final = 5
_SHUTDOWN_S: Final = 1
_MAX_PATH_BYTES: Final = 107
_BACKLOG: Final = 64
_PROBE_S: Final = 2.0
_TEMP_PREFIX: Final = "symphony-"
_LOOPBACK: Final = "127.0.0.1"
_OWN_NAME_LEADS_TO: Final = frozenset({_LOOPBACK, "::1", "localhost", "0.0.0.0", "::"})  # noqa: S104 - not bound here
"""Addresses that browsers reach through any name that ends with `.localhost`."""
_log = structlog.get_logger(__name__)


@asynccontextmanager
async def serve_http(
    operator: Operator,
    state_dir: StateDirectory,
    *,
    server: ServerSettings,
    environment: Mapping[str, str],
    changes: Changes,
    workflow: Path | None = None,
    webhooks: WebhookReceiver | None = None,
) -> AsyncIterator["Listeners"]:
    """Listen and answer while the body runs. The caller holds the instance lock.

    Webhooks are accepted only on the TCP port. `changes` is closed at the end, which ends its streams.

    Raises:
        SymphonyError: `http_server`: the port or the token cannot be used. Exceptions of the body are raised
            too.
    """
    sign_in = BrowserSignIn()
    token = ""
    if server.port is not None:
        token = await to_thread.run_sync(operator_token, state_dir, environment)
    opened = open_listeners(
        state_dir, host=server.host, port=server.port, environment=environment, workflow=workflow
    )
    error: SymphonyError | None = None
    with _forwarded_logs():
        listeners = await to_thread.run_sync(opened.__enter__)
        try:
            async with anyio.create_task_group() as tasks:
                servers = _Servers(
                    operator, state_dir, server, environment, changes, webhooks, sign_in, listeners, tasks
                )
                if listeners.control is not None:
                    servers.start(listeners.control, Access(sign_in=sign_in))
                if listeners.tcp is not None:
                    servers.start_tcp(token)
                try:
                    yield listeners
                except SymphonyError as raised:
                    error = raised  # raised below, where no task group wraps it
                finally:
                    servers.stop()
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(opened.__exit__, None, None, None)
    if error is not None:
        raise error


@dataclass(slots=True)
class _Servers:
    """One server for each listener."""

    operator: Operator
    state_dir: StateDirectory
    settings: ServerSettings
    environment: Mapping[str, str]
    changes: Changes
    webhooks: WebhookReceiver | None
    sign_in: BrowserSignIn
    listeners: "Listeners"
    tasks: TaskGroup
    running: list[uvicorn.Server] = field(default_factory=list)
    opening: anyio.Lock = field(default_factory=anyio.Lock)

    def start(self, listener: socket.socket, access: Access, receiver: WebhookReceiver | None = None) -> None:
        app = create_app(self.operator, access, receiver, changes=self.changes, open_port=self.open_port)
        server = server_of(app)
        self.running.append(server)
        self.tasks.start_soon(serve, server, listener)

    def start_tcp(self, token: str) -> None:
        host, listener = self.listeners.host, self.listeners.tcp
        assert host is not None and listener is not None  # noqa: S101, PT018 - the caller has opened it
        access = Access.tcp(host, token, self.sign_in, public_reads=self.settings.public_reads)
        self.start(listener, access, self.webhooks)
        _log.info("http_serving", host=host, port=self.listeners.port, token_needed=not access.public_reads)

    async def open_port(self) -> str:
        """See `api.interface.OpenPort`."""
        async with self.opening:
            if self.listeners.tcp is None:
                if not self.settings.on_demand:
                    raise ConflictError(
                        "on_demand_off",
                        "this daemon has no TCP port, and server.on_demand is false",
                        hint="set server.port or server.on_demand in WORKFLOW.md, and restart the daemon",
                    )
                token = await to_thread.run_sync(operator_token, self.state_dir, self.environment)
                await to_thread.run_sync(self.listeners.open_tcp)
                self.start_tcp(token)
        return self.listeners.address(self.sign_in.host)

    def stop(self) -> None:
        self.changes.close()  # a server waits for open responses, and a stream is one
        for server in self.running:
            server.should_exit = True


# --- uvicorn ---------------------------------------------------------------------------------------------


def server_of(app: ASGIApp) -> uvicorn.Server:
    """A server with the limits of the daemon; it leaves signals alone."""
    return _Server(
        uvicorn.Config(
            app,
            http=_LimitedConnection,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
    )


async def serve(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until `should_exit` is set, then briefly let open responses end."""
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that leaves signals to the daemon; uvicorn has no setting for that."""

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _LimitedConnection(H11Protocol):
    """An HTTP connection with a total time limit per request and response, and a limit of connections.

    The time counts from the connection or the last response; a stream of events restarts it with each event
    that the client reads. This must be a subclass. No application or setting can limit a client that sends an
    incomplete request head, which does not reach the application, or a client that reads its response slowly.
    `limit_concurrency` refuses requests, but keeps idle connections open.
    """

    _deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base
        super().connection_made(transport)
        self.app_state = {**self.app_state, RESTART_DEADLINE: self._restart_deadline}
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._restart_deadline()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._restart_deadline()

    def _restart_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(EXCHANGE_S, self.transport.abort)


class _ForwardHandler(logging.Handler):
    """Forwards uvicorn's log. Mistakes of clients and aborted responses become debug lines."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        raised = None if record.exc_info is None else record.exc_info[1]
        if isinstance(raised, Exception):
            _log.error("http_failed", reason=record.getMessage(), exc_info=record.exc_info)
        else:
            _log.debug("http_notice", reason=record.getMessage())


@contextmanager
def _forwarded_logs() -> Iterator[None]:
    logger = logging.getLogger("uvicorn.error")
    handler, propagate = _ForwardHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


# --- listeners -------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Listeners:
    """The listening sockets of a daemon, and `control.json`, which describes them.

    Attributes:
        state_dir: the directory of `control.json`.
        workflow: the workflow file, if clients should know it.
        control: the control socket; `None` if no Unix socket can be made.
        control_path: its path.
        tcp: the TCP port; `None` if there is none.
        host: the address of the TCP port.
    """

    state_dir: StateDirectory
    workflow: Path | None
    control: socket.socket | None = None
    control_path: Path | None = None
    tcp: socket.socket | None = None
    host: str | None = None

    @property
    def port(self) -> int | None:
        """The bound port."""
        return None if self.tcp is None else int(self.tcp.getsockname()[1])

    def address(self, own_name: str) -> str:
        """The address of the TCP port for a browser on this machine; uses `own_name` if that leads there."""
        host = own_name if self.host in _OWN_NAME_LEADS_TO else self.host or ""
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def open_tcp(self) -> None:
        """Bind a free port on the loopback interface.

        Raises:
            SymphonyError: `http_server`: it cannot be bound.
        """
        self.tcp, self.host = listen_tcp(_LOOPBACK, 0), _LOOPBACK
        self.describe()

    def close_tcp(self) -> None:
        """Close the TCP port if there is one."""
        if self.tcp is not None:
            self.tcp.close()

    def describe(self) -> None:
        """Write `control.json`. If that fails, clients cannot find the daemon, but it works."""
        content = {
            "socket": None if self.control_path is None else str(self.control_path),
            "host": self.host,
            "port": self.port,
            "pid": os.getpid(),
            "workflow": None if self.workflow is None else os.path.realpath(self.workflow),
        }
        file = self.state_dir.path / CONTROL_FILE
        try:
            write_atomic(file, json.dumps(content).encode() + b"\n")
        except OSError as error:
            _log.warning("control_socket_failed", reason=str(error.strerror))


@contextmanager
def open_listeners(
    state_dir: StateDirectory,
    *,
    host: str,
    port: int | None,
    environment: Mapping[str, str],
    workflow: Path | None = None,
) -> Iterator[Listeners]:
    """Bind the sockets and write `control.json`; remove all of them at the end.

    `control.json` names the `workflow`, so that a client of another workflow does not use this daemon.

    Raises:
        SymphonyError: `http_server`: the port is taken, or the address does not belong to this machine.
    """
    listeners = Listeners(state_dir=state_dir, workflow=workflow)
    with ExitStack() as stack:
        stack.callback(listeners.close_tcp)
        if port is not None:
            listeners.tcp, listeners.host = listen_tcp(host, port), host
        listeners.control, listeners.control_path = _listen_control(state_dir, environment, stack)
        listeners.describe()
        stack.callback(_remove, state_dir.path / CONTROL_FILE)
        yield listeners


def listen_tcp(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is a free one.

    Raises:
        SymphonyError: `http_server`: the port is taken, or the address does not belong to this machine.
    """
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        if isinstance(error, UnicodeError):  # from a name that cannot be encoded for a lookup
            reason = "no machine can have this name"
        else:
            reason = getattr(error, "strerror", None) or str(error)
        raise SymphonyError(
            Failure(
                category=Category.HTTP_SERVER,
                blame=Blame.HOST,
                message=f"cannot listen on {host} port {port}: {reason}",
                retryable=False,
                hint="give another --port (0 takes a free one), or see who has this one: ss -ltnp",
            )
        ) from error
    return listener


# --- the control socket ----------------------------------------------------------------------------------


def control_socket_answers(state_dir: StateDirectory) -> bool:
    """Whether a process listens on the control socket that `control.json` names."""
    with suppress(OSError, ValueError, TypeError, KeyError), socket.socket(socket.AF_UNIX) as probe:
        path = json.loads((state_dir.path / CONTROL_FILE).read_bytes())["socket"]
        probe.settimeout(_PROBE_S)
        probe.connect(path)
        return True
    return False


def _listen_control(
    state_dir: StateDirectory, environment: Mapping[str, str], stack: ExitStack
) -> tuple[socket.socket | None, Path | None]:
    """Bind in the first directory that works; the stack closes and removes the socket.

    Without a control socket the daemon works, but logs that clients cannot reach it.
    """
    with suppress(OSError, ValueError, TypeError, KeyError):
        # A killed daemon may have left its socket in a temporary directory.
        left = Path(json.loads((state_dir.path / CONTROL_FILE).read_bytes())["socket"])
        if left.is_socket():
            _remove_socket(left)
    reason = "no place is private"
    for place in (_in_runtime_directory, _in_state_directory, _in_temp_directory):
        path = None
        try:
            path = place(state_dir, environment)
            if path is not None:
                listener = _bind_private(path)
                stack.callback(_remove_socket, path)
                stack.enter_context(listener)
                return listener, path
        except OSError as error:
            reason = error.strerror or str(error)
        if path is not None:
            _remove_socket(path)
    _log.warning("control_socket_failed", reason=reason)
    return None, None


def _bind_private(path: Path) -> socket.socket:
    """A socket for its owner only; other users cannot reach it, because its directory is private."""
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _in_runtime_directory(state_dir: StateDirectory, environment: Mapping[str, str]) -> Path | None:
    """A path below `$XDG_RUNTIME_DIR`, if that is a private directory of this user."""
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if not runtime.startswith("/") or not _is_private(Path(runtime)):
        return None
    directory = Path(runtime) / "symphony"
    directory.mkdir(mode=0o700, exist_ok=True)
    # Two state directories may have the same name; the digest distinguishes them.
    digest = sha256(os.fsencode(os.path.realpath(state_dir.path))).hexdigest()[:8]
    return directory / f"{state_dir.path.name[:40]}-{digest}.sock" if _is_private(directory) else None


def _in_state_directory(state_dir: StateDirectory, _: Mapping[str, str]) -> Path | None:
    return state_dir.path / "control.sock" if _is_private(state_dir.path) else None


def _in_temp_directory(_: StateDirectory, __: Mapping[str, str]) -> Path:
    return Path(tempfile.mkdtemp(prefix=_TEMP_PREFIX)) / "control.sock"


def _is_private(directory: Path) -> bool:
    """Whether it is a real directory of this user that no other user may enter."""
    try:
        facts = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077


def _remove_socket(path: Path) -> None:
    _remove(path)
    if path.parent.name.startswith(_TEMP_PREFIX):
        with suppress(OSError):
            path.parent.rmdir()


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)

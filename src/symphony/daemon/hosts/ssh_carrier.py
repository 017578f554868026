"""Reaches the machines of `worker.ssh_hosts` by OpenSSH's client, over one connection for each.

The first use of a host starts a master connection, whose sessions start in a fraction of the time. Host keys
are checked by the user's configuration; passwords cannot be asked for. Command lines contain nothing secret:
secrets are sent as input.
"""

import re
import shlex
import signal
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from typing_extensions import override

from symphony import to_thread
from symphony.config import SshSettings, WorkerSettings
from symphony.daemon.carriers import MAX_SAID_CHARS, Carrier, CarrierContext, RemoteHost, host_failure
from symphony.daemon.hosts.socket_directory import SocketDirectory
from symphony.domain import Failure, SymphonyError, one_line
from symphony.processes.base import Completed, HostProcess

CONNECT_S: Final = 10
_OPTIONS: Final = (
    "-T",
    *("-o", "BatchMode=yes"),
    *("-o", f"ConnectTimeout={CONNECT_S}"),
    *("-o", "ServerAliveInterval=5"),
    *("-o", "ServerAliveCountMax=2"),
    *("-o", "ClearAllForwardings=yes"),
    *("-o", "ForwardAgent=no"),
    *("-o", "ForwardX11=no"),
    *("-o", "PermitLocalCommand=no"),
    *("-o", "LogLevel=ERROR"),
)
_ADDRESS: Final = re.compile(r"(?P<host>.*?)(?::(?P<port>[0-9]{1,5}))?")
_MASTER_POLL_S: Final = 0.05
_REFUSED_S: Final = 1.0


def destination_of(name: str) -> tuple[str, ...]:
    """The words that name a host of `worker.ssh_hosts` to the client; the address is the last one."""
    found = _ADDRESS.fullmatch(name)
    assert found is not None  # noqa: S101 - it matches everything
    port = () if found["port"] is None else ("-p", found["port"])
    return (*port, found["host"].replace("[", "").replace("]", ""))


def ssh_failure(host: str, stderr: str) -> Failure:
    """Why the ssh client could not reach a host, from what it printed."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip().strip("@")]
    text, last = " ".join(lines), one_line(lines[-1] if lines else "no reason given", MAX_SAID_CHARS)
    *port, address = destination_of(host)
    there = shlex.join((*port, address))
    if "IDENTIFICATION HAS CHANGED" in text:
        known = address.rpartition("@")[2]
        known = shlex.quote(f"[{known}]:{port[-1]}" if port else known)
        hint = f"find out why; if it is right, remove the old key: `ssh-keygen -R {known}`, and log in once"
        return host_failure(host, "its key is not the known one", hint=hint)
    if "Host key verification failed" in text:
        hint = f"log in once as the user of the daemon, and compare the key: `ssh {there} true`"
        return host_failure(host, "its key is not known here", hint=hint)
    if "Permission denied" in text:
        hint = f"a password cannot be asked: see that `ssh -o BatchMode=yes {there} true` works"
        return host_failure(host, f"it refuses the login ({last})", hint=hint)
    hint = f"see that `ssh -o BatchMode=yes {there} true` works as the user of the daemon"
    return host_failure(host, f"it cannot be reached ({last})", hint=hint)


class SshHost(RemoteHost):
    """One host, over a master connection whose socket is in the directory."""

    def __init__(self, name: str, carrier: "SshCarrier", directory: SocketDirectory, socket: str) -> None:
        settings, (*port, address) = carrier.settings, destination_of(name)
        self._directory = directory
        self._socket = directory.path / socket
        self._command = (settings.command, *_OPTIONS, *settings.options)
        self._port = tuple(port)
        super().__init__(
            name=name,
            client=(*self._command, "-o", "ControlMaster=no", "-S", str(self._socket), *port),
            address=address,
            remote_root=settings.remote_root,
            remote_python=settings.python or f"{settings.remote_root}/venv/bin/python",
            install_hint=f"run `symphony hosts prepare {shlex.quote(name)}`",
            local=carrier.context.local,
            env=carrier.env,
        )
        self._lock = anyio.Lock()
        self._master: HostProcess | None = None
        self._refused: tuple[float, Failure] | None = None

    @override
    def argv(self, command: str) -> tuple[str, ...]:
        """The command line; the destination follows `--`, so that it is never read as an option."""
        return (*self.client, "--", self.address, command)

    @override
    def lost(self, done: Completed) -> Failure:
        return ssh_failure(self.name, done.stderr.decode("utf-8", "replace"))

    @override
    async def connect(self) -> None:
        """Make sure that there is a master connection.

        Raises:
            SymphonyError: `host_unavailable`, with a hint.
        """
        async with self._lock:
            if self._master is not None and self._master.exit_code is None:
                return
            if self._refused is not None and anyio.current_time() < self._refused[0]:
                raise SymphonyError(self._refused[1])
            stderr = self._socket.with_suffix(".stderr")

            def clear() -> None:
                self._directory.create()
                self._socket.unlink(missing_ok=True)
                stderr.unlink(missing_ok=True)

            try:
                await to_thread.run_sync(clear)
            except OSError as error:
                text, hint = f"no directory for its connection: {error}", "free space in /tmp"
                raise SymphonyError(host_failure(self.name, text, hint=hint)) from error
            master = ("-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-S", str(self._socket), "-N")
            argv = (*self._command, *master, *self._port, "--", self.address)
            try:
                child = await self.local.spawn(argv, cwd=Path("/"), env=self.env, stderr_path=stderr)
            except OSError as error:
                hint = "install OpenSSH's client, or name it in worker.ssh.command"
                raise SymphonyError(
                    host_failure(self.name, f"ssh cannot be started: {error}", hint=hint)
                ) from error
            try:
                with anyio.move_on_after(CONNECT_S * 2):
                    while child.exit_code is None and not await to_thread.run_sync(self._socket.exists):
                        with anyio.move_on_after(_MASTER_POLL_S):
                            await child.wait()
                if child.exit_code is None and await to_thread.run_sync(self._socket.exists):
                    self._master = child
                    return
            finally:
                if self._master is not child:
                    await self._end(child)
            failure = ssh_failure(
                self.name, await to_thread.run_sync(partial(stderr.read_text, errors="replace"))
            )
            # Runs that wait for this connection share its result.
            self._refused = (anyio.current_time() + _REFUSED_S, failure)
            raise SymphonyError(failure)

    async def close(self) -> None:
        """End the master connection, and every session over it."""
        master, self._master = self._master, None
        if master is not None:
            await self._end(master)

    @staticmethod
    async def _end(child: HostProcess) -> None:
        with anyio.CancelScope(shield=True):
            if child.exit_code is None:
                child.signal(signal.SIGTERM, (child.identity,))
                with anyio.move_on_after(1):
                    await child.wait()
            if child.exit_code is None:
                child.signal(signal.SIGKILL, (child.identity,))
                await child.wait()


class SshCarrier(Carrier[SshSettings]):
    """The machines of `worker.ssh_hosts`."""

    settings_type = SshSettings
    inherits = "SSH_AUTH_SOCK|KRB5CCNAME"

    def __init__(self, settings: SshSettings, names: tuple[str, ...], context: CarrierContext) -> None:
        super().__init__(settings, names, context)
        self._hosts: dict[str, SshHost] = {}
        self._directory = SocketDirectory()

    @classmethod
    @override
    def names_in(cls, worker: WorkerSettings, settings: SshSettings) -> tuple[str, ...]:
        return worker.ssh_hosts

    @override
    def host(self, name: str) -> SshHost:
        if name not in self._hosts:
            self._hosts[name] = SshHost(name, self, self._directory, f"{len(self._hosts)}")
        return self._hosts[name]

    @classmethod
    @override
    def unprepared(cls, settings: SshSettings) -> tuple[str, str] | None:
        if settings.python is None:
            return None
        return (
            "worker.ssh.python names an installation, which is not changed from here",
            "leave the key out, or install this release there yourself",
        )

    @override
    async def aclose(self) -> None:
        for host in self._hosts.values():
            await host.close()
        await to_thread.run_sync(self._directory.remove)

"""Reaches the machines of `worker.ssh_hosts` by OpenSSH's client, over one connection for each.

The first use of a host starts a master connection, whose sessions start in a fraction of the time. Keys of
hosts are checked as the user's configuration says; a password cannot be asked. Nothing secret is in a command
line: what a host needs is sent as input.
"""

import re
import shlex
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from symphony import to_thread
from symphony.config import SshSettings, WorkerSettings
from symphony.daemon.hosts.remote_host import (
    COMMAND_TIMEOUT_MS,
    MAX_SAID_CHARS,
    RemoteRun,
    Wanted,
    host_failure,
    run_client,
)
from symphony.daemon.hosts.socket_directory import SocketDirectory
from symphony.domain import Failure, SymphonyError, one_line
from symphony.processes.base import Completed, Host, HostProcess

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
_INHERITED: Final = re.compile(r"PATH|HOME|USER|LOGNAME|LANG|LC_ALL|TMPDIR|SSH_AUTH_SOCK|KRB5CCNAME")
_ADDRESS: Final = re.compile(r"(?P<host>.*?)(?::(?P<port>[0-9]{1,5}))?")
_SSH_FAILED: Final = 255
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


class SshHost:
    """One host (`RemoteHost`). Made by `SshHosts`, which counts its `uses`."""

    def __init__(
        self,
        name: str,
        settings: SshSettings,
        *,
        host: Host,
        environment: Mapping[str, str],
        directory: SocketDirectory,
        socket: str,
    ) -> None:
        self.name = name
        self.settings = settings
        self.destination = destination_of(name)
        self.node_id = None
        self.remote_root = settings.remote_root
        self.remote_python = settings.python or f"{settings.remote_root}/venv/bin/python"
        self.install_hint = f"run `symphony hosts prepare {shlex.quote(name)}`"
        self.local = host
        self.env = environment
        self.uses = 0
        self._directory = directory
        self._socket = directory.path / socket
        self._lock = anyio.Lock()
        self._master: HostProcess | None = None
        self._refused: tuple[float, Failure] | None = None

    @property
    def client(self) -> tuple[str, ...]:
        """The client with its options, over the master connection."""
        shared = ("-o", "ControlMaster=no", "-S", str(self._socket))
        return (self.settings.command, *_OPTIONS, *self.settings.options, *shared)

    def argv(self, command: str) -> tuple[str, ...]:
        """The command line that runs a shell command on the host."""
        return (*self.client, *self._words, command)

    @property
    def _words(self) -> tuple[str, ...]:
        """The destination behind `--`: it is no option, whatever it is."""
        *port, address = self.destination
        return (*port, "--", address)

    @property
    def git_ssh_command(self) -> str:
        """`GIT_SSH_COMMAND` for `git_address`."""
        return shlex.join((*self.client, *self.destination[:-1]))

    def git_address(self, path: str) -> str:
        """The address of a repository on the host, for git with `git_ssh_command`."""
        name = self.destination[-1]
        return f"[{name}]:{path}" if ":" in name else f"{name}:{path}"

    async def connect(self) -> None:
        """Have a master connection.

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
            argv = (self.settings.command, *_OPTIONS, *self.settings.options, *master, *self._words)
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
            # Runs that wait for this connection need not try it one after the other.
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

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_ms: int = COMMAND_TIMEOUT_MS
    ) -> Completed:
        """Run a shell command there; the caller judges its exit code, except that of ssh itself.

        Raises:
            SymphonyError: `host_unavailable`: the host cannot be reached, or did not answer in time.
        """
        await self.connect()
        done = await run_client(self, command, stdin=stdin, timeout_ms=timeout_ms)
        if done.exit_code == _SSH_FAILED:
            raise SymphonyError(ssh_failure(self.name, done.stderr.decode("utf-8", "replace")))
        return done


class SshHosts:
    """The hosts of one daemon. Call `aclose` when it is no longer used.

    Args:
        host: where ssh clients run: this machine.
        environment: variables of the daemon.
    """

    def __init__(self, host: Host, environment: Mapping[str, str]) -> None:
        self._host = host
        self._environment = {name: value for name, value in environment.items() if _INHERITED.fullmatch(name)}
        self._hosts: dict[tuple[str, SshSettings], SshHost] = {}
        self._made = 0
        self._kept: WorkerSettings | None = None
        self._directory = SocketDirectory()

    async def aclose(self) -> None:
        """End the connections."""
        with anyio.CancelScope(shield=True):
            for host in self._hosts.values():
                await host.close()
            await to_thread.run_sync(self._directory.remove)

    def get(self, name: str, settings: WorkerSettings) -> SshHost:
        """The host of this name, by these settings."""
        key = (name, settings.ssh)
        if key not in self._hosts:
            self._made += 1
            self._hosts[key] = SshHost(
                name,
                settings.ssh,
                host=self._host,
                environment=self._environment,
                directory=self._directory,
                socket=f"{self._made}",
            )
        return self._hosts[key]

    async def keep(self, settings: WorkerSettings) -> None:
        """End the connections of all other settings, each with its last use."""
        self._kept = settings
        for host in tuple(self._hosts.values()):
            await self._release(host)

    @asynccontextmanager
    async def place(
        self, settings: WorkerSettings, wanted: Wanted, on_wait: Callable[[str], None]
    ) -> AsyncIterator[SshHost]:
        """The host that the scheduler chose."""
        del on_wait  # the scheduler counts the slots
        async with self.visit(settings, wanted.host) as host:
            yield host

    @asynccontextmanager
    async def visit(self, settings: WorkerSettings, name: str) -> AsyncIterator[SshHost]:
        """The host of this name. Raises `SymphonyError`: the settings do not name it."""
        if name not in settings.ssh_hosts:
            failure = host_failure(one_line(name, MAX_SAID_CHARS), "worker.ssh_hosts does not name it")
            raise SymphonyError(failure)
        host = self.get(name, settings)
        host.uses += 1
        try:
            yield host
        finally:
            host.uses -= 1
            await self._release(host)

    async def _release(self, host: SshHost) -> None:
        kept, key = self._kept, (host.name, host.settings)
        if host.uses or kept is None or self._hosts.get(key) is not host:
            return
        if kept.ray.address is None and host.name in kept.ssh_hosts and host.settings == kept.ssh:
            return
        del self._hosts[key]
        await host.close()

    async def names(self, settings: WorkerSettings) -> tuple[str, ...]:
        """Those of the settings."""
        return settings.ssh_hosts

    async def is_gone(self, settings: WorkerSettings, run: RemoteRun) -> bool:
        """Nothing but the lease tells."""
        del settings, run
        return True

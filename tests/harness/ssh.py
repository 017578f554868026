"""Real OpenSSH servers for one key of this user, on this machine or in a network namespace."""

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from harness.real import require_program
from harness.shell import word

__all__ = ["SshServer", "dead_server", "namespace", "plain_python", "processes", "ssh_server", "workers"]

_PORTS_TRIED = 5


@dataclass(frozen=True)
class SshServer:
    """A server, and what reaches it without the user's own configuration."""

    folder: Path
    address: str
    port: int
    known: Path

    @property
    def home(self) -> Path:
        """The home of the user there."""
        return self.folder / "home"

    @property
    def root(self) -> Path:
        """`worker.ssh.remote_root` there."""
        return self.home / "work"

    @property
    def name(self) -> str:
        """As in `worker.ssh_hosts`."""
        return f"{self.address}:{self.port}"

    @property
    def options(self) -> list[str]:
        """`worker.ssh.options`."""
        known = f'UserKnownHostsFile="{self.known}"'
        return ["-F", "none", "-i", str(self.known.with_name("user")), "-o", known]

    @property
    def client(self) -> Sequence[str]:
        """The command line that reaches it, without a command."""
        return ("ssh", "-T", "-p", str(self.port), *self.options, "-o", "BatchMode=yes", self.address)

    def section(self, python: str, **settings: Any) -> dict[str, Any]:
        """`worker.ssh` of a workflow."""
        return {"options": self.options, "python": plain_python(python), "remote_root": "work", **settings}


@cache
def plain_python(python: str) -> str:
    """A path that `worker.ssh.python` takes, wherever this Python is: it may have no space and no quote."""
    if re.fullmatch(r"[\w.+/-]+", python, re.ASCII):
        return python
    place = TemporaryDirectory(prefix="symphony-python-", dir="/var/tmp")
    atexit.register(place.cleanup)
    program = Path(place.name, "python")
    program.write_text(f'#!/bin/sh\nexec {word(python)} "$@"\n')
    program.chmod(0o755)
    return str(program)


@contextmanager
def ssh_server(
    folder: Path,
    address: str = "127.0.0.1",
    *,
    inside: Sequence[str] = (),
    like: SshServer | None = None,
    config: Mapping[str, str] = {},
) -> Iterator[SshServer]:
    """A server that `inside` starts; `config` are further lines of its configuration.

    With `like`, the options of another server reach this one too.
    """
    server = require_program("sshd", "Debian: openssh-server")
    require_program("ssh", "Debian: openssh-client")
    known = _make_keys(folder, like)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    path = f"{word(sys.base_prefix)}/bin:$PATH"  # the Python that runs the tests is the host's too
    options = {
        "HostKey": f'"{folder / "host"}"',
        "AuthorizedKeysFile": f'"{folder / "user.pub"}"',
        "PidFile": "none",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "UsePAM": "no",
        "ForceCommand": f'export HOME={word(folder / "home")} PATH={path}; cd; eval "$SSH_ORIGINAL_COMMAND"',
        **config,
    }
    file = folder / "config"
    command = [*inside, server, "-D", "-e", "-f", str(file)]
    for _ in range(_PORTS_TRIED):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        listen = {"ListenAddress": f"{address}:{port}"}
        file.write_text("".join(f"{key} {value}\n" for key, value in {**options, **listen}.items()))
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stderr is not None
            said = process.stderr.readline()
            if "Address already in use" in said:  # another program took the port meanwhile
                continue
            try:
                assert "Server listening" in said
                yield _server_at(folder, address, port, known)
            finally:
                process.terminate()
        return
    raise AssertionError("no port is free for long enough")


@contextmanager
def dead_server(folder: Path, like: SshServer) -> Iterator[SshServer]:
    """A machine that is there, where no server listens; nothing else can meanwhile."""
    known = _make_keys(folder, like)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield _server_at(folder, "127.0.0.1", taken.getsockname()[1], known)


def _make_keys(folder: Path, like: SshServer | None) -> Path:
    """The keys of a server and of its user in its folder; returns the file of known keys."""
    (folder / "home").mkdir(parents=True, exist_ok=True)
    for name in ("host", "user"):
        if like is not None:
            shutil.copy(like.folder / name, folder)
            shutil.copy(like.folder / f"{name}.pub", folder)
        elif not (folder / name).exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    return folder / "known" if like is None else like.known


def _server_at(folder: Path, address: str, port: int, known: Path) -> SshServer:
    with known.open("a") as file:
        file.write(f"[{address}]:{port} {(folder / 'host.pub').read_text()}")
    return SshServer(folder, address, port, known)


@contextmanager
def namespace(name: str) -> Iterator[str]:
    """A network namespace with a cable to this one; yields its address. The cable's end here has its name.

    The addresses depend on the process: tests that run at the same time have others, and so has what a killed
    one left.
    """
    pid = os.getpid()
    net = f"10.{200 + pid // 250 % 50}.{pid % 250}"
    plan = [
        f"ip netns add {name}",
        f"ip link add {name} type veth peer name eth0 netns {name}",
        f"ip address add {net}.1/30 dev {name}",
        f"ip link set {name} up",
        f"ip -n {name} address add {net}.2/30 dev eth0",
        f"ip -n {name} link set eth0 up",
    ]
    require_program("ip", "Debian: iproute2")
    try:
        for line in plan:
            if subprocess.run(line.split(), check=False).returncode != 0:
                pytest.skip("no network namespaces here: they take root")
        yield f"{net}.2"
    finally:
        # The server of a connection that was cut waits for its client for a quarter of an hour.
        left = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True)
        for process in left.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        subprocess.run(["ip", "link", "delete", name], check=False)
        subprocess.run(["ip", "netns", "delete", name], check=False)


def processes(*words: str) -> list[psutil.Process]:
    """Those whose command line has all these words."""
    found = []
    for one in psutil.process_iter():
        try:
            line = one.cmdline()
        except psutil.Error:
            continue
        if all(any(word in part for part in line) for word in words):
            found.append(one)
    return found


def workers(server: SshServer) -> list[psutil.Process]:
    """The worker programs on a host of this test."""
    found = processes("worker", "--stdio")
    return [one for one in found if one.name() != "ssh" and str(server.root) in _environment(one)]


def _environment(process: psutil.Process) -> str:
    try:
        return process.environ().get("SYMPHONY_STATE_DIR", "")
    except psutil.Error:
        return ""

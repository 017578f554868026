"""Container images without a registry and without a daemon for them: built by buildah, run by systemd-nspawn.

What an image says of itself (user, variables, command, health check) is read from it, so that a test runs
what a container engine would run, with the restrictions of deploy/docker/compose.yaml: no capability, no new
privileges, a read-only root, /tmp in memory.
"""

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from harness.project import Daemon, until

__all__ = ["BASE_VARIABLE", "Builder", "Container", "Image"]

BASE_VARIABLE = "SYMPHONY_TEST_BASE"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_BUILD_S, _STEP_S = 600.0, 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image, mounted at `root`; `config` is what it says of itself, in Docker's words."""

    root: Path
    config: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.config["Env"])

    @property
    def ids(self) -> tuple[int, int]:
        user, group = self.config["User"].split(":")
        return int(user), int(group)


class Builder:
    """Builds below one directory, and leaves nothing mounted there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = ("--root", str(folder / "store"), "--runroot", str(folder / "run"))

    def buildah(self, *arguments: str, timeout_s: float = _STEP_S) -> str:
        done = subprocess.run(
            ["buildah", *self._store, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, (
            f"buildah {' '.join(arguments)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
        return done.stdout.strip()

    def base(self, tree: Path) -> str:
        """An image made of a tree of files, which is a directory or an archive."""
        name = "localhost/base:1"
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, str(tree), "/", timeout_s=_BUILD_S)
        self.buildah("commit", "--quiet", "--disable-compression", container, name, timeout_s=_BUILD_S)
        self.buildah("rm", container)
        return name

    def build(self, context: Path, dockerfile: Path, **arguments: str) -> Image:
        """Build with these build arguments; it may use the machine's network and trust what it trusts."""
        pip = self._folder / "pip.conf"
        pip.write_text("\n".join(["[global]", f"cert = {_CERTIFICATES}", *_pip_indexes()]), encoding="utf-8")
        self.buildah(
            *("bud", "--isolation", "chroot", "--network", "host", "--format", "docker", "--layers=false"),
            *("--pull-never", "--ignorefile", f"{dockerfile}.dockerignore", "--file", str(dockerfile)),
            *("--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro", "--volume", f"{pip}:/etc/pip.conf:ro"),
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            *("--disable-compression", "--tag", "localhost/built:1", str(context)),
            timeout_s=_BUILD_S,
        )
        told = json.loads(self.buildah("inspect", "--type", "image", "localhost/built:1"))
        container = self.buildah("from", "--pull-never", "localhost/built:1")
        return Image(root=Path(self.buildah("mount", container)), config=told["Docker"]["config"])

    def close(self) -> None:
        self.buildah("umount", "--all")
        # The store mounts its own directory upon itself, and nothing ever takes that away.
        subprocess.run(["umount", "--lazy", str(self._folder / "store" / "overlay")], check=False)
        shutil.rmtree(self._folder)


def _pip_indexes() -> list[str]:
    """Where this machine's pip looks for packages, if it is told where."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return [f"index-url = {told}"] if told else []


class Container:
    """How one container of an image is run: what is mounted where, and further variables."""

    def __init__(self, image: Image, mounts: Mapping[str, Path], environment: Mapping[str, str]) -> None:
        self.image = image
        self._mounts = mounts
        self._environment = {**image.environment, **environment}

    @contextmanager
    def running(self, log: Path, *command: str) -> Iterator["Running"]:
        """The image's own command, or another one for its entry point; killed at the end if it is there."""
        words = [*self.image.config["Entrypoint"], *(command or self.image.config["Cmd"])]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*self._nspawn(), *words], stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
            )
        try:
            yield Running(container=self, process=process, log=log)
        finally:
            if process.poll() is None:  # what runs in it would outlive systemd-nspawn
                for one in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):  # they end with the first one
                        one.kill()
            process.wait(_STEP_S)

    def run(self, log: Path, *command: str) -> tuple[int, str]:
        """Run a command of the entry point to its end: exit code, and all that it said."""
        with self.running(log, *command) as started:
            code = started.process.wait(_STEP_S)
        return code, log.read_text(encoding="utf-8")

    def _nspawn(self) -> list[str]:
        return [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network"),
            *(f"--machine=symphony-{uuid.uuid4().hex[:12]}", f"--directory={self.image.root}"),
            *("--read-only", "--tmpfs=/tmp:mode=1777", "--console=pipe", "--kill-signal=SIGTERM"),
            *("--drop-capability=all", "--no-new-privileges=yes", "--suppress-sync=yes"),
            *(f"--user={_name_of(self.image)}", f"--chdir={self.image.config['WorkingDir']}"),
            *(f"--bind={path}:{place}" for place, path in self._mounts.items()),
            *(f"--setenv={name}={value}" for name, value in self._environment.items()),
        ]

    def inside(self, pid: int, *command: str) -> subprocess.CompletedProcess[str]:
        """Another program beside process `pid`, as the image's user: what `docker exec` does."""
        user, group = self.image.ids
        return subprocess.run(
            [
                *("nsenter", f"--target={pid}", "--mount", "--pid", "--ipc", "--uts", "--net", "--root"),
                *(f"--wdns={self.image.config['WorkingDir']}", f"--setgid={group}", f"--setuid={user}"),
                *("env", "-i", *(f"{name}={value}" for name, value in self._environment.items())),
                *command,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=_STEP_S,
            stdin=subprocess.DEVNULL,
        )


def _name_of(image: Image) -> str:
    """The user of an image by name, which is what systemd-nspawn wants."""
    entries = (
        line.split(":") for line in (image.root / "etc/passwd").read_text(encoding="utf-8").splitlines()
    )
    return next(entry[0] for entry in entries if entry[2] == str(image.ids[0]))


def _name(process: psutil.Process) -> str | None:
    """`None` for one that has ended."""
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else process.name()
    except psutil.NoSuchProcess:
        return None


@dataclass
class Running(Daemon):
    """A container that runs, and what the program in it logged."""

    container: Container

    def processes(self) -> list[psutil.Process]:
        """All in it, the init first."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [one for one in found if _name(one) not in {None, "systemd-nspawn"}]

    def init(self) -> psutil.Process:
        """Its first process."""
        return until(
            lambda: next((one for one in self.processes() if _name(one) == "tini"), None),
            lambda: f"no init in it:\n{self.log.read_text(encoding='utf-8')}",
        )

    def inside(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return self.container.inside(self.init().pid, *command)

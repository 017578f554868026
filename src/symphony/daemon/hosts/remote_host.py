"""Another machine that carries runs out, however it is reached: by ssh, or through Ray."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from symphony.config import WorkerSettings
from symphony.domain import Blame, Category, Failure, SymphonyError, one_line
from symphony.processes.base import Completed, Host

COMMAND_TIMEOUT_MS: Final = 60_000
NO_GIT, NO_PYTHON, NO_ROOT = 91, 92, 93
"""Exit codes of the scripts that are run on a host."""
_MAX_DIGITS: Final = 15
MAX_SAID_CHARS: Final = 300
"""How much is shown of what a program or another machine says."""


def host_failure(host: str, message: str, *, hint: str | None = None) -> Failure:
    """The failure of a host that cannot be used now."""
    return Failure(
        category=Category.HOST_UNAVAILABLE, blame=Blame.HOST, message=f"{host}: {message}", hint=hint
    )


def said(done: Completed) -> str:
    """What a command wrote to stderr, on one line."""
    return one_line(done.stderr.decode("utf-8", "replace"), MAX_SAID_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a run asks of its host.

    Attributes:
        host: the one that the scheduler chose.
        last_host: the one that has the workspace.
        labels: those that the agent asks for, where the carrier knows labels.
    """

    issue_id: str
    host: str
    last_host: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


class RemoteRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was begun on a host, and whose end is not known.

    `node_id` names the life of the machine, where the carrier knows one.
    """

    run_id: str
    issue_id: str
    host: str
    lease_ms: int
    node_id: str | None = None


class RemoteHost(Protocol):
    """A machine, and the way to it."""

    @property
    def name(self) -> str:
        """As people know it."""
        ...

    @property
    def node_id(self) -> str | None:
        """As in `RemoteRun`."""
        ...

    @property
    def local(self) -> Host:
        """Where the clients run that lead there: this machine."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """All variables of a client."""
        ...

    @property
    def remote_root(self) -> str:
        """The directory of this daemon there, absolute or relative to the home."""
        ...

    @property
    def remote_python(self) -> str:
        """Has this release; relative to the home if there is a slash in it, else looked up in the path."""
        ...

    @property
    def install_hint(self) -> str:
        """How this release gets there."""
        ...

    @property
    def git_ssh_command(self) -> str:
        """`GIT_SSH_COMMAND` for `git_address`."""
        ...

    async def connect(self) -> None:
        """Have a connection; raises as `run` does."""
        ...

    def git_address(self, path: str) -> str:
        """The address of a repository there, for git with `git_ssh_command`."""
        ...

    def argv(self, command: str) -> tuple[str, ...]:
        """The command line of a client that runs a shell command there, with its own stdin and stdout."""
        ...

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_ms: int = COMMAND_TIMEOUT_MS
    ) -> Completed:
        """Run a shell command there; the caller judges its exit code.

        Raises:
            SymphonyError: `host_unavailable`: the host cannot be reached, or did not answer in time.
        """
        ...


class HostCarrier(Protocol):
    """Leads to hosts. All raise `SymphonyError`, `host_unavailable`, with a hint."""

    def place(
        self, settings: WorkerSettings, wanted: Wanted, on_wait: Callable[[str], None]
    ) -> AbstractAsyncContextManager[RemoteHost]:
        """A host for one run, once there is room. `on_wait` is told why there is none yet, for people."""
        ...

    def visit(self, settings: WorkerSettings, name: str) -> AbstractAsyncContextManager[RemoteHost]:
        """The host of this name, apart from a run."""
        ...

    async def keep(self, settings: WorkerSettings) -> None:
        """These settings are in force: connections by others end, each with its last use. Never raises."""
        ...

    async def names(self, settings: WorkerSettings) -> tuple[str, ...]:
        """The hosts that there are now."""
        ...

    async def is_gone(self, settings: WorkerSettings, run: RemoteRun) -> bool:
        """Whether nothing speaks against the end of a run whose lease is over."""
        ...


# --- scripts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """Where things are on a host, with absolute paths.

    Attributes:
        root: the directory of this daemon there.
        python: runs the worker.
        clock_s: its clock, in seconds since 1970; `None` if it did not say so.
    """

    root: str
    python: str
    clock_s: int | None


def place_script(host: RemoteHost, *, needs_git: bool, further: Sequence[str] = ()) -> str:
    """A script that makes the directory of this daemon, and prints where things are; see `read_place`."""
    lines = [
        "umask 077",
        "echo; echo symphony-host",
        f'cd "$HOME" || exit {NO_ROOT}',
        f"python={host.remote_python}",
        'case "$python" in /*) ;; */*) python="$HOME/$python" ;; *) python="$(command -v "$python")" ;; esac',
        f"mkdir -p {host.remote_root}/state && cd {host.remote_root} || exit {NO_ROOT}",
        *((f"command -v git >/dev/null 2>&1 || exit {NO_GIT}",) if needs_git else ()),
        f'[ -x "$python" ] || exit {NO_PYTHON}',
        'pwd -P; echo "$python"; date +%s',
        *further,
    ]
    return "\n".join(lines) + "\n"


def read_place(output: str) -> tuple[HostPlace, list[str]]:
    """What a `place_script` printed, and the lines that its further commands printed."""
    root, python, clock, *rest = [*map(one_line, output.split("\n")), "", "", ""]
    return HostPlace(root=root, python=python, clock_s=read_number(clock)), [line for line in rest if line]


def read_number(text: str) -> int | None:
    """The number that a host printed; `None` for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


async def run_client(host: RemoteHost, command: str, *, stdin: bytes, timeout_ms: int) -> Completed:
    """Run a client of the host until it ends; the caller judges its exit code.

    Raises:
        SymphonyError: `host_unavailable`: it cannot be started, or did not end in time.
    """
    argv = host.argv(command)
    try:
        done = await host.local.run(argv, env=host.env, timeout_ms=timeout_ms, stdin=stdin, supervised=False)
    except OSError as error:
        raise SymphonyError(host_failure(host.name, f"{argv[0]} cannot be started: {error}")) from error
    if done.timed_out:
        raise SymphonyError(host_failure(host.name, f"no answer within {timeout_ms / 1_000:g} s"))
    return done


async def run_script(host: RemoteHost, script: str, *, timeout_ms: int = COMMAND_TIMEOUT_MS) -> str:
    """What a `place_script` printed behind its first line `symphony-host`.

    A profile that prints text prints it before that line.

    Raises:
        SymphonyError: `host_unavailable`: the host cannot be reached, or the script failed.
    """
    done = await host.run("exec sh -s", stdin=script.encode(), timeout_ms=timeout_ms)
    printed, marker, output = f"\n{done.stdout.decode('utf-8', 'replace')}".partition("\nsymphony-host\n")
    if marker and printed.strip():
        raise SymphonyError(
            host_failure(
                host.name,
                f"its shell prints text before a command runs: {one_line(printed, MAX_SAID_CHARS)!r}",
                hint="a login shell that is not interactive must print nothing; see the profile there",
            )
        )
    match done.exit_code:
        case 0 if marker:
            return output
        case code if code == NO_GIT:
            failure = host_failure(host.name, "it has no git", hint="install git 2.29 or newer there")
        case code if code == NO_PYTHON:
            failure = host_failure(host.name, "symphony is not installed there", hint=host.install_hint)
        case code:
            reason = said(done)
            full = "space" in reason.lower() or "quota" in reason.lower()
            hint = "free space there" if full else "see the remote_root in the settings, and the rights there"
            message = f"its directory cannot be used: {reason or f'exit code {code}'}"
            failure = host_failure(host.name, message, hint=hint)
    raise SymphonyError(failure)

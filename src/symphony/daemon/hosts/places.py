"""Finds the paths on another machine with a shell script that runs there."""

import shlex
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from symphony.daemon.carriers import COMMAND_TIMEOUT_MS, MAX_SAID_CHARS, RemoteHost, host_failure, stderr_line
from symphony.domain import SymphonyError, one_line

NO_GIT, NO_PYTHON, NO_ROOT = 91, 92, 93
"""Exit codes of the scripts on a host."""
_MAX_DIGITS: Final = 15


class HostPlace(Struct, frozen=True, kw_only=True):
    """The absolute paths on a host.

    Attributes:
        root: the directory of this daemon there, or that of one workflow file in it.
        python: the Python that runs the worker.
        clock_s: its clock, in seconds since 1970; `None` if it was not reported.
    """

    root: str
    python: str
    clock_s: int | None

    @property
    def repository(self) -> str:
        """The bare repository."""
        return f"{self.root}/repository.git"

    def command(self, *words: str) -> str:
        """A shell command that runs `symphony` with its own state directory; no word may be secret."""
        state = f"SYMPHONY_STATE_DIR={self.root}/state"
        return f"exec env {shlex.join([state, self.python, '-m', 'symphony', *words])}"


def place_script(
    host: RemoteHost, *, needs_git: bool, directory: str = ".", further: Sequence[str] = ()
) -> str:
    """A script that makes a directory of this daemon, and prints the paths; see `read_place`."""
    root = f"{host.remote_root}/{directory}"
    lines = [
        "umask 077",
        "echo; echo symphony-host",
        f'cd "$HOME" || exit {NO_ROOT}',
        f"python={shlex.quote(host.remote_python)}",
        'case "$python" in /*) ;; */*) python="$HOME/$python" ;; *) python="$(command -v "$python")" ;; esac',
        f"mkdir -p {root}/state && cd {root} || exit {NO_ROOT}",
        *((f"command -v git >/dev/null 2>&1 || exit {NO_GIT}",) if needs_git else ()),
        f'[ -x "$python" ] || exit {NO_PYTHON}',
        'pwd -P; echo "$python"; date +%s',
        *further,
    ]
    return "\n".join(lines) + "\n"


def read_place(output: str) -> tuple[HostPlace, list[str]]:
    """The place in the output of a `place_script`, and the output lines of its further commands."""
    root, python, clock, *rest = [*map(one_line, output.split("\n")), "", "", ""]
    return HostPlace(root=root, python=python, clock_s=read_number(clock)), [line for line in rest if line]


def read_number(text: str) -> int | None:
    """The number that a host printed; `None` for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


async def run_script(host: RemoteHost, script: str, *, timeout_ms: int = COMMAND_TIMEOUT_MS) -> str:
    """The output of a `place_script` after its first line `symphony-host`.

    Output of a login profile comes before that line.

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
            reason = stderr_line(done)
            full = "space" in reason.lower() or "quota" in reason.lower()
            hint = "free space there" if full else "see the remote_root in the settings, and the rights there"
            message = f"its directory cannot be used: {reason or f'exit code {code}'}"
            failure = host_failure(host.name, message, hint=hint)
    raise SymphonyError(failure)

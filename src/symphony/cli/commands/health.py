"""`symphony health`: whether the daemon answers, for whoever asks every few seconds.

A container's health check starts it anew each time, so it loads neither an HTTP client nor the settings: one
question over the control socket, and the first line of the answer.
"""

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.options import json_option, print_json, workflow_option

if TYPE_CHECKING:
    from symphony.cli.client import Control


LIMIT_S: Final = 5.0
_QUESTION: Final = b"GET /healthz HTTP/1.1\r\nhost: symphony\r\nconnection: close\r\n\r\n"
_MAX_BYTES: Final = 4_096
_EPILOG = """\b
Examples:
  symphony health
  symphony health --json

Exit codes: 0 the daemon answers, 5 it does not, or none is running.
"""


@click.command(epilog=_EPILOG)
@json_option
@workflow_option
def health(*, as_json: bool, workflow: Path) -> None:
    """Tell by the exit code whether the daemon answers."""
    from symphony.cli.client import find_daemon
    from symphony.cli.documents import Liveness

    try:
        control = find_daemon(workflow, os.environ)
        if control is None:
            raise _ill(f"no daemon is running for {workflow}", hint="start one: symphony run")
        _ask(control)
    except CommandError as error:
        if not as_json:
            raise
        print_json(Liveness(healthy=False, pid=None, problem=error.failure.message))
        sys.exit(ExitCode.UNREACHABLE)
    if as_json:
        print_json(Liveness(healthy=True, pid=control.pid, problem=None))
    else:
        click.echo(f"The daemon (pid {control.pid}) answers.")


def _ask(control: "Control") -> None:
    """One question; raises `CommandError` unless the answer is a good one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(LIMIT_S)
        try:
            asking.connect(os.fsencode(control.socket))
            asking.sendall(_QUESTION)
            line = asking.makefile("rb").readline(_MAX_BYTES)
        except OSError as error:
            told = (
                f"nothing within {LIMIT_S:g} s"
                if isinstance(error, TimeoutError)
                else error.strerror or error
            )
            raise _ill(f"the daemon (pid {control.pid}) does not answer: {told}") from error
    if line.split()[1:2] != [b"200"]:
        raise _ill(f"the daemon (pid {control.pid}) does not answer as it should")


def _ill(message: str, *, hint: str = "its log may say why; restart it if it stays so") -> CommandError:
    return CommandError.of(message, hint=hint, code=ExitCode.UNREACHABLE)

"""`symphony health`: whether the daemon answers.

A container's health check runs this every few seconds, so it imports neither the HTTP client nor the
settings. It sends one request over the control socket and reads the first line of the answer.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Final

import click

from symphony.cli.documents import Liveness
from symphony.cli.endpoint import Endpoint, UnreachableError, find_daemon
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.options import json_option, print_json, workflow_option

_ANSWER_S: Final = 5.0
_REQUEST: Final = b"GET /healthz HTTP/1.1\r\nhost: symphony\r\nconnection: close\r\n\r\n"
_MAX_LINE_BYTES: Final = 4_096
_SEE_LOG: Final = "its log may say why; restart it if it stays so"


@click.command(
    epilog="""\b
Examples:
  symphony health
  symphony health --json

Exit codes: 0 the daemon answers, 5 it does not answer, or none is running.
"""
)
@json_option
@workflow_option
def health(*, as_json: bool, workflow: Path) -> None:
    """Report by the exit code whether the daemon answers."""
    try:
        endpoint = find_daemon(workflow, os.environ)
        if endpoint is None:
            message = f"no daemon is running for {workflow}"
            raise UnreachableError(message, hint="start one: symphony run")
        check_answer(endpoint)
    except CommandError as error:
        if not as_json:
            raise
        print_json(Liveness(healthy=False, pid=None, problem=error.failure.message))
        sys.exit(ExitCode.UNREACHABLE)
    if as_json:
        print_json(Liveness(healthy=True, pid=endpoint.pid, problem=None))
    else:
        click.echo(f"The daemon (pid {endpoint.pid}) answers.")


def check_answer(endpoint: Endpoint, *, timeout_s: float = _ANSWER_S) -> None:
    """Send the daemon one request.

    Raises:
        UnreachableError: it does not answer in time, or not with status 200.
    """
    name = f"the daemon (pid {endpoint.pid})"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(os.fsencode(endpoint.socket))
            connection.sendall(_REQUEST)
            line = connection.makefile("rb").readline(_MAX_LINE_BYTES)
        except TimeoutError as error:
            message = f"{name} does not answer: nothing within {timeout_s:g} s"
            raise UnreachableError(message, hint=_SEE_LOG) from error
        except OSError as error:
            message = f"{name} does not answer: {error.strerror or error}"
            raise UnreachableError(message, hint=_SEE_LOG) from error
    if line.split()[1:2] != [b"200"]:
        raise UnreachableError(f"{name} does not answer as it should", hint=_SEE_LOG)

"""`symphony drain`: have the daemon end once its present turns have."""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from symphony.cli.workflow_option import as_json, of_a_workflow

__all__ = ["drain"]

_ENDING_S: Final = 10.0
_MOMENT_S: Final = 1.0

_EPILOG = """\b
Examples:
  symphony drain
  symphony drain --wait && pip install --upgrade ./symphony && symphony run

What is left is taken up by the next daemon. Ctrl-C ends the waiting, not the drain.

Exit codes: 0 asked for, or it drains already (with --wait: it has ended), 5 no daemon is running, or it does
not answer.
"""


@click.command(epilog=_EPILOG)
@click.option("--wait", is_flag=True, help="Return when the daemon has ended.")
@as_json
@of_a_workflow
def drain(*, wait: bool, as_json: bool, workflow: Path) -> None:
    """Have the daemon end once its present turns have.

    It starts nothing any more. A daemon that drains already can be waited for.
    """
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.client import needed_daemon
    from symphony.cli.control import UnreachableError, unreachable
    from symphony.cli.orders import tell

    with (
        needed_daemon(workflow, os.environ, hint="nothing is left to drain") as client,
        _end_of(client.control.pid) as end,
    ):
        try:
            tell(client.order("drain"), as_json=as_json)
        except UnreachableError as error:
            if not _ended(end, _ENDING_S if wait else _MOMENT_S):  # it may be on its last steps
                raise
            if not wait:
                told = f"the daemon (pid {client.control.pid}) ended before it answered"
                raise unreachable(told, hint="nothing is left to drain") from error
        if wait:
            _ended(end, None)
            click.echo("The daemon has ended.", err=as_json)


def _ended(end: int | None, timeout_s: float | None) -> bool:
    """Wait for the end of the process, so long at most."""
    return end is None or bool(select.select([end], [], [], timeout_s)[0])


@contextmanager
def _end_of(pid: int) -> Iterator[int | None]:
    """A descriptor that becomes readable when the process ends; null where it has ended already.

    It is opened before the process is asked to end, so that it cannot stand for another one of that number.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)

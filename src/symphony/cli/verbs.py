"""`symphony stop`, `retry`, `unblock`, `pause` and `resume`: orders to the daemon that runs."""

from pathlib import Path
from typing import Final

import click

from symphony.cli.issue_argument import of_an_issue
from symphony.cli.workflow_option import as_json, of_a_workflow

__all__ = ["pause", "resume", "retry", "stop", "unblock"]

_CODES: Final = (
    "Exit codes: 0 done, 1 refused or no such issue, 5 no daemon is running, or it does not answer."
)
_OWN_CODES: Final = "Exit codes: 0 done, or it is so already, 5 no daemon is running, or it does not answer."
_STOP: Final = f"""\b
Examples:
  symphony stop SYM-7
  symphony stop SYM-7 --json | jq -r .message

What the run committed is delivered; the issue stays blocked until `symphony retry` or `unblock`, or until
somebody changes its state, labels, title or description.

{_CODES}
"""
_RETRY: Final = f"""\b
Examples:
  symphony retry SYM-7          a retry that waits, or a blocked issue: try it now

Budgets stay as they are; `symphony unblock` gives the issue a new one.

{_CODES}
"""
_UNBLOCK: Final = f"""\b
Examples:
  symphony unblock SYM-7        its budget counts anew, and it is tried

{_CODES}
"""
_PAUSE: Final = f"""\b
Examples:
  symphony pause                what runs goes on; `symphony resume` ends it
  symphony pause --json | jq -r .message

A pause outlasts a restart of the daemon.

{_OWN_CODES}
"""
_RESUME: Final = f"""\b
Examples:
  symphony resume

{_OWN_CODES}
"""


@click.command(epilog=_STOP)
@of_an_issue
@as_json
@of_a_workflow
def stop(*, issue: str, as_json: bool, workflow: Path) -> None:
    """End the run of an issue, and keep it from starting."""
    _on(workflow, "stop", issue, as_json=as_json)


@click.command(epilog=_RETRY)
@of_an_issue
@as_json
@of_a_workflow
def retry(*, issue: str, as_json: bool, workflow: Path) -> None:
    """Have an issue tried now."""
    _on(workflow, "retry", issue, as_json=as_json)


@click.command(epilog=_UNBLOCK)
@of_an_issue
@as_json
@of_a_workflow
def unblock(*, issue: str, as_json: bool, workflow: Path) -> None:
    """Give a blocked issue a new budget, and have it tried."""
    _on(workflow, "unblock", issue, as_json=as_json)


@click.command(epilog=_PAUSE)
@as_json
@of_a_workflow
def pause(*, as_json: bool, workflow: Path) -> None:
    """Have the daemon start nothing new."""
    _own(workflow, "pause", as_json=as_json)


@click.command(epilog=_RESUME)
@as_json
@of_a_workflow
def resume(*, as_json: bool, workflow: Path) -> None:
    """Have a paused daemon start issues again."""
    _own(workflow, "resume", as_json=as_json)


def _on(workflow: Path, verb: str, issue: str, *, as_json: bool) -> None:
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.orders import order_on, tell

    tell(order_on(workflow, verb, issue), as_json=as_json)


def _own(workflow: Path, verb: str, *, as_json: bool) -> None:
    from symphony.cli.orders import order, tell

    tell(order(workflow, verb, hint="start one: symphony run"), as_json=as_json)

"""The argument ISSUE, and what a shell offers for it: what is cheap to know, and never an error.

A daemon is asked for a moment. Without one the names of the files of a Markdown board are offered, and no
tracker is asked: a key that is pressed twice must not send a request.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from symphony.cli.workflow_option import nearest_workflow
from symphony.domain.ids import by_number

__all__ = ["complete_issue", "of_an_issue"]

_ANSWER_S: Final = 1.0
_BOARD: Final = ".symphony/issues"  # as trackers.markdown has it, which is slow to import
_Command = TypeVar("_Command", bound=Callable[..., Any])


def of_an_issue(command: _Command) -> _Command:
    """Add the argument ISSUE."""
    return click.argument("issue", shell_complete=complete_issue)(command)


def complete_issue(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The identifiers that begin like this, whatever their case."""
    workflow = ctx.params.get("workflow") or nearest_workflow()
    begun = incomplete.casefold()
    names = {name for name in _known(Path(workflow)) if name.casefold().startswith(begun)}
    return sorted(names, key=by_number)


def _known(workflow: Path) -> Iterable[str]:
    from symphony.cli.client import Client, check_listener
    from symphony.cli.control import find_daemon
    from symphony.domain.failures import SymphonyError

    try:
        control = find_daemon(workflow, os.environ)
        if control is None:
            return _on_the_board(workflow.absolute().parent / _BOARD)
        check_listener(control)
        with Client(control, answer_s=_ANSWER_S) as client:
            return client.identifiers()
    except (SymphonyError, OSError):
        return ()


def _on_the_board(board: Path) -> Iterable[str]:
    return [file.stem for file in board.glob("*.md") if not file.name.startswith(".")]

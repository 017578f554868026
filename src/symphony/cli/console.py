"""How commands speak: one error line plus a hint on stderr, and stable exit codes (DESIGN 12)."""

import sys
from enum import IntEnum
from typing import NoReturn

import click

from symphony.domain.failures import Blame, Category, Failure, SymphonyError

__all__ = ["ExitCode", "exit_code_of", "fail", "fail_with", "print_failure"]

_AUTHENTICATION = frozenset({Category.AGENT_AUTH, Category.MISSING_TRACKER_SECRET})


class ExitCode(IntEnum):
    """What a command's exit code means."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIGURATION = 3
    AUTHENTICATION = 4
    UNREACHABLE = 5


def exit_code_of(failure: Failure) -> ExitCode:
    """The exit code for a failure."""
    if failure.category in _AUTHENTICATION:
        return ExitCode.AUTHENTICATION
    return ExitCode.CONFIGURATION if failure.blame is Blame.CONFIG else ExitCode.FAILURE


def print_failure(failure: Failure) -> None:
    """One line, and what to do next."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {failure.line}", err=True)
    if failure.hint:
        click.echo(f"{click.style('hint:', fg='cyan')} {failure.hint}", err=True)


def fail_with(error: SymphonyError) -> NoReturn:
    """Print all that an error carries and exit with the code of its first failure."""
    failures = getattr(error, "failures", None) or (error.failure,)
    for failure in failures:
        print_failure(failure)
    sys.exit(exit_code_of(error.failure))


def fail(message: str, *, hint: str | None = None, code: ExitCode = ExitCode.FAILURE) -> NoReturn:
    """Print an error of the command line itself and exit."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
    if hint:
        click.echo(f"{click.style('hint:', fg='cyan')} {hint}", err=True)
    sys.exit(code)

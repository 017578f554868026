"""How a command fails: one line, a hint, and a stable exit code (DESIGN 12).

0 ok, 1 failure, 2 usage, 3 configuration invalid, 4 authentication, 5 daemon unreachable.
"""

from enum import IntEnum

import click

from symphony.domain.failures import Blame, Category, Failure, SymphonyError

__all__ = ["CommandError", "ExitCode", "exit_code", "report", "warn"]


class ExitCode(IntEnum):
    """What the shell is told."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIGURATION = 3
    AUTHENTICATION = 4
    UNREACHABLE = 5


class CommandError(SymphonyError):
    """A command that cannot do what it was asked for."""


def exit_code(failure: Failure) -> ExitCode:
    """The exit code that a failure gives."""
    if failure.category in {Category.MISSING_TRACKER_SECRET, Category.AGENT_AUTH}:
        return ExitCode.AUTHENTICATION
    return ExitCode.CONFIGURATION if failure.blame is Blame.CONFIG else ExitCode.FAILURE


def report(error: SymphonyError | click.ClickException) -> int:
    """Say on stderr what went wrong and what to do next; return the exit code."""
    if isinstance(error, SymphonyError):
        failure = error.failure
        _say(
            failure.message if failure.where is None else f"{failure.where}: {failure.message}", failure.hint
        )
        return exit_code(failure)
    hint = None
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"{error.ctx.command_path} --help"
    _say(error.format_message(), hint)
    return error.exit_code


def warn(message: str) -> None:
    """Say on stderr what is odd but stops nothing."""
    click.echo(f"warning: {' '.join(message.splitlines())}", err=True)


def _say(message: str, hint: str | None) -> None:
    click.echo(f"error: {' '.join(message.splitlines())}", err=True)
    if hint is not None:
        click.echo(f"hint: {' '.join(hint.splitlines())}", err=True)

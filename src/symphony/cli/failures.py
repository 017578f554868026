"""How a command fails: an `error:` line, a `hint:` line and a stable exit code."""

import os
from enum import IntEnum

import click

from symphony.domain import Blame, Category, Failure, SymphonyError, one_line
from symphony.processes.table import RUN_ID_VARIABLE

_MAX_CHARS = 4_000
_UNAUTHORISED = 401


class ExitCode(IntEnum):
    """Exit codes of every command; scripts rely on them."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIGURATION = 3
    AUTHENTICATION = 4
    UNREACHABLE = 5
    AGENT_LIMITED = 6


class CommandError(SymphonyError):
    """A command cannot do what was asked. `code` replaces the exit code that the failure would give."""

    def __init__(self, failure: Failure, *, code: ExitCode | None = None) -> None:
        super().__init__(failure)
        self.code = code

    @classmethod
    def of(cls, message: str, *, hint: str, code: ExitCode = ExitCode.FAILURE) -> "CommandError":
        """The error with its `Failure` built from the arguments."""
        failure = Failure(
            category=Category.COMMAND, blame=Blame.HOST, message=message, hint=hint, retryable=False
        )
        return cls(failure, code=code)


def exit_code(failure: Failure) -> ExitCode:
    """The exit code for a failure."""
    if failure.category in {Category.MISSING_TRACKER_SECRET, Category.AGENT_AUTH}:
        return ExitCode.AUTHENTICATION
    if failure.status == _UNAUTHORISED:  # the tracker rejected the credential
        return ExitCode.AUTHENTICATION
    return ExitCode.CONFIGURATION if failure.blame is Blame.CONFIG else ExitCode.FAILURE


def report(error: SymphonyError | click.ClickException) -> int:
    """Print an error and its hint on stderr; return the exit code.

    Failures of the domain are printed as `where: message [category]`: people search for the category.
    """
    if isinstance(error, CommandError):
        failure = error.failure
        _print(message_of(failure), failure.hint)
        return error.code or exit_code(failure)
    if isinstance(error, SymphonyError):
        for failure in getattr(error, "failures", (error.failure,)):
            _print(f"{message_of(failure)} [{failure.category.value}]", failure.hint)
        return exit_code(error.failure)
    hint = None
    if isinstance(error, click.UsageError) and error.ctx:
        hint = f"{error.ctx.command_path} --help"
        takes_text = any(isinstance(each, click.Argument) for each in error.ctx.command.params)
        if isinstance(error, click.NoSuchOption) and takes_text:
            hint += "; put -- before a text that begins with a dash: -- '--colour'"
    _print(error.format_message(), hint)
    return error.exit_code


def message_of(failure: Failure) -> str:
    """`where: message`."""
    return failure.message if failure.where is None else f"{failure.where}: {failure.message}"


def _print(message: str, hint: str | None) -> None:
    click.echo(f"error: {printable(message)}", err=True)
    if hint is not None:
        click.echo(f"hint: {printable(hint)}", err=True)


def warn(message: str) -> None:
    """Print a warning on stderr."""
    click.echo(f"warning: {printable(message)}", err=True)


def require_person(what: str, *, hint: str) -> None:
    """Refuse actions for people in the shell of an agent; an agent that hides its run is not noticed.

    Raises:
        CommandError: the command was started by an agent.
    """
    if RUN_ID_VARIABLE in os.environ:
        raise CommandError.of(f"an agent does not {what}", hint=hint)


def printable(text: str) -> str:
    """Untrusted text as one line of bounded length, without control characters."""
    return one_line(text, _MAX_CHARS)

"""How a command fails: one line, a hint, and a stable exit code (DESIGN 12).

0 ok, 1 failure, 2 usage, 3 configuration invalid, 4 authentication, 5 daemon unreachable.
"""

import shlex
import shutil
import sys
from enum import IntEnum
from pathlib import Path

import click

from symphony.domain import Blame, Category, Failure, SymphonyError, one_line

_MAX_CHARS = 4_000
_UNAUTHORISED = 401  # of a tracker: the credential is not taken


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
    """The exit code that a failure gives."""
    if failure.category in {Category.MISSING_TRACKER_SECRET, Category.AGENT_AUTH}:
        return ExitCode.AUTHENTICATION
    if failure.status == _UNAUTHORISED:
        return ExitCode.AUTHENTICATION
    return ExitCode.CONFIGURATION if failure.blame is Blame.CONFIG else ExitCode.FAILURE


def report(error: SymphonyError | click.ClickException) -> int:
    """Say on stderr what went wrong and what to do next; return the exit code."""
    if isinstance(error, CommandError):
        _say_failure(error.failure, named=False)
        return error.code or exit_code(error.failure)
    if isinstance(error, SymphonyError):
        for failure in getattr(error, "failures", (error.failure,)):
            _say_failure(failure)
        return exit_code(error.failure)
    hint = None
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"{error.ctx.command_path} --help"
    _say(error.format_message(), hint)
    return error.exit_code


def warn(message: str) -> None:
    """Say on stderr what is odd but stops nothing."""
    click.echo(f"warning: {one_line(message, _MAX_CHARS)}", err=True)


def _say_failure(failure: Failure, *, named: bool = True) -> None:
    """`where: message [category]`: the category is what machines and searches look for."""
    place = "" if failure.where is None else f"{failure.where}: "
    name = f" [{failure.category.value}]" if named else ""
    _say(f"{place}{failure.message}{name}", failure.hint)


def _say(message: str, hint: str | None) -> None:
    click.echo(f"error: {one_line(message, _MAX_CHARS)}", err=True)
    if hint is not None:
        click.echo(f"hint: {one_line(hint, _MAX_CHARS)}", err=True)


# How the program itself is called.


def program() -> str:
    """How a person calls this program again: by its name, or by its path where PATH does not lead there."""
    called = Path(sys.argv[0])
    if shutil.which("symphony") is not None or called.name != "symphony":
        return "symphony"
    return shlex.quote(str(called.absolute()))

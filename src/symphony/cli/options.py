"""Which workflow a command is about, and how it prints; the same options on all of them.

Without an option it is the nearest WORKFLOW.md, looked for as git looks for `.git`: in the current directory
and in those above it, up to the top of the git repository. Outside of a repository only the current directory
counts. A file above the current directory has to belong to this user, to root or to the owner of the current
directory: its hooks are commands, and anybody may write into a directory such as /tmp.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from symphony.domain import natural_order

NAME: Final = "WORKFLOW.md"
_NAMED: Final = "symphony.config"
WORKFLOW_HELP: Final = "The WORKFLOW.md that is meant.  [default: the nearest one upwards in the repository]"
_Command = TypeVar("_Command", bound=Callable[..., Any])


def directories_upwards(start: Path) -> Iterator[Path]:
    """The directory, and those above it up to the top of its git repository; itself alone outside of one."""
    above = (start, *start.parents)
    tops = (number for number, directory in enumerate(above) if os.path.lexists(directory / ".git"))
    yield from above[: next(tops, 0) + 1]


def current_directory() -> Path:
    """Where the command was started, or `-C` led.

    Raises:
        UsageError: it is gone.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise click.UsageError(f"the current directory cannot be used: {error.strerror}") from error


def nearest_workflow() -> Path:
    """The file that is meant where nobody named one; that of the current directory where there is none.

    Raises:
        UsageError: the current directory is gone.
    """
    here = current_directory()
    owners = {0, os.geteuid(), _owner(here)}
    for directory in directories_upwards(here):
        if directory == here:
            if os.path.lexists(NAME):
                break
        elif (owner := _owner(directory / NAME)) is not None and owner in owners:
            return directory / NAME
    return Path(NAME)


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def workflow_option(command: _Command) -> _Command:
    """Add `--workflow FILE`; the nearest WORKFLOW.md else."""
    option = click.option(
        "--workflow",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=WORKFLOW_HELP,
        callback=lambda _ctx, _option, value: nearest_workflow() if value is None else value,
    )
    return option(command)


def workflow_argument(command: _Command) -> _Command:
    """Add the argument WORKFLOW, and `--workflow FILE` for those who know it from the other commands."""
    argument = click.argument(
        "workflow", required=False, type=click.Path(path_type=Path), callback=_not_twice
    )
    option = click.option(
        "--workflow",
        "named",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        help=WORKFLOW_HELP,
        callback=_remember,
    )
    return option(argument(command))


def _remember(context: click.Context, _option: click.Parameter, value: Path | None) -> None:
    context.meta[_NAMED] = value


def _not_twice(context: click.Context, argument: click.Parameter, value: Path | None) -> Path:
    named: Path | None = context.meta.get(_NAMED)
    if named is None:
        return nearest_workflow() if value is None else value
    if context.get_parameter_source(str(argument.name)) is not ParameterSource.DEFAULT:
        raise click.UsageError("WORKFLOW and --workflow name the same thing; give one of them")
    return named


def json_option(command: _Command) -> _Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def dry_run_option(command: _Command) -> _Command:
    """Add `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Only show what would be done.")(command)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document on stdout; text that cannot be encoded goes out escaped."""
    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(value), indent=indent))


# The argument ISSUE, and what a shell offers for it: what is cheap to know, and never an error.
#
# A daemon is asked for a moment. Without one the names of the files of a Markdown board are offered, and no
# tracker is asked: a key that is pressed twice must not send a request.


_ANSWER_S: Final = 1.0
_BOARD: Final = ".symphony/issues"  # as trackers.markdown has it, which is slow to import


def issue_argument(command: _Command) -> _Command:
    """Add the argument ISSUE."""
    return click.argument("issue", shell_complete=complete_issue)(command)


def complete_issue(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The identifiers that begin like this, whatever their case."""
    workflow = ctx.params.get("workflow") or nearest_workflow()
    begun = incomplete.casefold()
    names = {name for name in _known(Path(workflow)) if name.casefold().startswith(begun)}
    return sorted(names, key=natural_order)


def _known(workflow: Path) -> Iterable[str]:
    from symphony.cli.client import Client
    from symphony.cli.endpoint import check_listener, find_daemon
    from symphony.domain import SymphonyError

    try:
        endpoint = find_daemon(workflow, os.environ)
        if endpoint is None:
            return _on_the_board(workflow.absolute().parent / _BOARD)
        check_listener(endpoint)
        return Client(endpoint, answer_s=_ANSWER_S).identifiers()
    except (SymphonyError, OSError):
        return ()


def _on_the_board(board: Path) -> Iterable[str]:
    return [file.stem for file in board.glob("*.md") if not file.name.startswith(".")]


# A text that a person gives: as an argument, from a file or on standard input; the same way everywhere.


_BYTES_PER_CHAR: Final = 4


def text_file_option(command: _Command) -> _Command:
    """Add `-F, --file FILE`."""
    return click.option(
        "-F",
        "--file",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        metavar="FILE",
        help="Read the text from a file; - is standard input.",
    )(command)


def read_text_argument(text: str | None, file: str | None, *, what: str, most: int) -> str:
    """The text that was given as an argument, where `-` is standard input, or by `--file`.

    `what` is what a person calls it, such as `answer`; it has at most `most` characters.

    Raises:
        UsageError: not exactly one of the two was given, or it is empty, too long, not UTF-8 or unreadable.
    """
    if (text is None) == (file is None):
        raise click.UsageError(f"give the {what} as an argument or by --file, one of them")
    raw = _read(file or "-", most) if file is not None or text == "-" else _encoded(text or "")
    try:
        words = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        # What was cut off at the limit may end in the middle of a character.
        if len(raw) > _BYTES_PER_CHAR * most:
            raise _too_long(what, most) from error
        raise click.UsageError(f"the {what} is not UTF-8 text") from error
    if not words.strip():
        raise click.UsageError(f"the {what} is empty")
    if len(words) > most:
        raise _too_long(what, most)
    return words


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _read(file: str, most: int) -> bytes:
    if file == "-" and sys.stdin is None:
        raise click.UsageError("standard input is closed")
    try:
        with click.open_file(file, "rb") as source:
            read: bytes = source.read(_BYTES_PER_CHAR * most + 1)
            return read
    except OSError as error:
        raise click.UsageError(f"{'standard input' if file == '-' else file}: {error.strerror}") from error


def _too_long(what: str, most: int) -> click.UsageError:
    return click.UsageError(f"a text has at most {most} characters, and the {what} has more")

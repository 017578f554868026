"""Options and arguments that several commands share, and output that they share.

Without `--workflow` a command uses the nearest WORKFLOW.md: in the current directory, or in a directory above
it, up to the top of the git repository. Outside of a repository only the current directory counts. A file
above the current directory must belong to this user, to root or to the owner of the current directory: its
hooks are commands, and anybody can write into a directory such as /tmp.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
from click.core import ParameterSource

from symphony.cli.client import Client
from symphony.cli.endpoint import check_listener, find_daemon
from symphony.domain import BOARD_PATH, SymphonyError, age_seconds, natural_order

WORKFLOW_HELP: Final = "The WORKFLOW.md to use.  [default: the nearest one upwards in the repository]"
WORKFLOW_NAME: Final = "WORKFLOW.md"
_WORKFLOW_OPTION: Final = "symphony.workflow_option"
_COMPLETION_TIMEOUT_S: Final = 1.0
_UTF8_BYTES_PER_CHAR: Final = 4

_Command = TypeVar("_Command", bound=Callable[..., Any])

# --- the workflow file -----------------------------------------------------------------------------------


def current_directory() -> Path:
    """The directory of the user's shell, or that of `-C`.

    Raises:
        UsageError: it does not exist any more.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise click.UsageError(f"the current directory cannot be used: {error.strerror}") from error


def directories_upwards(start: Path) -> Iterator[Path]:
    """The directory and those above it, up to the top of its git repository; only itself outside of one."""
    directories = (start, *start.parents)
    tops = (number for number, directory in enumerate(directories) if os.path.lexists(directory / ".git"))
    yield from directories[: next(tops, 0) + 1]


def nearest_workflow() -> Path:
    """The nearest WORKFLOW.md; a relative path, which need not exist, if there is none above.

    Raises:
        UsageError: the current directory does not exist any more.
    """
    here = current_directory()
    trusted = {0, os.geteuid(), _owner(here)}
    for directory in directories_upwards(here):
        if directory == here:
            if os.path.lexists(WORKFLOW_NAME):
                break
        elif (owner := _owner(directory / WORKFLOW_NAME)) is not None and owner in trusted:
            return directory / WORKFLOW_NAME
    return Path(WORKFLOW_NAME)


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def phase_option(command: _Command) -> _Command:
    """Add `--phase PHASE`, for a what-if."""
    return click.option("--phase", metavar="PHASE", help="Show it for this phase of the work.")(command)


def workflow_option(command: _Command) -> _Command:
    """Add `--workflow FILE` with the nearest WORKFLOW.md as default."""
    option = click.option(
        "--workflow",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=WORKFLOW_HELP,
        callback=lambda _ctx, _option, value: nearest_workflow() if value is None else value,
    )
    return option(command)


def workflow_argument(command: _Command) -> _Command:
    """Add the argument WORKFLOW, and the option `--workflow FILE` as another way to give it."""

    def store(context: click.Context, _option: click.Parameter, value: Path | None) -> None:
        context.meta[_WORKFLOW_OPTION] = value

    def choose(context: click.Context, argument: click.Parameter, value: Path | None) -> Path:
        option: Path | None = context.meta.get(_WORKFLOW_OPTION)
        if option is None:
            return nearest_workflow() if value is None else value
        if context.get_parameter_source(str(argument.name)) is not ParameterSource.DEFAULT:
            raise click.UsageError("WORKFLOW and --workflow mean the same: give one of them")
        return option

    command = click.argument("workflow", required=False, type=click.Path(path_type=Path), callback=choose)(
        command
    )
    option = click.option(
        "--workflow",
        "_workflow",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        help=WORKFLOW_HELP,
        callback=store,
    )
    return option(command)


# --- output ----------------------------------------------------------------------------------------------


def json_option(command: _Command) -> _Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document; characters outside of ASCII are escaped."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=indent))


def use_colour() -> bool:
    """Whether stdout is a terminal whose user wants colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def dry_run_option(command: _Command) -> _Command:
    """Add `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Only show what would be done.")(command)


# --- an issue --------------------------------------------------------------------------------------------


def issue_argument(command: _Command) -> _Command:
    """Add the argument ISSUE."""
    return click.argument("issue", shell_complete=complete_issue)(command)


def issues_argument(command: _Command) -> _Command:
    """Add the argument ISSUE, which may be repeated."""
    return click.argument(
        "issues", metavar="ISSUE...", nargs=-1, required=True, shell_complete=complete_issue
    )(command)


def complete_issue(ctx: click.Context, _argument: click.Parameter, incomplete: str) -> list[str]:
    """Identifiers that begin with `incomplete`, in any case, for shell completion.

    Asks a running daemon. Without one, lists the files of a Markdown board. Never sends a request to a
    tracker and never fails.
    """
    workflow = ctx.params.get("workflow") or nearest_workflow()
    prefix = incomplete.casefold()
    names = {name for name in known_issues(Path(workflow)) if name.casefold().startswith(prefix)}
    return sorted(names, key=natural_order)


def known_issues(workflow: Path) -> Iterable[str]:
    """Identifiers for a person who types one; never asks a tracker and never fails."""
    try:
        endpoint = find_daemon(workflow, os.environ)
        if endpoint is None:
            board = workflow.absolute().parent / BOARD_PATH
            return [file.stem for file in board.glob("*.md") if not file.name.startswith(".")]
        check_listener(endpoint)
        return Client(endpoint, answer_s=_COMPLETION_TIMEOUT_S).identifiers()
    except (SymphonyError, OSError):
        return ()


# --- an age ----------------------------------------------------------------------------------------------


def parse_age(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """An option callback: an age such as `30d` in seconds. `0` needs no unit."""
    if value is None:
        return None
    age = age_seconds(value)
    if age is None:
        raise click.BadParameter("must be a number with a unit: 90m, 12h, 30d or 4w")
    return age


# --- a text ----------------------------------------------------------------------------------------------


def text_file_option(command: _Command) -> _Command:
    """Add `-F, --file FILE`."""
    return click.option(
        "-F",
        "--file",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        metavar="FILE",
        help="Read the text from a file; - is standard input.",
    )(command)


def only_one(**flags: bool) -> str | None:
    """The name of the flag that is set; `None` without one. Raises `UsageError` if several are set."""
    given = [name for name, is_set in flags.items() if is_set]
    if len(given) > 1:
        words = (f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{' and '.join(words)} exclude each other")
    return given[0] if given else None


def read_text_argument(text: str | None, file: str | None, *, what: str, most: int) -> str:
    """The text from the argument, where `-` is standard input, or from `--file`.

    Args:
        text: the argument.
        file: the option.
        what: the word for the text in messages, such as `answer`.
        most: its greatest length in characters.

    Raises:
        UsageError: the text is given twice or not at all, or is empty, too long, not UTF-8 or unreadable.
    """
    if (text is None) == (file is None):
        raise click.UsageError(f"give the {what} either as an argument or with --file")
    max_bytes = _UTF8_BYTES_PER_CHAR * most
    source = "-" if file is None and text == "-" else file
    if source is None:
        data = (text or "").encode("utf-8", "surrogateescape")
    elif source == "-" and sys.stdin is None:
        raise click.UsageError("standard input is closed")
    else:
        try:
            with click.open_file(source, "rb") as stream:
                data = stream.read(max_bytes + 1)
        except OSError as error:
            name = "standard input" if source == "-" else source
            raise click.UsageError(f"{name}: {error.strerror}") from error
    too_long = click.UsageError(f"a text has at most {most} characters, and the {what} has more")
    if len(data) > max_bytes:
        raise too_long
    try:
        content = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the {what} is not UTF-8 text") from error
    if not content.strip():
        raise click.UsageError(f"the {what} is empty")
    if len(content) > most:
        raise too_long
    return content

"""`symphony issue`: sugar over the files of the Markdown board; an editor can do all of it."""

import getpass
import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from symphony.cli.board_place import open_board
from symphony.cli.failures import warn
from symphony.cli.issue_argument import complete_issue
from symphony.domain.issue import normalise_state
from symphony.trackers.markdown import RESERVED_AUTHORS, Draft, Notes, author_name, by_number, printable

__all__ = ["issue"]

_MAX_INPUT_BYTES = 1_048_576
_Command = TypeVar("_Command", bound=Callable[..., Any])

_GROUP_EXAMPLES = """\b
Examples:
  symphony issue new "Fix the login page" --priority 2 --label bug
  symphony issue list --state Todo
  symphony issue move SYM-3 "Human Review"
"""

_NEW_EXAMPLES = """\b
Examples:
  symphony issue new "Fix the login page" -d "It shows a blank screen."
  symphony issue new "Add a test" -F notes.md --blocked-by SYM-1
"""

_LIST_EXAMPLES = """\b
Examples:
  symphony issue list
  symphony issue list --state Todo --state "In Progress" --json
"""

_SHOW_EXAMPLES = """\b
Example:
  symphony issue show SYM-3
"""

_MOVE_EXAMPLES = """\b
Example:
  symphony issue move SYM-3 "Human Review"
"""

_COMMENT_EXAMPLES = """\b
Examples:
  symphony issue comment SYM-3 "Please keep the old name."
  symphony issue comment SYM-3 -F review.md --author ann
"""


def _on_a_board(command: _Command) -> _Command:
    """Add the options that say which board is meant."""
    path = click.option(
        "--path",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="The folder of the issue files.  [default: the nearest .symphony/issues upwards]",
    )
    workflow = click.option(
        "--workflow",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The WORKFLOW.md whose board is meant.",
    )
    return path(workflow(command))


def _as_json(command: _Command) -> _Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


@click.group(
    invoke_without_command=True,
    epilog=_GROUP_EXAMPLES,
    short_help="Work with the issues of a Markdown board.",
)
@click.pass_context
def issue(ctx: click.Context) -> None:
    """Work with the issues of a Markdown board: one file each, in .symphony/issues."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@issue.command(epilog=_NEW_EXAMPLES)
@click.argument("title")
@click.option("-d", "--description", help="What is to be done, in Markdown.")
@click.option("-F", "--file", type=click.File("rb"), help="Read the description from a file; - is stdin.")
@click.option("-s", "--state", help="The state to begin in.  [default: the first active state]")
@click.option("-l", "--label", "labels", multiple=True, help="A label; may be repeated.")
@click.option("-p", "--priority", type=click.IntRange(1, 4), help="1 is first.")
@click.option("-b", "--blocked-by", multiple=True, metavar="ID", help="An issue that must end first.")
@_as_json
@_on_a_board
def new(
    *,
    title: str,
    description: str | None,
    file: IO[bytes] | None,
    state: str | None,
    labels: tuple[str, ...],
    priority: int | None,
    blocked_by: tuple[str, ...],
    as_json: bool,
    path: Path | None,
    workflow: Path | None,
) -> None:
    """Write a new issue under the next free number; print its id and file."""
    board = open_board(path, workflow, cwd=Path.cwd())
    draft = Draft(
        title=title,
        state=(board.config.active or board.config.states)[0] if state is None else board.legal_state(state),
        description=_text("--description", description, file) or "",
        labels=labels,
        priority=priority,
        blocked_by=tuple(board.find(blocker).id for blocker in blocked_by),
    )
    made = board.create(draft)
    if as_json:
        from symphony.cli.issue_view import issue_json

        _print_json(issue_json(board, made))
    else:
        click.echo(f"{made.id}  {board.store.path(made.id)}")


@issue.command(name="list", epilog=_LIST_EXAMPLES)
@click.option("-s", "--state", "states", multiple=True, help="Only issues in this state; may be repeated.")
@_as_json
@_on_a_board
def list_(*, states: tuple[str, ...], as_json: bool, path: Path | None, workflow: Path | None) -> None:
    """List issues, with what they wait for. Files that are no usable issues are told on stderr."""
    from symphony.cli.issue_view import listing_json, print_listing

    board = open_board(path, workflow, cwd=Path.cwd())
    wanted = {normalise_state(board.legal_state(state)) for state in states}
    snapshot = board.all()
    chosen = [one for one in snapshot.issues if not wanted or normalise_state(one.state) in wanted]
    chosen.sort(key=lambda one: by_number(one.id))
    for problem in snapshot.problems.values():
        warn(f"{problem.failure.where}: {problem.failure.message}")
    if as_json:
        _print_json(listing_json(board, chosen, snapshot))
    elif chosen:
        print_listing(chosen)
    else:
        click.echo(f"no issues in {board.config.path}", err=True)


@issue.command(epilog=_SHOW_EXAMPLES)
@click.argument("issue_id", metavar="ID", shell_complete=complete_issue)
@_as_json
@_on_a_board
def show(*, issue_id: str, as_json: bool, path: Path | None, workflow: Path | None) -> None:
    """Show one issue with its description and comments."""
    from symphony.cli.issue_view import print_issue, shown_json

    board = open_board(path, workflow, cwd=Path.cwd())
    found = board.find(issue_id)
    notes, problems = Notes(board.config.comments, now=board.now).of(found.id)
    for problem in problems:
        warn(f"{problem.failure.where}: {problem.failure.message}")
    if as_json:
        _print_json(shown_json(board, found, notes))
    else:
        print_issue(board, found, notes)


@issue.command(epilog=_MOVE_EXAMPLES)
@click.argument("issue_id", metavar="ID", shell_complete=complete_issue)
@click.argument("state")
@_on_a_board
def move(*, issue_id: str, state: str, path: Path | None, workflow: Path | None) -> None:
    """Put an issue into another state; nothing else in its file changes."""
    moved = open_board(path, workflow, cwd=Path.cwd()).move(issue_id, state)
    click.echo(f"{moved.issue_id}: {printable(moved.before)} -> {moved.after}")


@issue.command(epilog=_COMMENT_EXAMPLES)
@click.argument("issue_id", metavar="ID", shell_complete=complete_issue)
@click.argument("body", required=False)
@click.option("-F", "--file", type=click.File("rb"), help="Read the comment from a file; - is stdin.")
@click.option("--author", help="Who says it.  [default: your login name]")
@_on_a_board
def comment(
    *,
    issue_id: str,
    body: str | None,
    file: IO[bytes] | None,
    author: str | None,
    path: Path | None,
    workflow: Path | None,
) -> None:
    """Add a comment to an issue, as a file of its own."""
    text = _text("BODY", body, file)
    if text is None:
        raise click.UsageError("a comment needs some text: BODY or --file")
    board = open_board(path, workflow, cwd=Path.cwd())
    found = board.find(issue_id)
    note_id = Notes(board.config.comments, now=board.now).add(found.id, text, author=_author(author))
    click.echo(f"{found.id}: {note_id}")


def _author(wanted: str | None) -> str:
    """A name that is neither the daemon's nor the agents'; the daemon's user is just a person here."""
    if wanted is not None:
        if author_name(wanted) in RESERVED_AUTHORS:
            raise click.UsageError(f"--author: {wanted!r} is not a person's name here")
        return wanted
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "person"
    return "person" if author_name(name) in RESERVED_AUTHORS else name


def _text(name: str, text: str | None, file: IO[bytes] | None) -> str | None:
    """The text of an argument or of a file, which must be UTF-8 and at most 1 MB."""
    if file is None:
        return text
    if text is not None:
        raise click.UsageError(f"{name} and --file exclude each other")
    data = file.read(_MAX_INPUT_BYTES + 1)
    if len(data) > _MAX_INPUT_BYTES:
        raise click.UsageError("--file: larger than 1 MB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError("--file: not UTF-8") from error


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))

"""`symphony issue`: sugar over the files of the Markdown board; an editor can do all of it."""

import getpass
import os
from pathlib import Path

import click

from symphony.cli.board_place import open_board
from symphony.cli.failures import warn
from symphony.cli.issue_argument import complete_issue
from symphony.cli.lazy import LazyGroup
from symphony.cli.text_input import from_a_file, given_text
from symphony.cli.workflow_option import WORKFLOW_HELP, as_json, print_json
from symphony.domain.ids import by_number
from symphony.domain.issue import normalise_state
from symphony.processes.processes import RUN_ID_VARIABLE
from symphony.trackers.markdown import AGENT, RESERVED_AUTHORS, Draft, Notes, author_name, printable

__all__ = ["issue"]

_MAX_CHARS = 1_048_576

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


_on_a_board = click.option(
    "--workflow", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=WORKFLOW_HELP
)
"""As the other commands have it, but without WORKFLOW.md there may be a board all the same."""


@click.group(
    cls=LazyGroup,
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
@from_a_file
@click.option("-s", "--state", help="The state to begin in.  [default: the first active state]")
@click.option("-l", "--label", "labels", multiple=True, help="A label; may be repeated.")
@click.option("-p", "--priority", type=click.IntRange(1, 4), help="1 is first.")
@click.option("-b", "--blocked-by", multiple=True, metavar="ID", help="An issue that must end first.")
@as_json
@_on_a_board
def new(
    *,
    title: str,
    description: str | None,
    file: str | None,
    state: str | None,
    labels: tuple[str, ...],
    priority: int | None,
    blocked_by: tuple[str, ...],
    as_json: bool,
    workflow: Path | None,
) -> None:
    """Write a new issue under the next number; print its id and file.

    No number is given twice, even after its issue was deleted.
    """
    from symphony.cli.issue_numbers import numbers_of  # only this command needs to know all that

    if file is not None:
        if description is not None:
            raise click.UsageError("--description and --file exclude each other")
        description = given_text(None, file, what="description", most=_MAX_CHARS)
    board = open_board(workflow)
    draft = Draft(
        title=title,
        state=(board.config.active or board.config.states)[0] if state is None else board.legal_state(state),
        description=description or "",
        labels=labels,
        priority=priority,
        blocked_by=tuple(board.find(blocker).id for blocker in blocked_by),
    )
    made = board.create(draft, numbers_of(board.config.path, workflow, os.environ))
    if as_json:
        from symphony.cli.issue_view import issue_document

        print_json(issue_document(board, made))
    else:
        click.echo(f"{made.id}  {board.store.path(made.id)}")


@issue.command(name="list", epilog=_LIST_EXAMPLES)
@click.option("-s", "--state", "states", multiple=True, help="Only issues in this state; may be repeated.")
@as_json
@_on_a_board
def list_(*, states: tuple[str, ...], as_json: bool, workflow: Path | None) -> None:
    """List issues, with what they wait for. Files that are no usable issues are told on stderr."""
    from symphony.cli.issue_view import listing_document, print_listing

    board = open_board(workflow)
    wanted = {normalise_state(board.legal_state(state)) for state in states}
    snapshot = board.all()
    chosen = [one for one in snapshot.issues if not wanted or normalise_state(one.state) in wanted]
    chosen.sort(key=lambda one: by_number(one.id))
    for problem in snapshot.problems.values():
        warn(f"{problem.failure.where}: {problem.failure.message}")
    if as_json:
        print_json(listing_document(board, chosen, snapshot))
    elif chosen:
        print_listing(chosen)
    else:
        click.echo(f"no issues in {board.config.path}", err=True)


@issue.command(epilog=_SHOW_EXAMPLES)
@click.argument("issue_id", metavar="ID", shell_complete=complete_issue)
@as_json
@_on_a_board
def show(*, issue_id: str, as_json: bool, workflow: Path | None) -> None:
    """Show one issue with its description and comments."""
    from symphony.cli.issue_view import print_issue, shown_document

    board = open_board(workflow)
    found = board.find(issue_id)
    notes, problems = Notes(board.config.comments, now=board.now).of(found.id)
    for problem in problems:
        warn(f"{problem.failure.where}: {problem.failure.message}")
    if as_json:
        print_json(shown_document(board, found, notes))
    else:
        print_issue(board, found, notes)


@issue.command(epilog=_MOVE_EXAMPLES)
@click.argument("issue_id", metavar="ID", shell_complete=complete_issue)
@click.argument("state")
@as_json
@_on_a_board
def move(*, issue_id: str, state: str, as_json: bool, workflow: Path | None) -> None:
    """Put an issue into another state; nothing else in its file changes."""
    moved = open_board(workflow).move(issue_id, state)
    if as_json:
        from symphony.cli.documents import IssueMoved

        print_json(IssueMoved(issue_identifier=moved.issue_id, before=moved.before, state=moved.after))
    else:
        click.echo(f"{moved.issue_id}: {printable(moved.before)} -> {moved.after}")


@issue.command(epilog=_COMMENT_EXAMPLES)
@click.argument("issue_id", metavar="ID", shell_complete=complete_issue)
@click.argument("text", required=False)
@from_a_file
@click.option("--author", help="Who says it.  [default: your login name]")
@as_json
@_on_a_board
def comment(
    *,
    issue_id: str,
    text: str | None,
    file: str | None,
    author: str | None,
    as_json: bool,
    workflow: Path | None,
) -> None:
    """Add a comment to an issue, as a file of its own.

    TEXT is the comment, or - for what comes on standard input.
    """
    words = given_text(text, file, what="comment", most=_MAX_CHARS)
    board = open_board(workflow)
    found = board.find(issue_id)
    note_id = Notes(board.config.comments, now=board.now).add(found.id, words, author=_author(author))
    if as_json:
        from symphony.cli.documents import IssueCommented

        print_json(IssueCommented(issue_identifier=found.id, comment_id=note_id))
    else:
        click.echo(f"{found.id}: {note_id}")


def _author(wanted: str | None) -> str:
    """A name that is neither the daemon's nor the agents'; the daemon's user is just a person here.

    What an agent runs in its shell is said by the agent, whatever name it gives.
    """
    if RUN_ID_VARIABLE in os.environ:
        return AGENT
    if wanted is not None:
        if author_name(wanted) in RESERVED_AUTHORS:
            raise click.UsageError(f"--author: {wanted!r} is not a person's name here")
        return wanted
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "person"
    return "person" if author_name(name) in RESERVED_AUTHORS else name

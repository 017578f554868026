"""`symphony issue`: work with the issues of a Markdown board; an editor can do the same with its files."""

import getpass
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import click
from msgspec import structs
from rich.text import Text

from symphony import domain
from symphony.api.models import CreatedIssue, NewIssue
from symphony.cli import documents, options
from symphony.cli.client import connect
from symphony.cli.commands.schedules import print_created
from symphony.cli.failures import CommandError, require_person, warn
from symphony.cli.formatting import console_for, print_blocks, table
from symphony.cli.main import LazyGroup
from symphony.daemon.issue_numbers import read_section, used_numbers
from symphony.frontmatter import FrontMatterError
from symphony.processes.table import RUN_ID_VARIABLE
from symphony.trackers import markdown

_MAX_TEXT_CHARS: Final = 1_048_576
_PIPE_WIDTH: Final = 200

_board_option = click.option(
    "--workflow", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=options.WORKFLOW_HELP
)
"""As `workflow_option`, but without WORKFLOW.md there may still be a board."""


issue = LazyGroup(
    "issue",
    help="Create issues, and work with those of a Markdown board: one file each, in .symphony/issues.",
    short_help="Create issues, and work with those of a Markdown board.",
    epilog="""\b
Examples:
  symphony issue new "Fix the login page" --priority 2 --label bug
  symphony issue list --state Todo
  symphony issue move SYM-3 "Human Review"
""",
)


@issue.command(
    epilog="""\b
Examples:
  symphony issue new "Fix the login page" --body "It shows a blank screen."
  symphony issue new "Add a test" -F notes.md --blocked-by SYM-1
  symphony issue new --title "Update the dependencies" --label chore --json

On trackers other than a Markdown board the running daemon creates the issue, or else the command itself.
--priority and --blocked-by are for boards only.
"""
)
@click.argument("title", required=False)
@click.option("--title", "title_option", metavar="TEXT", help="The title, instead of the argument.")
@click.option("-d", "--body", "--description", "description", help="The description, in Markdown.")
@options.text_file_option
@click.option("-s", "--state", help="The first state.  [default: the first active state]")
@click.option("-l", "--label", "labels", multiple=True, help="A label; may be repeated.")
@click.option(
    "--skill",
    "skill_labels",
    metavar="NAME",
    help="The skill that sessions of the issue get, by a label.",
    callback=lambda _, __, name: () if name is None else (f"{domain.SKILL_LABEL_PREFIX}{name}",),
)
@click.option("-p", "--priority", type=click.IntRange(1, 4), help="1 is first.")
@click.option("-b", "--blocked-by", multiple=True, metavar="ID", help="An issue that must end first.")
@options.json_option
@_board_option
def new(
    *,
    title: str | None,
    title_option: str | None,
    description: str | None,
    file: str | None,
    state: str | None,
    labels: tuple[str, ...],
    skill_labels: tuple[str, ...],
    priority: int | None,
    blocked_by: tuple[str, ...],
    as_json: bool,
    workflow: Path | None,
) -> None:
    """Create an issue; print its identifier, and its file or address.

    A Markdown board never uses a number twice, even after an issue was deleted.
    """
    if (title is None) is (title_option is None):
        raise click.UsageError("give the title: as an argument, or by --title")
    title, labels = title or title_option or "", (*labels, *skill_labels)
    if file is not None:
        if description is not None:
            raise click.UsageError("--body and --file exclude each other")
        description = options.read_text_argument(None, file, what="description", most=_MAX_TEXT_CHARS)
    if (other := _other_tracker(workflow)) is not None:
        if priority is not None or blocked_by:
            raise click.UsageError("--priority and --blocked-by are for Markdown boards only")
        given = NewIssue(title=title, body=description or "", state=state, labels=labels)
        print_created(_create_at_tracker(other, given), as_json=as_json)
        return
    board = open_board(workflow)
    config = board.config
    if state is not None:
        state = board.known_state(state)
    else:
        state = (config.active or config.states)[0]
        for doubt in markdown.doubtful_states(config, [*config.active, *config.terminal], board.all().issues):
            if doubt.state == state:
                warn(doubt.message)
    draft = markdown.IssueDraft(
        title=title,
        state=state,
        description=description or "",
        labels=labels,
        priority=priority,
        blocked_by=tuple(board.find(blocker).id for blocker in blocked_by),
    )
    created = board.create(draft, used_numbers(config.path, workflow, os.environ))
    if as_json:
        options.print_json(_issue_document(board, created))
    else:
        click.echo(f"{created.id}  {board.store.path(created.id)}")


@issue.command(
    name="list",
    epilog="""\b
Examples:
  symphony issue list
  symphony issue list --state Todo --state "In Progress" --json
""",
)
@click.option("-s", "--state", "states", multiple=True, help="Only issues in this state; may be repeated.")
@options.json_option
@_board_option
def list_(*, states: tuple[str, ...], as_json: bool, workflow: Path | None) -> None:
    """List issues, and show what they wait for. Unusable files are reported on stderr."""
    board = open_board(workflow)
    wanted = {domain.normalise_state(board.known_state(state)) for state in states}
    snapshot = board.all()
    for problem in snapshot.problems.values():
        warn(f"{problem.failure.where}: {problem.failure.message}")
    issues = [one for one in snapshot.issues if not wanted or domain.normalise_state(one.state) in wanted]
    issues.sort(key=lambda one: domain.natural_order(one.id))
    if as_json:
        problems = sorted(snapshot.problems.items(), key=lambda item: domain.natural_order(item[0]))
        options.print_json(
            documents.BoardListing(
                board=str(board.config.path),
                issues=tuple(_issue_document(board, one) for one in issues),
                problems=tuple(
                    documents.BoardProblem(
                        id=key, where=problem.failure.where, message=problem.failure.message
                    )
                    for key, problem in problems
                ),
            )
        )
    elif issues:
        _print_table(issues)
    else:
        click.echo(f"no issues in {board.config.path}", err=True)


@issue.command(
    epilog="""\b
Example:
  symphony issue show SYM-3
"""
)
@click.argument("issue_id", metavar="ID", shell_complete=options.complete_issue)
@options.json_option
@_board_option
def show(*, issue_id: str, as_json: bool, workflow: Path | None) -> None:
    """Show one issue with its description and comments."""
    board = open_board(workflow)
    found = board.find(issue_id)
    comments, problems = markdown.CommentStore(board.config.comments, now=board.now).read(found.id)
    for problem in problems:
        warn(f"{problem.failure.where}: {problem.failure.message}")
    if as_json:
        options.print_json(
            documents.BoardIssueShown(
                **structs.asdict(_issue_document(board, found)),
                description=found.description,
                comments=tuple(
                    documents.BoardComment(
                        id=comment.id,
                        author=comment.author,
                        created=_iso(comment.created),
                        body=comment.body,
                        daemon=comment.key is not None,
                    )
                    for comment in comments
                ),
            )
        )
    else:
        _print_issue(board, found, comments)


@issue.command(
    epilog="""\b
Example:
  symphony issue move SYM-3 "Human Review"
"""
)
@click.argument("issue_id", metavar="ID", shell_complete=options.complete_issue)
@click.argument("state")
@options.json_option
@_board_option
def move(*, issue_id: str, state: str, as_json: bool, workflow: Path | None) -> None:
    """Move an issue to another state. Nothing else in its file changes."""
    moved = open_board(workflow).move(issue_id, state)
    if as_json:
        options.print_json(
            documents.IssueMoved(issue_identifier=moved.issue_id, before=moved.before, state=moved.after)
        )
    else:
        click.echo(f"{moved.issue_id}: {markdown.printable(moved.before)} -> {moved.after}")


@issue.command(
    epilog="""\b
Examples:
  symphony issue comment SYM-3 "Please keep the old name."
  symphony issue comment SYM-3 -F review.md --author ann
"""
)
@click.argument("issue_id", metavar="ID", shell_complete=options.complete_issue)
@click.argument("text", required=False)
@options.text_file_option
@click.option("--author", help="The author.  [default: your login name]")
@options.json_option
@_board_option
def comment(
    *,
    issue_id: str,
    text: str | None,
    file: str | None,
    author: str | None,
    as_json: bool,
    workflow: Path | None,
) -> None:
    """Add a comment to an issue, as a separate file.

    TEXT is the comment, or - for standard input.
    """
    text = options.read_text_argument(text, file, what="comment", most=_MAX_TEXT_CHARS)
    board = open_board(workflow)
    found = board.find(issue_id)
    store = markdown.CommentStore(board.config.comments, now=board.now)
    comment_id = store.add(found.id, text, author=_comment_author(author))
    if as_json:
        options.print_json(documents.IssueCommented(issue_identifier=found.id, comment_id=comment_id))
    else:
        click.echo(f"{found.id}: {comment_id}")


def _comment_author(wanted: str | None) -> str:
    """A name that is neither the daemon's nor an agent's; in the shell of an agent always the agent's."""
    if RUN_ID_VARIABLE in os.environ:
        return markdown.AGENT
    if wanted is not None:
        if markdown.author_name(wanted) in markdown.RESERVED_AUTHORS:
            raise click.UsageError(f"--author: {wanted!r} is not a person's name here")
        return wanted
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "person"
    return "person" if markdown.author_name(name) in markdown.RESERVED_AUTHORS else name


def _issue_document(board: markdown.Board, issue: domain.Issue) -> documents.BoardIssue:
    return documents.BoardIssue.of(
        issue,
        assignee=issue.assignee_id,
        reason=issue.not_dispatchable_reason,
        created=_iso(issue.created_at),
        path=str(board.store.path(issue.id)),
    )


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _print_table(issues: Sequence[domain.Issue]) -> None:
    rows = table("ID", "STATE", "PRIO", "TITLE", "LABELS", "WAITS", fold={"TITLE", "LABELS", "WAITS"})
    for one in issues:
        rows.add_row(
            _line(one.id),
            _line(one.state),
            _line(one.priority or ""),
            _line(one.title),
            _line(", ".join(one.labels)),
            _line(one.not_dispatchable_reason or ""),
        )
    print_blocks(console_for(pipe_width=_PIPE_WIDTH), rows)


def _print_issue(
    board: markdown.Board, issue: domain.Issue, comments: Sequence[markdown.StoredComment]
) -> None:
    """Details, description and comments below each other."""
    console = console_for(pipe_width=_PIPE_WIDTH)
    blockers = (f"{blocker.id} ({blocker.state or 'unknown'})" for blocker in issue.blocked_by)
    details = {
        "state": issue.state,
        "priority": issue.priority,
        "labels": ", ".join(issue.labels),
        "assignee": issue.assignee_id,
        "blocked by": ", ".join(blockers),
        "waits": issue.not_dispatchable_reason,
        "created": _iso(issue.created_at),
        "file": board.store.path(issue.id),
    }
    console.print(_line(f"{issue.id}  {issue.title}"), style="bold")
    for name, value in details.items():
        if value:
            console.print(Text(f"{name:<10} "), _line(value), sep="")
    if issue.description is not None:
        console.print()
        console.print(_lines(issue.description))
    for each in comments:
        console.print()
        console.print(_line(f"{each.author}, {_iso(each.created) or each.id}"), style="bold")
        console.print(_lines(each.body))


def _line(text: object) -> Text:
    """Untrusted text on one line; control and bidi characters become escapes."""
    return Text(markdown.printable(text))


def _lines(text: str) -> Text:
    return Text("\n").join(_line(line.replace("\t", "    ")) for line in text.split("\n"))


# --- which board is meant -------------------------------------------------------------------------------
#
# Reads only single sections of WORKFLOW.md, so the board works even if the prompt does not compile or a
# variable is not set.


def _other_tracker(workflow: Path | None) -> Path | None:
    """The workflow file in use, if its tracker is not a Markdown board."""
    if workflow is None:
        folders = options.directories_upwards(options.current_directory())
        files = (folder / options.WORKFLOW_NAME for folder in folders)
        workflow = next((file for file in files if file.is_file()), None)
    try:
        kind = None if workflow is None else _read_section(workflow, "tracker").get("kind")
    except domain.SymphonyError:
        return None  # `open_board` reports it
    return None if kind in {None, "markdown"} else workflow


def _create_at_tracker(workflow: Path, given: NewIssue) -> CreatedIssue:
    """Create an issue by the daemon, or without one directly."""
    require_person("create issues", hint="say in your last message which issue is missing")
    client = connect(workflow, os.environ)
    if client is not None:
        return client.create_issue(given)
    from symphony.cli.commands.tracker import run_on_tracker  # noqa: PLC0415 - all adapters: slow to import
    from symphony.daemon.new_issues import create_given  # noqa: PLC0415 - as above

    return run_on_tracker(workflow, partial(create_given, given=given, now=datetime.now(UTC)))


def open_board(workflow: Path | None) -> markdown.Board:
    """The board of a workflow file; without one, the nearest board from the current directory upwards.

    Raises:
        CommandError: there is no board, or the workflow file cannot be used.
        TrackerError: its `tracker` section does not describe a usable board.
    """
    if workflow is not None:
        config = _configured_board(workflow.absolute())
        if config is None:
            hint = "name the WORKFLOW.md of a board, or use `symphony tracker`"
            raise _unusable(workflow, "tracker.kind is not `markdown`", hint)
        return markdown.Board(config)
    here = options.current_directory()
    for folder in options.directories_upwards(here):
        file = folder / options.WORKFLOW_NAME
        try:
            config = _configured_board(file) if file.is_file() else None
        except domain.SymphonyError as error:
            failure = error.failure
            warn(f"{failure.where or file}: {failure.message}; the default states are used")
            config = None
        if config is not None:
            return markdown.Board(config)
        if (folder / domain.BOARD_PATH).is_dir():
            return markdown.Board(markdown.BoardConfig(path=folder / domain.BOARD_PATH))
    raise CommandError(
        domain.Failure(
            category=domain.Category.TRACKER_REQUEST,
            blame=domain.Blame.TRACKER,
            message=f"there is no board: no {domain.BOARD_PATH} in {here} or above it in its repository",
            hint=f"`symphony init` makes one; so does `mkdir -p {domain.BOARD_PATH}`; -C DIR names another"
            " place",
        )
    )


def _configured_board(file: Path) -> markdown.BoardConfig | None:
    """The board that a WORKFLOW.md describes; None if it describes another kind of tracker."""
    tracker = _read_section(file, "tracker")
    if tracker.get("kind") != "markdown":
        return None
    provider = tracker.get("provider")
    return markdown.BoardConfig.of(
        provider if isinstance(provider, dict) else {},
        base_dir=file.parent,
        active=_strings(tracker.get("active_states")),
        terminal=_strings(tracker.get("terminal_states")),
    )


def _strings(value: object) -> tuple[str, ...] | None:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else None


def _read_section(file: Path, name: str) -> Mapping[str, object]:
    """A section of the front matter as it is written; empty if it is missing or not a mapping.

    Raises:
        CommandError: the file or its front matter cannot be read.
    """
    try:
        return read_section(file, name)
    except OSError as error:
        hint = "name the file with --workflow, or its directory with -C"
        raise _unusable(file, error.strerror or str(error), hint) from error
    except FrontMatterError as error:
        raise _unusable(file, error.message, "correct the front matter", line=error.line) from error


def _unusable(file: Path, message: str, hint: str, *, line: int | None = None) -> CommandError:
    missing = line is None and not file.is_file()
    return CommandError(
        domain.Failure(
            category=domain.Category.MISSING_WORKFLOW_FILE
            if missing
            else domain.Category.INVALID_WORKFLOW_CONFIG,
            blame=domain.Blame.CONFIG,
            message=message,
            retryable=False,
            hint=hint,
            where=str(file) if line is None else f"{file}:{line}",
        )
    )

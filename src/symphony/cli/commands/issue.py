"""`symphony issue`: sugar over the files of the Markdown board; an editor can do all of it."""

import getpass
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from msgspec import structs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from symphony.cli.documents import (
    BoardBlocker,
    BoardComment,
    BoardIssue,
    BoardIssueShown,
    BoardListing,
    BoardProblem,
)
from symphony.cli.failures import CommandError, warn
from symphony.cli.formatting import print_blocks
from symphony.cli.journal import journal_path
from symphony.cli.main import LazyGroup
from symphony.cli.options import (
    WORKFLOW_HELP,
    WORKFLOW_NAME,
    complete_issue,
    current_directory,
    directories_upwards,
    json_option,
    print_json,
    read_text_argument,
    text_file_option,
)
from symphony.config import STATE_DIR_VARIABLE, ResolveError, default_workspace_root, resolve_root
from symphony.daemon.state_dir import locate
from symphony.domain import (
    BRANCH_PREFIX,
    Blame,
    Category,
    Failure,
    Issue,
    SymphonyError,
    natural_order,
    normalise_state,
)
from symphony.frontmatter import FrontMatterError, Profile, load, split
from symphony.processes.table import RUN_ID_VARIABLE
from symphony.trackers.markdown import (
    AGENT,
    DEFAULT_PATH,
    RESERVED_AUTHORS,
    Board,
    BoardConfig,
    CommentStore,
    Draft,
    IssueNumbers,
    Snapshot,
    StoredComment,
    author_name,
    printable,
)
from symphony.workspaces import BRANCH_CLAIMS, Layout, all_refs, common_dir

# Which Markdown board a command means: that of `--workflow`, or the nearest one upwards in the repository.
#
# Only the `tracker` section of WORKFLOW.md is looked at, so that a prompt that does not compile or a
# variable that is not set keeps nobody from working with the board.


_MAX_BYTES = 1_048_576


def open_board(workflow: Path | None) -> Board:
    """The board of `workflow`, or the nearest one from the current directory upwards.

    Raises:
        CommandError: there is none, or WORKFLOW.md cannot be used.
        TrackerError: its `tracker` section is no usable board configuration.
    """
    if workflow is None:
        return Board(_nearest(current_directory()))
    config = _configured(workflow.absolute())
    if config is None:
        hint = "name the WORKFLOW.md of a board, or use `symphony tracker`"
        raise _unusable(workflow, "tracker.kind is not `markdown`", hint)
    return Board(config)


def _nearest(cwd: Path) -> BoardConfig:
    for folder in directories_upwards(cwd):
        config = _tolerant(folder / WORKFLOW_NAME)
        if config is not None:
            return config
        if (folder / DEFAULT_PATH).is_dir():
            return BoardConfig(path=folder / DEFAULT_PATH)
    raise CommandError(
        Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"there is no board: no {DEFAULT_PATH} in {cwd} or above it in its repository",
            hint=f"`symphony init` makes one; so does `mkdir -p {DEFAULT_PATH}`; -C DIR names another place",
        )
    )


def _tolerant(file: Path) -> BoardConfig | None:
    """As `_configured`, but a file that cannot be used is only warned about."""
    if not file.is_file():
        return None
    try:
        return _configured(file)
    except SymphonyError as error:
        warn(f"{error.failure.where or file}: {error.failure.message}; the default states are used")
        return None


def _configured(file: Path) -> BoardConfig | None:
    """The board that a WORKFLOW.md describes; null when it describes another kind of tracker."""
    tracker = _tracker(file)
    if tracker.get("kind") != "markdown":
        return None
    provider = tracker.get("provider")
    return BoardConfig.of(
        provider if isinstance(provider, dict) else {},
        base_dir=file.parent,
        active=_names(tracker.get("active_states")),
        terminal=_names(tracker.get("terminal_states")),
    )


def _tracker(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
            pieces = split(opened.read(_MAX_BYTES))
        front = None if pieces is None else load(pieces.front, profile=Profile.CORE)
    except OSError as error:
        raise _unusable(
            file, error.strerror or str(error), "name the file with --workflow, or its directory with -C"
        ) from error
    except FrontMatterError as error:
        raise _unusable(file, error.message, "correct the front matter", line=error.line) from error
    section = None if front is None else front.value.get("tracker")
    return section if isinstance(section, dict) else {}


def _names(value: object) -> tuple[str, ...] | None:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else None


def _unusable(file: Path, message: str, hint: str, *, line: int | None = None) -> CommandError:
    missing = line is None and not file.is_file()
    return CommandError(
        Failure(
            category=Category.MISSING_WORKFLOW_FILE if missing else Category.INVALID_WORKFLOW_CONFIG,
            blame=Blame.CONFIG,
            message=message,
            retryable=False,
            hint=hint,
            where=str(file) if line is None else f"{file}:{line}",
        )
    )


# Every trace that an issue of a Markdown board leaves: `issue new` gives no number for a second time.
#
# A deleted issue may have left a branch, which the next issue of that number would go on with. A fresh
# clone knows the branches of its remote; a machine that worked on the board knows more. What cannot be read
# tells nothing.


_PLACE = "symphony/numbers"
_OF_A_TENANT = re.compile(r"-[0-9a-f]{8}")


def numbers_of(board: Path, workflow: Path | None, environment: Mapping[str, str]) -> IssueNumbers:
    """What is known of the numbers of a board, whose WORKFLOW.md is looked for above it if none is named.

    The highest one is kept in the git directory around the board, which linked worktrees share and nobody
    commits; in the board's folder where there is none.
    """
    around = next((found for folder in board.parents if (found := _git_dir(folder))), None)
    workflow = workflow or next(
        (file for folder in board.parents if (file := folder / "WORKFLOW.md").is_file()), None
    )
    names = set(_of_git(around))
    if workflow is not None:
        names |= {*_of_workspaces(workflow, environment), *_of_journal(journal_path(workflow, environment))}
    names |= {name[: tail.start()] for name in names if (tail := _tail(name))}
    place = board if around is None or not os.access(around, os.W_OK) else around / _PLACE
    return IssueNumbers(folder=place, names=frozenset(names))


def _tail(name: str) -> re.Match[str] | None:
    """The digest at the end of the key that an issue got because its own was taken (`workspace.tenants`)."""
    found = list(_OF_A_TENANT.finditer(name))
    return found[-1] if found and found[-1].end() == len(name) else None


def _git_dir(folder: Path) -> Path | None:
    return common_dir(folder) if os.path.lexists(folder / ".git") else None


def _of_git(git_dir: Path | None) -> Iterator[str]:
    """The issues that have a branch here or in a remote, or had one."""
    if git_dir is None:
        return
    for ref in (*all_refs(git_dir, "refs/heads/"), *all_refs(git_dir, "refs/remotes/")):
        _, found, name = ref.partition(f"/{BRANCH_PREFIX}")
        if found:
            yield name
    yield from _stems(git_dir / BRANCH_CLAIMS)


def _of_workspaces(workflow: Path, environment: Mapping[str, str]) -> Iterator[str]:
    section = _section(workflow)
    root, repo = section.get("root"), section.get("repo")
    known = {**environment, STATE_DIR_VARIABLE: str(locate(workflow, environment))}
    try:
        named = resolve_root(str(root or ""), base=workflow.parent, environment=known) if root else None
    except ResolveError:
        named = None
    layout = Layout(named or default_workspace_root(environment))
    yield from _stems(layout.records)
    for mirror in _entries(layout.mirrors):
        yield from _of_git(mirror if mirror.suffix == ".git" else None)
    if isinstance(repo, str) and (local := workflow.parent / Path(repo)).is_dir():
        yield from _of_git(common_dir(local))


def _of_journal(journal: Path) -> Iterable[str]:
    if not journal.is_file():
        return ()
    from symphony.journal.model import UnusableError  # SQLite: only where there is something to read
    from symphony.journal.reader import open_reader

    try:
        with open_reader(journal) as reader:
            return reader.identifiers()
    except UnusableError:
        return ()


def _stems(folder: Path) -> Iterator[str]:
    return (path.stem for path in _entries(folder) if path.suffix == ".json")


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _section(workflow: Path) -> Mapping[str, Any]:
    """The `workspace` section as it stands there."""
    try:
        with workflow.open("rb") as opened:
            pieces = split(opened.read(_MAX_BYTES))
        front = None if pieces is None else load(pieces.front, profile=Profile.CORE)
    except (OSError, FrontMatterError):
        return {}
    section = None if front is None else front.value.get("workspace")
    return section if isinstance(section, dict) else {}


# How issues are shown: tables for people, documents for programs. Text of files never steers a terminal.


_PIPE_WIDTH = 200


def issue_document(board: Board, issue: Issue) -> BoardIssue:
    """One issue."""
    return BoardIssue(
        id=issue.id,
        title=issue.title,
        state=issue.state,
        labels=issue.labels,
        priority=issue.priority,
        assignee=issue.assignee_id,
        blocked_by=tuple(BoardBlocker(id=one.id, state=one.state) for one in issue.blocked_by),
        dispatchable=issue.dispatchable,
        reason=issue.not_dispatchable_reason,
        created=_instant(issue.created_at),
        path=str(board.store.path(issue.id)),
    )


def listing_document(board: Board, issues: Iterable[Issue], snapshot: Snapshot) -> BoardListing:
    """A list of issues, and the files that are none."""
    return BoardListing(
        board=str(board.config.path),
        issues=tuple(issue_document(board, issue) for issue in issues),
        problems=tuple(
            BoardProblem(id=issue_id, where=problem.failure.where, message=problem.failure.message)
            for issue_id, problem in sorted(
                snapshot.problems.items(), key=lambda item: natural_order(item[0])
            )
        ),
    )


def shown_document(board: Board, issue: Issue, notes: Sequence[StoredComment]) -> BoardIssueShown:
    """One issue with everything that is said about it."""
    return BoardIssueShown(
        **structs.asdict(issue_document(board, issue)),
        description=issue.description,
        comments=tuple(
            BoardComment(
                id=note.id,
                author=note.author,
                created=_instant(note.created),
                body=note.body,
                daemon=note.key is not None,
            )
            for note in notes
        ),
    )


def print_listing(issues: Sequence[Issue]) -> None:
    """A table, one line per issue."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ID", "STATE", "PRIO", "TITLE", "LABELS", "WAITS"):
        table.add_column(name, no_wrap=name in {"ID", "STATE", "PRIO"}, overflow="fold")
    for issue in issues:
        table.add_row(
            _line(issue.id),
            _line(issue.state),
            _line("" if issue.priority is None else str(issue.priority)),
            _line(issue.title),
            _line(", ".join(issue.labels)),
            _line(issue.not_dispatchable_reason or ""),
        )
    print_blocks(_console(), table)


def print_issue(board: Board, issue: Issue, notes: Sequence[StoredComment]) -> None:
    """Queries, description and comments below each other."""
    console = _console()
    console.print(_line(f"{issue.id}  {issue.title}"), style="bold")
    for name, value in _facts(board, issue).items():
        console.print(Text(f"{name:<10} "), _line(value), sep="")
    if issue.description is not None:
        console.print()
        console.print(_lines(issue.description))
    for note in notes:
        console.print()
        console.print(_line(f"{note.author}, {_instant(note.created) or note.id}"), style="bold")
        console.print(_lines(note.body))


def _facts(board: Board, issue: Issue) -> Mapping[str, str]:
    blockers = (f"{blocker.id} ({blocker.state or 'unknown'})" for blocker in issue.blocked_by)
    facts = {
        "state": issue.state,
        "priority": "" if issue.priority is None else str(issue.priority),
        "labels": ", ".join(issue.labels),
        "assignee": issue.assignee_id or "",
        "blocked by": ", ".join(blockers),
        "waits": issue.not_dispatchable_reason or "",
        "created": _instant(issue.created_at) or "",
        "file": str(board.store.path(issue.id)),
    }
    return {name: value for name, value in facts.items() if value}


def _console() -> Console:
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def _line(text: str) -> Text:
    """Text on one line; control and bidi characters as escapes, so that a title cannot drive the terminal."""
    return Text(printable(text))


def _lines(text: str) -> Text:
    return Text("\n").join(_line(line.replace("\t", "    ")) for line in text.split("\n"))


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


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
@text_file_option
@click.option("-s", "--state", help="The state to begin in.  [default: the first active state]")
@click.option("-l", "--label", "labels", multiple=True, help="A label; may be repeated.")
@click.option("-p", "--priority", type=click.IntRange(1, 4), help="1 is first.")
@click.option("-b", "--blocked-by", multiple=True, metavar="ID", help="An issue that must end first.")
@json_option
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
    if file is not None:
        if description is not None:
            raise click.UsageError("--description and --file exclude each other")
        description = read_text_argument(None, file, what="description", most=_MAX_CHARS)
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
        print_json(issue_document(board, made))
    else:
        click.echo(f"{made.id}  {board.store.path(made.id)}")


@issue.command(name="list", epilog=_LIST_EXAMPLES)
@click.option("-s", "--state", "states", multiple=True, help="Only issues in this state; may be repeated.")
@json_option
@_on_a_board
def list_(*, states: tuple[str, ...], as_json: bool, workflow: Path | None) -> None:
    """List issues, with what they wait for. Files that are no usable issues are told on stderr."""
    board = open_board(workflow)
    wanted = {normalise_state(board.legal_state(state)) for state in states}
    snapshot = board.all()
    chosen = [one for one in snapshot.issues if not wanted or normalise_state(one.state) in wanted]
    chosen.sort(key=lambda one: natural_order(one.id))
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
@json_option
@_on_a_board
def show(*, issue_id: str, as_json: bool, workflow: Path | None) -> None:
    """Show one issue with its description and comments."""
    board = open_board(workflow)
    found = board.find(issue_id)
    notes, problems = CommentStore(board.config.comments, now=board.now).read(found.id)
    for problem in problems:
        warn(f"{problem.failure.where}: {problem.failure.message}")
    if as_json:
        print_json(shown_document(board, found, notes))
    else:
        print_issue(board, found, notes)


@issue.command(epilog=_MOVE_EXAMPLES)
@click.argument("issue_id", metavar="ID", shell_complete=complete_issue)
@click.argument("state")
@json_option
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
@text_file_option
@click.option("--author", help="Who says it.  [default: your login name]")
@json_option
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
    words = read_text_argument(text, file, what="comment", most=_MAX_CHARS)
    board = open_board(workflow)
    found = board.find(issue_id)
    note_id = CommentStore(board.config.comments, now=board.now).add(found.id, words, author=_author(author))
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

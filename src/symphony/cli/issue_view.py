"""How issues are shown: tables for people, documents for programs. Text of files never steers a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

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
from symphony.cli.status_view import show
from symphony.domain.ids import by_number
from symphony.domain.issue import Issue
from symphony.trackers.markdown import Board, Note, Snapshot, printable

__all__ = ["issue_document", "listing_document", "print_issue", "print_listing", "shown_document"]

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
            for issue_id, problem in sorted(snapshot.problems.items(), key=lambda item: by_number(item[0]))
        ),
    )


def shown_document(board: Board, issue: Issue, notes: Sequence[Note]) -> BoardIssueShown:
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
    show(_console(), table)


def print_issue(board: Board, issue: Issue, notes: Sequence[Note]) -> None:
    """Facts, description and comments below each other."""
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

"""How issues are shown: tables for people, JSON for programs. Text from files never reaches a terminal raw.

JSON shapes:
- issue: `{"id", "title", "state", "labels": [], "priority": 1-4|null, "assignee": text|null,
  "blocked_by": [{"id", "state": text|null}], "dispatchable", "reason": text|null,
  "created": RFC 3339|null, "path"}`
- list: `{"board", "issues": [issue], "problems": [{"id", "where": "path:line", "message"}]}`
- show: issue with `"description": text|null`, `"comments": [{"id", "author", "created", "body", "daemon"}]`
- new: issue
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from symphony.cli.status_view import show
from symphony.domain.issue import Issue
from symphony.trackers.markdown import Board, Note, Snapshot, printable

__all__ = ["issue_json", "listing_json", "print_issue", "print_listing", "shown_json"]

_PIPE_WIDTH = 200


def issue_json(board: Board, issue: Issue) -> dict[str, Any]:
    """One issue."""
    return {
        "id": issue.id,
        "title": issue.title,
        "state": issue.state,
        "labels": list(issue.labels),
        "priority": issue.priority,
        "assignee": issue.assignee_id,
        "blocked_by": [{"id": blocker.id, "state": blocker.state} for blocker in issue.blocked_by],
        "dispatchable": issue.dispatchable,
        "reason": issue.not_dispatchable_reason,
        "created": _instant(issue.created_at),
        "path": str(board.store.path(issue.id)),
    }


def listing_json(board: Board, issues: Iterable[Issue], snapshot: Snapshot) -> dict[str, Any]:
    """A list of issues, and the files that are none."""
    return {
        "board": str(board.config.path),
        "issues": [issue_json(board, issue) for issue in issues],
        "problems": [
            {"id": issue_id, "where": problem.failure.where, "message": problem.failure.message}
            for issue_id, problem in sorted(snapshot.problems.items())
        ],
    }


def shown_json(board: Board, issue: Issue, notes: Sequence[Note]) -> dict[str, Any]:
    """One issue with everything that is said about it."""
    return {
        **issue_json(board, issue),
        "description": issue.description,
        "comments": [
            {
                "id": note.id,
                "author": note.author,
                "created": _instant(note.created),
                "body": note.body,
                "daemon": note.key is not None,
            }
            for note in notes
        ],
    }


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

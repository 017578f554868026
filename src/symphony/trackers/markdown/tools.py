"""What a session may do with its own issue: show it, comment on it, move it (AG17, TR9).

The daemon executes these; the issue is the session's and cannot be named by the model. Every answer is a
`ToolResult`, also for nonsense: `{"error": {"message": ..., "hint": ...}}`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from symphony.domain.failures import SymphonyError
from symphony.domain.issue import Issue
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.issue_tools import MAX_STATE_CHARS, argument_problem, closed_schema
from symphony.trackers.markdown.board import Board
from symphony.trackers.markdown.document import timestamp
from symphony.trackers.markdown.names import AGENT
from symphony.trackers.markdown.notes import MAX_BODY_CHARS, Note, Notes

__all__ = ["execute", "specs"]

_SHOWN_COMMENTS = 20
_SHOWN_CHARS = 4_000


def specs(states: tuple[str, ...]) -> tuple[ToolSpec, ...]:
    """The three tools; `states` are listed to the model as the legal targets of a move."""
    return (
        ToolSpec(
            name="board_show",
            description="Show the issue you are working on as it is on the board, with its newest comments.",
            input_schema=closed_schema(),
        ),
        ToolSpec(
            name="board_comment",
            description="Add a comment in Markdown to the issue you are working on.",
            input_schema=closed_schema(body={"type": "string", "minLength": 1, "maxLength": MAX_BODY_CHARS}),
        ),
        ToolSpec(
            name="board_move",
            description="Move the issue you are working on to another state.",
            input_schema=closed_schema(state={"type": "string", "enum": list(states)}),
        ),
    )


def execute(
    board: Board, notes: Notes, name: str, arguments: Mapping[str, Any], *, issue: Issue
) -> ToolResult:
    """Run one tool, synchronously; never raises."""
    try:
        return _run(board, notes, name, arguments, issue)
    except SymphonyError as error:
        return ToolResult.error(error.failure.message, hint=error.failure.hint)
    except Exception as error:  # noqa: BLE001 - a call that is not answered would stall the session (AG18)
        return ToolResult.error(f"the tool failed: {type(error).__name__}")


def _run(board: Board, notes: Notes, name: str, arguments: Mapping[str, Any], issue: Issue) -> ToolResult:
    match name:
        case "board_show":
            problem = argument_problem(arguments)
            return ToolResult.error(problem) if problem else _show(board, notes, issue)
        case "board_comment":
            problem = argument_problem(arguments, body=MAX_BODY_CHARS)
            return ToolResult.error(problem) if problem else _comment(board, notes, issue, arguments["body"])
        case "board_move":
            problem = argument_problem(arguments, state=MAX_STATE_CHARS)
            if problem:
                return ToolResult.error(problem, hint=f"states: {', '.join(board.config.states)}")
            moved = board.move(issue.id, arguments["state"])
            return ToolResult.of({"issue": moved.issue_id, "before": moved.before, "state": moved.after})
        case _:
            return ToolResult.error(f"there is no tool {name[:80]!r}")


def _comment(board: Board, notes: Notes, issue: Issue, body: str) -> ToolResult:
    found = board.find(issue.id)
    written = ToolResult.of({"issue": found.id, "comment": notes.add(found.id, body, author=AGENT)})
    return replace(written, commented=True)


def _show(board: Board, notes: Notes, issue: Issue) -> ToolResult:
    now = board.find(issue.id)
    written = notes.of(now.id)[0]
    return ToolResult.of(
        {
            "id": now.id,
            "title": now.title,
            "state": now.state,
            "states": list(board.config.states),
            "labels": list(now.labels),
            "priority": now.priority,
            "blocked_by": [{"id": blocker.id, "state": blocker.state} for blocker in now.blocked_by],
            "description": _cut(now.description or "", MAX_BODY_CHARS),
            "comments": [_shown(note) for note in written[-_SHOWN_COMMENTS:]],
            "comments_left_out": max(0, len(written) - _SHOWN_COMMENTS),
        },
        read_only=True,
    )


def _shown(note: Note) -> Mapping[str, Any]:
    created = None if note.created is None else timestamp(note.created)
    return {"author": note.author, "created": created, "body": _cut(note.body, _SHOWN_CHARS)}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} (cut at {limit} characters)"

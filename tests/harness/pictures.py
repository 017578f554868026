"""Documents as a busy daemon would give them, and how the command line draws them."""

import io
from collections.abc import Mapping
from typing import Any

import msgspec
from rich.console import RenderableType

from harness.chronicle import Chronicle
from symphony.cli.documents import KnownIssue, Status
from symphony.cli.formatting import console_for, print_blocks

__all__ = [
    "BUDGETS",
    "DAEMON",
    "NOW",
    "busy",
    "drawn",
    "known",
    "merged",
    "needing_people",
    "of_files",
    "status_of",
]


NOW = "2026-03-01T12:00:00Z"
DAEMON = {
    "pid": 4711,
    "started_at": "2026-03-01T09:46:00Z",
    "host": None,
    "port": None,
    "socket": "/s/control.sock",
}
BUDGETS = {
    "day": "2026-03-01",
    "day_tokens": 5_200_000,
    "max_tokens_per_day": 5_000_000,
    "max_tokens_per_issue": 200_000,
    "max_turns_per_issue": 30,
    "max_turns_without_progress": 2,
    "max_attempts_without_progress": 3,
}
"""All of the day's budget is used, and the limits of an issue are set."""
AGENT = {"name": "codex", "kind": "codex", "model": None, "reason": "the default", "instead_of": None}


def drawn(picture: RenderableType, *, width: int, terminal: bool = False) -> str:
    """What is printed at this width."""
    out = io.StringIO()
    colours: dict[str, Any] = {"force_terminal": True, "color_system": "standard"} if terminal else {}
    print_blocks(console_for(file=out, width=width, **colours), picture)
    return out.getvalue()


def merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The document with other values here and there; what is changed inside of an object leaves the rest."""
    found = dict(document)
    for name, value in changes.items():
        held = found.get(name)
        if isinstance(held, Mapping) and isinstance(value, Mapping):
            found[name] = merged(held, value)
        else:
            found[name] = value
    return found


def status_of(document: Mapping[str, Any]) -> Status:
    """The document as the command line reads it."""
    return msgspec.convert(document, Status)


def known(document: Mapping[str, Any], **changes: Any) -> KnownIssue:
    """The document of an issue as the command line reads it."""
    found = {"source": "daemon", "daemon": DAEMON, **document}
    return msgspec.convert(merged(found, changes), KnownIssue)


def _row(identifier: str, title: str, **fields: Any) -> dict[str, Any]:
    return {
        "issue_id": identifier,
        "issue_identifier": identifier,
        "issue_url": None,
        "title": title,
        "state": "Todo",
        "agent": AGENT,
        "worker_host": None,
        "workspace_path": None,
        **fields,
    }


def _run(identifier: str, title: str, **fields: Any) -> dict[str, Any]:
    first = {"attempt": None, "attempt_number": 1, "attempt_limit": 5, "stopping": None}
    none = {"last_event": None, "resumed_from": None, "skills": None}
    return _row(identifier, title, run_id="r-1", turn_count=1, **first, **none, **fields)


def busy(**changes: Any) -> dict[str, Any]:
    """One issue of each status and some more, three seconds after the last sign of life."""
    document: dict[str, Any] = {
        "source": "daemon",
        "daemon": DAEMON,
        "generated_at": NOW,
        "health": {
            "status": "ok",
            "polls": 9,
            "last_poll_at": NOW,
            "poll_failure": None,
            "workflow_failure": None,
            "skipped_records": [],
        },
        "counts": {"running": 2, "retrying": 1, "blocked": 1, "waiting": 2, "ready": 0},
        "slots": {"used": 2, "limit": 2},
        "running": [
            _run(
                "SYM-12",
                "Fix the login page",
                turn=2,
                stage="streaming_turn",
                session_id="t-1",
                started_at="2026-03-01T11:45:30Z",
                last_event_at="2026-03-01T11:59:57Z",
                last_message="Running the test suite with the new session cookie",
                tokens={"input_tokens": 40_000, "output_tokens": 5_200, "total_tokens": 45_200},
            ),
            _run(
                "SYM-7",
                "Speed the import up",
                turn=1,
                stage="preparing_workspace",
                session_id=None,
                started_at="2026-03-01T11:59:52Z",
                last_event_at=None,
                last_message=None,
                tokens={"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
            ),
        ],
        "retrying": [
            _row(
                "SYM-4",
                "Add a dark mode",
                attempt=3,
                attempt_number=4,
                attempt_limit=5,
                due_at="2026-03-01T12:00:18Z",
                error="turn_failed: it broke",
                last_error="turn_failed: it broke",
            )
        ],
        "blocked": [
            _row(
                "SYM-9",
                "Move the data",
                error="no progress in 5 attempts",
                session_id=None,
                last_event=None,
                last_message=None,
                last_event_at=None,
                question=None,
                resumable=False,
                not_obeyed=[],
                answers_failure=None,
                spent={"tokens": 0, "turns": 0},
                failure={
                    "code": "no_progress",
                    "message": "…",
                    "hint": "say more in the description",
                    "where": None,
                },
                blocked_at="2026-03-01T10:55:00Z",
            )
        ],
        "waiting": [
            _row(
                "SYM-20",
                "Write the docs",
                reason={"code": "no_slot", "message": "all 2 agent slots are in use"},
            ),
            _row(
                "SYM-21",
                "Ask Legal",
                reason={"code": "label_missing", "message": "required label missing: 'agent'"},
            ),
        ],
        "codex_totals": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 1_234_567,
            "seconds_running": 1.0,
        },
        "skills_totals": {"runs": 9, "listed": 18, "dropped": 0, "malformed": 1},
        "rate_limits": None,
        "polling": {"checking": False, "next_poll_in_ms": 12_400, "poll_interval_ms": 30_000},
    }
    return merged(merged(Chronicle().document(), document), changes)


def needing_people(**changes: Any) -> dict[str, Any]:
    """The same, with an issue that asks, one that is ready for review, and an agent that says something."""
    document = busy()
    (blocked,) = document["blocked"]
    (first, second) = document["running"]
    asks = {
        "issue_identifier": "SYM-31",
        "title": "Pick a colour",
        "error": "the agent asks: Which colour, red or blue?",
        "question": "Which colour, red or blue?",
        "issue_url": "https://tracker.example/workspace/project/issues/31-pick-a-colour-for-the-button",
        "failure": {"hint": None},
    }
    ready = _row(
        "SYM-5",
        "Mend the footer",
        delivered={
            "branch": "symphony/SYM-5",
            "head": "5d1c" * 10,
            "work": {"commits": 2, "files_changed": 1, "insertions": 12, "deletions": 3},
            "push": None,
            "push_failure": None,
            "branch_failure": None,
        },
        turns=2,
        total_tokens=9_000,
        cost_usd=None,
        summary="The footer stays at the bottom",
        pull_request_url=None,
        look=["symphony diff SYM-5", "git diff main...symphony/SYM-5"],
        ended_at="2026-03-01T11:00:00Z",
    )
    first = {
        **first,
        "last_words": "The session cookie was wrong; I test it",
        "last_message": "command: npm test",
    }
    found = {
        "blocked": [merged(blocked, asks), blocked],
        "ready": [ready],
        "running": [first, second],
        "counts": {"blocked": 2, "ready": 1},
    }
    return merged(merged(document, found), changes)


def of_files(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same as if no daemon ran: nothing but what waits."""
    none: dict[str, Any] = {"running": [], "retrying": [], "blocked": []}
    return {**document, **none, "source": "files", "daemon": None}

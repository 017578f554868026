"""What is going on right now, read off the scheduler's state: pure, so every surface says the same.

One row per issue the daemon knows of, with the reason why it is not running in the words of `policy`.
"""

from dataclasses import dataclass

from symphony.domain.ids import by_number
from symphony.domain.issue import Issue
from symphony.observability.waiting import waiting
from symphony.scheduler import policy
from symphony.scheduler.state import Blocked, Running, State

__all__ = ["Row", "blocked_words", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One issue; `status` is `running`, `retrying`, `blocked` or `waiting`; `detail` is for people."""

    issue_id: str
    issue_identifier: str
    title: str
    state: str
    status: str
    detail: str
    turn: int = 0
    total_tokens: int = 0


def rows(state: State) -> tuple[Row, ...]:
    """All known issues, in the order of their identifiers (`ids.by_number`)."""
    found = [_running(run) for run in state.running.values()]
    found += [
        _row(retry.issue, "retrying", policy.retry_words(retry, state.settings))
        for retry in state.retrying.values()
    ]
    found += [_row(entry.issue, "blocked", blocked_words(entry)) for entry in state.blocked.values()]
    found += [_row(issue, "waiting", reason.message) for issue, reason in waiting(state)]
    return tuple(sorted(found, key=lambda row: by_number(row.issue_identifier)))


def blocked_words(blocked: Blocked) -> str:
    """Why an issue waits for a person, what its agent asks, and what to do: one line."""
    failure, question = blocked.failure, blocked.question
    asks = "" if question is None or question in failure.message else f", which asks: {question}"
    return f"{failure.message}{asks}{'' if failure.hint is None else f' → {failure.hint}'}"


def _running(run: Running) -> Row:
    issue, report = run.issue, run.report
    stage = report.stage.value.replace("_", " ")
    return Row(
        issue_id=issue.id,
        issue_identifier=issue.identifier,
        title=issue.title,
        state=issue.state,
        status="running",
        detail=report.last_message or stage,
        turn=run.turn,
        total_tokens=report.total_tokens,
    )


def _row(issue: Issue, status: str, detail: str) -> Row:
    return Row(
        issue_id=issue.id,
        issue_identifier=issue.identifier,
        title=issue.title,
        state=issue.state,
        status=status,
        detail=detail,
    )

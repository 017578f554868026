"""The conditions that all work is under, as the API tells them: pause, budgets, tracker, journal. Pure.

They stand in the document of the daemon and in that of each issue, because they are answers to the question
why nothing happens.
"""

from datetime import datetime
from typing import Any

from symphony.journal.model import Health
from symphony.observability.history import History
from symphony.observability.moments import utc_text
from symphony.scheduler.blocks import answerable
from symphony.scheduler.inputs import Resume, Spent
from symphony.scheduler.state import Blocked, State
from symphony.scheduler.weather import circuit, quiet_until

__all__ = ["conditions", "question", "resumed_from", "spent"]

Document = dict[str, Any]

_NOTHING = Spent()


def conditions(
    state: State, history: History, *, journal: Health | None, now_ms: int, now: datetime
) -> Document:
    """`paused`, `budgets`, `tracker` and `journal`; the last is null where nothing is known of one."""
    return {
        "paused": state.paused,
        "budgets": _budgets(state),
        "tracker": _tracker(state, history, now_ms, now),
        "journal": None if journal is None else _journal(journal),
    }


def spent(state: State, issue_id: str) -> Document:
    """What an issue used of its budget."""
    used = state.spent.get(issue_id, _NOTHING)
    return {"tokens": used.tokens, "turns": used.turns}


def question(blocked: Blocked) -> str | None:
    """What the agent wants to be told, in its own words where it gave any; null where it asks nothing."""
    return blocked.question or (
        blocked.failure.message if answerable(blocked.failure, blocked.question) else None
    )


def resumed_from(resume: Resume | None) -> Document | None:
    """What a run goes on with; neither the question nor the answer, which may be long."""
    if resume is None:
        return None
    thread = resume.thread
    return {"reason": resume.reason.value, "thread_id": None if thread is None else thread.thread_id}


def _budgets(state: State) -> Document:
    settings = state.settings
    return {
        "day": state.day,
        "day_tokens": state.day_tokens,
        "max_tokens_per_day": settings.max_tokens_per_day,
        "max_tokens_per_issue": settings.max_tokens_per_issue,
        "max_turns_per_issue": settings.max_turns_per_issue,
        "max_attempts_without_progress": settings.max_attempts_without_progress,
    }


def _tracker(state: State, history: History, now_ms: int, now: datetime) -> Document:
    weather = state.weather
    until_ms = quiet_until(state, now_ms)
    return {
        "circuit": circuit(state, now_ms).value,
        "failures_in_a_row": weather.failures,
        "until": None if until_ms is None else utc_text(history.wall(until_ms, now_ms=now_ms, now=now)),
        "last_error": None if weather.failure is None else weather.failure.message,
    }


def _journal(health: Health) -> Document:
    failure = health.failure
    return {
        "state": health.state.value,
        "reason": None if failure is None else failure.message,
        "hint": None if failure is None else failure.hint,
    }

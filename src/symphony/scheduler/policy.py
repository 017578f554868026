"""Judgements on one issue: where it stands, whether it may start, in which order, after which wait.

The reason that `eligible` gives is the text of `explain`, of the log line, of the API and of the terminal:
there is no second wording anywhere.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.issue import Issue, is_routable, normalise_state
from symphony.scheduler import budgets, choice
from symphony.scheduler.inputs import ResumeReason, SchedulerSettings
from symphony.scheduler.state import Drain, Retry, Running, State

__all__ = [
    "Eligible",
    "Ineligible",
    "ReasonCode",
    "Standing",
    "attempt",
    "attempt_facts",
    "attempt_words",
    "backoff_ms",
    "counts_as_idle",
    "eligible",
    "given_up",
    "in_active_state",
    "retry_words",
    "same_request",
    "slot_shortage",
    "sort_key",
    "standing",
    "unfit",
]

CONTINUATION_DELAY_MS = 1_000
_FIRST_BACKOFF_MS = 10_000
_MAX_EXPONENT = 10
_UNRANKED = 5
_RANKS = range(1, 5)


class Standing(StrEnum):
    """What an issue's present snapshot means for work on it (SC12)."""

    ACTIVE = "active"
    TERMINAL = "terminal"
    UNROUTABLE = "unroutable"
    INACTIVE = "inactive"
    MISSING = "missing"


class ReasonCode(StrEnum):
    """Why an issue does not start; stable codes of `waiting[]` in the API (DESIGN 11a)."""

    INCOMPLETE = "incomplete"
    TERMINAL = "terminal"
    INACTIVE = "inactive"
    NOT_DISPATCHABLE = "not_dispatchable"
    LABEL_MISSING = "label_missing"
    RUNNING = "running"
    RETRYING = "retrying"
    BLOCKED = "blocked"
    BLOCKER_RUNNING = "blocker_running"
    SAME_IDENTIFIER = "same_identifier"
    DRAINING = "draining"
    WORKFLOW_INVALID = "workflow_invalid"
    PAUSED = "paused"
    DAY_BUDGET = "day_budget"
    AGENT_LIMITED = "agent_limited"
    NO_SLOT = "no_slot"
    NO_STATE_SLOT = "no_state_slot"


@dataclass(frozen=True, slots=True)
class Eligible:
    """The issue may start now."""


@dataclass(frozen=True, slots=True)
class Ineligible:
    """The issue may not start now; `message` is for people."""

    code: ReasonCode
    message: str


def in_active_state(issue: Issue, settings: SchedulerSettings) -> bool:
    """Whether the state is active and not terminal: terminal beats active when a name is in both."""
    state = normalise_state(issue.state)
    return state in settings.active_states and state not in settings.terminal_states


def standing(issue: Issue | None, settings: SchedulerSettings) -> Standing:
    """Where a refreshed issue stands, in the order of tests of SC12; null is one that is gone."""
    if issue is None:
        return Standing.MISSING
    if normalise_state(issue.state) in settings.terminal_states:
        return Standing.TERMINAL
    if not is_routable(issue, settings.required_labels):
        return Standing.UNROUTABLE
    return Standing.ACTIVE if in_active_state(issue, settings) else Standing.INACTIVE


def sort_key(issue: Issue) -> tuple[int, bool, float, str, str]:
    """Dispatch order: priority 1..4 then the rest, oldest first, identifier last (SC6, DM9).

    A date without zone counts as UTC, so that the order does not depend on the machine. The id settles what
    identifiers should: sets of ids are sorted by this key too, and have no order of their own.
    """
    rank = issue.priority if issue.priority in _RANKS else _UNRANKED
    created = issue.created_at
    if created is not None and created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    age = created.timestamp() if created else 0.0
    return (rank or _UNRANKED, created is None, age, issue.identifier, issue.id)


def backoff_ms(attempt: int, cap_ms: int) -> int:
    """Wait before failure attempt `attempt` >= 1: 10 s doubling up to the cap (RT2, RT3)."""
    exponent = min(max(attempt, 1) - 1, _MAX_EXPONENT)
    return int(min(_FIRST_BACKOFF_MS * 2**exponent, cap_ms))


def same_request(before: Issue, after: Issue) -> bool:
    """Whether nothing changed that would unblock an issue: state, labels, title, description (RT5)."""
    return (
        normalise_state(before.state) == normalise_state(after.state)
        and set(before.labels) == set(after.labels)
        and before.title == after.title
        and before.description == after.description
    )


_OUTAGES = frozenset(
    {
        Category.AGENT_RATE_LIMITED,
        Category.AGENT_USAGE_LIMIT,
        Category.AGENT_AUTH,
        Category.CODEX_NOT_FOUND,
        Category.AGENT_NOT_FOUND,
    }
)


def counts_as_idle(failure: Failure | None) -> bool:
    """Whether an attempt without progress speaks against the issue.

    An outage of the tracker, the host, the repository, the login or the model's quota does not: otherwise one
    bad hour at night would block every issue until somebody came to look. A bug of ours does, as it may
    repeat for ever and cost tokens each time, and so does a repository that is configured wrongly.
    """
    if failure is None or failure.category is Category.INTERNAL:
        return True
    if failure.category is Category.WORKSPACE_REPOSITORY:
        return failure.blame is Blame.CONFIG
    return failure.blame not in {Blame.TRACKER, Blame.HOST} and failure.category not in _OUTAGES


def attempt(entry: Running | Retry, settings: SchedulerSettings) -> tuple[int, int]:
    """Which attempt runs or comes next, as people count them, and which one is the last.

    The first is 1. After the last a person is asked, unless an attempt makes progress before; that, and one
    that an outage ends, moves the last. The `attempt` of the specification is another number:
    it is None for the first run, 1 again after every clean end, and a retry that finds no slot raises it.
    """
    number = entry.runs if isinstance(entry, Running) else entry.runs + 1
    left = settings.max_attempts_without_progress - entry.idle_attempts
    return number, number - 1 + max(left, 1)


def attempt_words(entry: Running | Retry, settings: SchedulerSettings) -> str:
    """The same for people: `3 of 5`."""
    number, last = attempt(entry, settings)
    return f"{number} of {last}"


def attempt_facts(entry: Running | Retry, settings: SchedulerSettings) -> dict[str, int | None]:
    """The same as fields of a log line or a document, with the number of the specification."""
    number, last = attempt(entry, settings)
    return {"attempt": entry.attempt, "attempt_number": number, "attempt_limit": last}


def given_up(retry: Retry, settings: SchedulerSettings) -> bool:
    """Whether `run --once` no longer waits for this retry: hopeless, or failed too often in a row."""
    return retry.hopeless or retry.failures >= settings.max_attempts_without_progress


def slot_shortage(issue: Issue, state: State, *, picked: Counter[str] | None = None) -> Ineligible | None:
    """Why there is no slot for the issue, or null when there is one (SC7, SC8).

    Usage counts running entries by their current state; `picked` adds those about to start, by state.
    """
    picked = picked or Counter()
    limit = state.settings.max_concurrent_agents
    if len(state.running) + picked.total() >= limit:
        return Ineligible(ReasonCode.NO_SLOT, f"all {limit} agent slots are in use")
    own = normalise_state(issue.state)
    cap = state.settings.max_concurrent_by_state.get(own)
    if cap is not None:
        used = sum(normalise_state(run.issue.state) == own for run in state.running.values())
        if used + picked[own] >= cap:
            message = f"all {cap} agent slots for state {issue.state!r} are in use"
            return Ineligible(ReasonCode.NO_STATE_SLOT, message)
    return None


def retry_words(retry: Retry, settings: SchedulerSettings) -> str:
    """What a waiting claim waits for."""
    if retry.error is None and retry.resume is not None:
        answered = retry.resume.reason is ResumeReason.ANSWERED
        return "a person answered; it goes on in a moment" if answered else "it was interrupted and goes on"
    if retry.error is None:
        return "the last attempt ended well; is there more to do?"
    return f"waiting for attempt {attempt_words(retry, settings)} after: {retry.error}"


def _claimed(issue: Issue, state: State) -> Ineligible | None:
    if issue.id in state.running:
        return Ineligible(ReasonCode.RUNNING, "an agent is running")
    if retry := state.retrying.get(issue.id):
        return Ineligible(ReasonCode.RETRYING, retry_words(retry, state.settings))
    if blocked := state.blocked.get(issue.id):
        return Ineligible(ReasonCode.BLOCKED, f"waiting for a person: {blocked.failure.message}")
    return None


_REQUIRED = ("id", "identifier", "title", "state")


def _missing_labels(issue: Issue, required: Iterable[str]) -> str:
    missing = [repr(label) for label in required if not is_routable(issue, [label])]
    return f"required label{'s' if len(missing) > 1 else ''} missing: {', '.join(missing)}"


def unfit(issue: Issue, settings: SchedulerSettings) -> Ineligible | None:
    """Why the issue, as it stands at the tracker, is not to be worked on; `None` if it is."""
    empty = [name for name in _REQUIRED if not getattr(issue, name).strip()]
    if empty:
        return Ineligible(ReasonCode.INCOMPLETE, f"the tracker gave no {', '.join(empty)}")
    match standing(issue, settings):
        case Standing.TERMINAL:
            return Ineligible(ReasonCode.TERMINAL, f"state {issue.state!r} is terminal")
        case Standing.UNROUTABLE if not issue.dispatchable:
            reason = issue.not_dispatchable_reason or "the tracker marks it as not dispatchable"
            return Ineligible(ReasonCode.NOT_DISPATCHABLE, reason)
        case Standing.UNROUTABLE:
            return Ineligible(ReasonCode.LABEL_MISSING, _missing_labels(issue, settings.required_labels))
        case Standing.INACTIVE:
            return Ineligible(ReasonCode.INACTIVE, f"state {issue.state!r} is not active")
        case _:
            return None


def _behind(issue: Issue, state: State) -> Ineligible | None:
    """A blocker may be over on the board while its run still delivers the work that this issue waits for."""
    for blocker in issue.blocked_by:
        if blocker.id in state.running:
            message = f"the run of {blocker.identifier or blocker.id} has not ended yet"
            return Ineligible(ReasonCode.BLOCKER_RUNNING, message)
    return None


def _twin(issue: Issue, state: State) -> Ineligible | None:
    """Two issues of one identifier, against the rule (DM4), would work in one directory at the same time."""
    for run in state.running.values():
        if run.issue.identifier == issue.identifier and run.issue.id != issue.id:
            message = f"another issue is called {issue.identifier} too (id {run.issue.id}), and is running"
            return Ineligible(ReasonCode.SAME_IDENTIFIER, message)
    return None


def _closed(state: State) -> Ineligible | None:
    if state.drain is not Drain.NO:
        return Ineligible(ReasonCode.DRAINING, "the daemon is shutting down")
    if state.hold is not None:
        return Ineligible(ReasonCode.WORKFLOW_INVALID, f"the workflow is invalid: {state.hold.line}")
    if state.paused:
        return Ineligible(ReasonCode.PAUSED, "an operator paused the daemon")
    return None


def _out_of_budget(issue: Issue, state: State) -> Ineligible | None:
    used = budgets.day_used(state, issue)
    return Ineligible(ReasonCode.DAY_BUDGET, used.message) if used else None


def _without_agent(issue: Issue, state: State) -> Ineligible | None:
    if not state.limited:
        return None
    retry = state.retrying.get(issue.id)
    of_thread = choice.thread_agent(retry.resume) if retry else None
    if choice.waits_until(state, issue, of_thread) is None:
        return None
    words = choice.limit_words(state, choice.choose(state, issue, of_thread).name)
    return Ineligible(ReasonCode.AGENT_LIMITED, f"the agent {words}, and no other may take its place now")


def eligible(
    issue: Issue, state: State, *, picked: Counter[str] | None = None, own_claim: bool = False
) -> Eligible | Ineligible:
    """Whether the issue may start now, or the first reason why not (SC5).

    `own_claim` ignores the issue's own retry entry, for the moment when that retry comes due (RT6).
    """
    return (
        unfit(issue, state.settings)
        or (None if own_claim else _claimed(issue, state))
        or _behind(issue, state)
        or _closed(state)
        or _out_of_budget(issue, state)
        or _without_agent(issue, state)
        or slot_shortage(issue, state, picked=picked)
        or _twin(issue, state)
        or Eligible()
    )

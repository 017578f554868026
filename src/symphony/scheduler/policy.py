"""Judgements on one issue: may it start, in which order, and how long does a retry wait.

The log, `symphony explain`, the API and the terminal show the message of `eligibility`.
"""

from collections import Counter
from dataclasses import replace
from datetime import UTC
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from symphony.domain import Blame, Category, Failure, Issue, Phase, is_routable, normalise_state
from symphony.scheduler import agents, budgets, hosts
from symphony.scheduler.messages import Resume, ResumeReason, SchedulerSettings
from symphony.scheduler.state import Drain, Retry, Running, State

# --- what the tracker says of an issue -------------------------------------------------------------------


class TrackerStatus(StrEnum):
    """What the latest snapshot of an issue means for work on it."""

    ACTIVE = "active"
    TERMINAL = "terminal"
    UNROUTABLE = "unroutable"
    INACTIVE = "inactive"
    MISSING = "missing"


def in_active_state(issue: Issue, settings: SchedulerSettings) -> bool:
    """Whether the state is active. A state that is configured as both active and terminal is terminal."""
    state = normalise_state(issue.state)
    return state in settings.active_states and state not in settings.terminal_states


def tracker_status(issue: Issue | None, settings: SchedulerSettings) -> TrackerStatus:
    """The status of a refreshed issue; `None` is an issue that no longer exists."""
    if issue is None:
        return TrackerStatus.MISSING
    if normalise_state(issue.state) in settings.terminal_states:
        return TrackerStatus.TERMINAL
    if not is_routable(issue, settings.required_labels):
        return TrackerStatus.UNROUTABLE
    return TrackerStatus.ACTIVE if in_active_state(issue, settings) else TrackerStatus.INACTIVE


def may_work(issue: Issue, resume: Resume | None, settings: SchedulerSettings) -> bool:
    """Whether the tracker's state lets a run go on.

    A run may go on in an active state, after feedback in any state, and in the state where it handed its work
    over until the work is verified.
    """
    status = tracker_status(issue, settings)
    if status is TrackerStatus.ACTIVE:
        return True
    if resume is None:
        return False
    if status is TrackerStatus.INACTIVE and resume.after_handoff:
        return True
    return is_handed_over(issue, resume) and is_routable(issue, settings.required_labels)


def is_handed_over(issue: Issue | None, resume: Resume | None) -> bool:
    """Whether the issue is in the state where a run handed over its work, which is not verified yet."""
    return (
        issue is not None
        and resume is not None
        and resume.handed_over_to is not None
        and normalise_state(issue.state) == resume.handed_over_to
    )


def seen_elsewhere(issue: Issue, resume: Resume | None) -> Resume | None:
    """The resume, without `handed_over_to` if the issue has left that state."""
    if resume is None or resume.handed_over_to is None or is_handed_over(issue, resume):
        return resume
    return replace(resume, handed_over_to=None, after_handoff=False)


def same_content(before: Issue, after: Issue) -> bool:
    """Whether state, labels, title and description are the same: a change of them unblocks an issue."""
    return (
        normalise_state(before.state) == normalise_state(after.state)
        and set(before.labels) == set(after.labels)
        and before.title == after.title
        and before.description == after.description
    )


# --- eligibility -----------------------------------------------------------------------------------------


class ReasonCode(StrEnum):
    """Why an issue does not start; the stable codes of `waiting[]` in the API."""

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
    NO_HOST_SLOT = "no_host_slot"


class UsedSlots(Struct, frozen=True, kw_only=True):
    """The slots in use, by normalised state of the issue and by host."""

    by_state: Counter[str] = msgspec.field(default_factory=Counter)
    by_host: Counter[str] = msgspec.field(default_factory=Counter)


class Eligible(Struct, frozen=True):
    """The issue may start now."""


class Ineligible(Struct, frozen=True):
    """The issue may not start now; `message` is for people."""

    code: ReasonCode
    message: str


def eligibility(
    issue: Issue,
    state: State,
    *,
    used: UsedSlots | None = None,
    reserved: Counter[str] | None = None,
    own_claim: Retry | None = None,
) -> Eligible | Ineligible:
    """Whether the issue may start now, or the first reason why not (specification section 8.2).

    Args:
        issue: the issue to judge.
        state: the state of the scheduler.
        used: the `used_slots` of the state, if they are counted once for many issues.
        reserved: slots that other issues are about to take, by normalised state.
        own_claim: the retry of the issue itself, which is due and does not count as a claim.
    """
    unfit = unsuitable(issue, state.settings)
    resume = None if own_claim is None else own_claim.resume
    left = {ReasonCode.INACTIVE, ReasonCode.TERMINAL}
    if unfit is not None and unfit.code in left and may_work(issue, resume, state.settings):
        unfit = None
    return (
        unfit
        or (None if own_claim else _is_claimed(issue, state))
        or _blocker_is_running(issue, state)
        or _nothing_starts(state)
        or _day_budget_is_used(issue, state)
        or _agent_is_limited(issue, state)
        or slot_shortage(issue, state, used=used, reserved=reserved)
        or _identifier_is_running(issue, state)
        or Eligible()
    )


def unsuitable(issue: Issue, settings: SchedulerSettings) -> Ineligible | None:
    """Why the issue, as the tracker shows it, is not worked on, or `None`."""
    if not (issue.id.strip() and issue.identifier.strip() and issue.title.strip() and issue.state.strip()):
        empty = [name for name in ("id", "identifier", "title", "state") if not getattr(issue, name).strip()]
        return Ineligible(ReasonCode.INCOMPLETE, f"the tracker gave no {', '.join(empty)}")
    match tracker_status(issue, settings):
        case TrackerStatus.ACTIVE:
            return None
        case TrackerStatus.TERMINAL:
            return Ineligible(ReasonCode.TERMINAL, f"state {issue.state!r} is terminal")
        case TrackerStatus.UNROUTABLE if not issue.dispatchable:
            reason = issue.not_dispatchable_reason or "the tracker marks it as not dispatchable"
            return Ineligible(ReasonCode.NOT_DISPATCHABLE, reason)
        case TrackerStatus.UNROUTABLE:
            missing = [repr(label) for label in settings.required_labels if not is_routable(issue, [label])]
            labels = "label" if len(missing) == 1 else "labels"
            return Ineligible(ReasonCode.LABEL_MISSING, f"required {labels} missing: {', '.join(missing)}")
        case _:
            return Ineligible(ReasonCode.INACTIVE, f"state {issue.state!r} is not active")


def _is_claimed(issue: Issue, state: State) -> Ineligible | None:
    if issue.id in state.running:
        return Ineligible(ReasonCode.RUNNING, "an agent is running")
    if retry := state.retrying.get(issue.id):
        return Ineligible(ReasonCode.RETRYING, retry_text(retry, state.settings))
    if blocked := state.blocked.get(issue.id):
        return Ineligible(ReasonCode.BLOCKED, f"waiting for a person: {blocked.failure.message}")
    return None


def _blocker_is_running(issue: Issue, state: State) -> Ineligible | None:
    """Why the issue waits for a blocker that is done on the board while its run still delivers the work."""
    for blocker in issue.blocked_by:
        if blocker.id in state.running:
            message = f"the run of {blocker.identifier or blocker.id} has not ended yet"
            return Ineligible(ReasonCode.BLOCKER_RUNNING, message)
    return None


def _nothing_starts(state: State) -> Ineligible | None:
    if state.drain is not Drain.NO:
        return Ineligible(ReasonCode.DRAINING, "the daemon is shutting down")
    if state.config_error is not None:
        return Ineligible(ReasonCode.WORKFLOW_INVALID, f"the workflow is invalid: {state.config_error.line}")
    if state.paused:
        return Ineligible(ReasonCode.PAUSED, "an operator paused the daemon")
    return None


def _day_budget_is_used(issue: Issue, state: State) -> Ineligible | None:
    failure = budgets.day_budget_failure(state, issue)
    return Ineligible(ReasonCode.DAY_BUDGET, failure.message) if failure else None


def _agent_is_limited(issue: Issue, state: State) -> Ineligible | None:
    if not state.limited_agents:
        return None
    retry = state.retrying.get(issue.id)
    owner = agents.thread_agent(retry.resume) if retry else None
    chosen = agents.choose_agent(state, issue, owner).name
    if agents.is_probed(state, chosen):
        return Ineligible(ReasonCode.AGENT_LIMITED, f"the agent {chosen} is tried by one run first")
    if not agents.is_limited(state, chosen):
        return None
    limit = agents.limit_text(state, chosen)
    return Ineligible(ReasonCode.AGENT_LIMITED, f"the agent {limit}, and there is no fallback now")


def used_slots(state: State) -> UsedSlots:
    """The slots in use. A run uses a slot of the current state of its issue."""
    return UsedSlots(
        by_state=Counter(normalise_state(run.issue.state) for run in state.running.values()),
        by_host=hosts.runs_by_host(state),
    )


def slot_shortage(
    issue: Issue, state: State, *, used: UsedSlots | None = None, reserved: Counter[str] | None = None
) -> Ineligible | None:
    """Why there is no slot for the issue, or `None`; the arguments are those of `eligibility`."""
    limit = state.settings.max_concurrent_agents
    if len(state.running) + (reserved.total() if reserved else 0) >= limit:
        return _slots_in_use(ReasonCode.NO_SLOT, limit)
    own = normalise_state(issue.state)
    cap = state.settings.max_concurrent_by_state.get(own)
    if cap is not None:
        used = used_slots(state) if used is None else used
        taken = used.by_state[own] + (reserved[own] if reserved else 0)
        if taken >= cap:
            return _slots_in_use(ReasonCode.NO_STATE_SLOT, cap, f" for state {issue.state!r}")
    if state.settings.hosts:
        used = used_slots(state) if used is None else used
        if hosts.free_slots(state, used.by_host) <= (reserved.total() if reserved else 0):
            return Ineligible(ReasonCode.NO_HOST_SLOT, hosts.shortage_text(state, used.by_host))
    return None


@lru_cache(maxsize=256)
def _slots_in_use(code: ReasonCode, limit: int, whose: str = "") -> Ineligible:
    """The verdict that all issues which wait for one of these slots share: they may be thousands."""
    one = f"the only agent slot{whose} is in use"
    return Ineligible(code, one if limit == 1 else f"all {limit} agent slots{whose} are in use")


def _identifier_is_running(issue: Issue, state: State) -> Ineligible | None:
    """Why the issue waits for a running one with the same identifier: both would share a directory."""
    for run in state.running.values():
        if run.issue.identifier == issue.identifier and run.issue.id != issue.id:
            message = f"another issue is called {issue.identifier} too (id {run.issue.id}), and is running"
            return Ineligible(ReasonCode.SAME_IDENTIFIER, message)
    return None


# --- the phase of the work -------------------------------------------------------------------------------


def phase_of(issue: Issue, settings: SchedulerSettings) -> Phase | None:
    """The phase for the next turn: from the first matching rule of `agent.phases.rules`, else the default."""
    for index, rule in enumerate(settings.phase_rules):
        if rule.matches(issue):
            return Phase(name=rule.phase, reason=f"the {rule.condition} (agent.phases.rules[{index}])")
    if settings.phase is None:
        return None
    return Phase(name=settings.phase, reason="the default (agent.phases.default)")


# --- order -----------------------------------------------------------------------------------------------

_RANKS: Final = range(1, 5)
_UNRANKED: Final = 5


def dispatch_order(issue: Issue) -> tuple[int, bool, float, str, str]:
    """Sort key: priority 1 to 4 before all others, then oldest first, then by identifier.

    A date without a zone counts as UTC, so that the order does not depend on the machine. The id comes last,
    so that sets of issues with equal identifiers have an order too.
    """
    priority = issue.priority or _UNRANKED
    created = issue.created_at
    if created is not None and created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    age = created.timestamp() if created else 0.0
    rank = priority if priority in _RANKS else _UNRANKED
    return (rank, created is None, age, issue.identifier, issue.id)


# --- retries ---------------------------------------------------------------------------------------------

CONTINUATION_DELAY_MS: Final = 1_000
_FIRST_BACKOFF_MS: Final = 10_000
_MAX_EXPONENT: Final = 10

_OUTAGES: Final = agents.LIMIT_CATEGORIES | {
    Category.AGENT_AUTH,
    Category.CODEX_NOT_FOUND,
    Category.AGENT_NOT_FOUND,
}


def backoff_ms(attempt: int, cap_ms: int) -> int:
    """The wait before failure attempt `attempt` >= 1: 10 s, doubling up to the cap."""
    exponent = min(max(attempt, 1) - 1, _MAX_EXPONENT)
    return int(min(_FIRST_BACKOFF_MS * 2**exponent, cap_ms))


def counts_as_no_progress(failure: Failure | None) -> bool:
    """Whether an attempt without progress counts against its issue.

    An outage of the tracker, host, repository, login or model quota does not count, because a bad hour at
    night would block every issue. An internal error does, because it may repeat forever and cost tokens each
    time, and so does a repository that is configured wrongly.
    """
    if failure is None or failure.category is Category.INTERNAL:
        return True
    if failure.category is Category.WORKSPACE_REPOSITORY:
        return failure.blame is Blame.CONFIG
    return failure.blame not in {Blame.TRACKER, Blame.HOST} and failure.category not in _OUTAGES


def gives_up(retry: Retry, settings: SchedulerSettings) -> bool:
    """Whether `run --once` stops waiting for this retry."""
    return retry.non_retryable or retry.failures >= settings.budget.max_attempts_without_progress


def attempt_numbers(entry: Running | Retry, settings: SchedulerSettings) -> tuple[int, int]:
    """The current or next attempt, counted from 1, and the last one before a person is asked.

    Progress and outages move the last one. The `attempt` of the specification is another number: it is `None`
    for the first run, 1 after every clean end, and a retry without a slot raises it.
    """
    number = entry.runs if isinstance(entry, Running) else entry.runs + 1
    left = settings.budget.max_attempts_without_progress - entry.attempts_without_progress
    return number, number - 1 + max(left, 1)


def attempt_fields(entry: Running | Retry, settings: SchedulerSettings) -> dict[str, int | None]:
    """The fields of a log line that number an attempt."""
    number, last = attempt_numbers(entry, settings)
    return {"attempt": entry.attempt, "attempt_number": number, "attempt_limit": last}


_RESUME_TEXTS: Final = {
    ResumeReason.ANSWERED: "a person answered; it continues in a moment",
    ResumeReason.VERIFY: "its work is verified next",
    ResumeReason.VERIFY_FAILED: "its work failed a check; its agent gets the failure next",
    ResumeReason.FEEDBACK: "its pull request has news; the agent gets them in a moment",
    ResumeReason.INTERRUPTED: "it was interrupted and continues",
}


def retry_text(retry: Retry, settings: SchedulerSettings) -> str:
    """What a retry waits for."""
    if retry.error is not None:
        number, last = attempt_numbers(retry, settings)
        return f"waiting for attempt {number} of {last} after: {retry.error}"
    if retry.resume is None:
        return "the last attempt succeeded; the agent may have more to do"
    return _RESUME_TEXTS[retry.resume.reason]

"""Decides when `run --once` ends, and lists the issues that it leaves undone."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from symphony.domain import Issue
from symphony.scheduler import agents, hosts, policy
from symphony.scheduler.policy import Eligible, ReasonCode
from symphony.scheduler.state import Cycle, Drain, Retry, State

AGENT_LIMIT_PATIENCE_MS: Final = 60_000
"""How long `run --once` waits for an agent at a limit or in an outage."""


class Left(Struct, frozen=True, kw_only=True):
    """An issue that `run --once` leaves undone.

    Attributes:
        text: what keeps it, for people: a clause whose subject is the issue.
        limited: its agent is at a limit or in an outage, so that a later try may succeed by itself.
    """

    issue: Issue
    text: str
    limited: bool = False


def run_once_finished(state: State, now_ms: int) -> bool:
    """Whether `run --once` ends: nothing is left but retries that it gives up.

    It gives up retries whose last failure does not resolve itself, retries that failed
    `max_attempts_without_progress` times in a row, retries whose agent has been limited for
    `AGENT_LIMIT_PATIENCE_MS`, and all retries while the workflow is invalid or the daemon is paused.
    """
    may_retry = state.config_error is None and not state.paused
    awaited = state.retrying.values() if may_retry else ()
    return (
        not any(_awaits(retry, state, now_ms) for retry in awaited)
        and state.polls > 0
        and state.cycle is Cycle.IDLE
        and not state.poll_soon
        and state.refresh is None
        and not state.ids_to_refresh
        and not state.pending_candidates
        and not state.running
        and not any(blocked.answer_check.in_progress for blocked in state.blocked.values())
        and not any(_may_start(issue, state, now_ms) for issue in state.candidates.values())
    )


def left_over(state: State) -> Iterator[Left]:
    """The issues that remain, without those that must not be worked on."""
    for blocked in state.blocked.values():
        yield Left(issue=blocked.issue, text=f"is blocked: {blocked.failure.message}")
    for retry in state.retrying.values():
        chosen = agents.choose_agent(state, retry.issue, agents.thread_agent(retry.resume))
        limited = chosen.name in state.limited_agents
        text = f"was given up: {retry.error}"
        if limited or retry.error is None:
            text = f"waits: {policy.retry_text(retry, state.settings)}"
        yield Left(issue=retry.issue, text=text, limited=limited)
    undrained = state.changed(drain=Drain.NO)
    for issue in state.candidates.values():
        if state.entry(issue.id) is not None or policy.unsuitable(issue, state.settings) is not None:
            continue
        verdict = policy.eligibility(issue, undrained)
        text = "was not started" if isinstance(verdict, Eligible) else f"waits: {verdict.message}"
        limited = agents.choose_agent(state, issue).name in state.limited_agents
        yield Left(issue=issue, text=text, limited=limited)


def _awaits(retry: Retry, state: State, now_ms: int) -> bool:
    return not policy.gives_up(retry, state.settings) and not _is_limited_for_long(
        state, retry.issue, now_ms, agents.thread_agent(retry.resume)
    )


def _may_start(issue: Issue, state: State, now_ms: int) -> bool:
    """Whether the issue starts now, or as soon as an agent is available."""
    verdict = policy.eligibility(issue, state)
    if isinstance(verdict, Eligible):
        return True
    if verdict.code is ReasonCode.NO_HOST_SLOT:
        return hosts.has_short_rest(state)
    return verdict.code is ReasonCode.AGENT_LIMITED and not _is_limited_for_long(state, issue, now_ms)


def _is_limited_for_long(state: State, issue: Issue, now_ms: int, thread_agent: str | None = None) -> bool:
    since_ms = agents.limited_since(state, issue, thread_agent)
    return since_ms is not None and now_ms - since_ms >= AGENT_LIMIT_PATIENCE_MS

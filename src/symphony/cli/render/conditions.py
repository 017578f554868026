"""Lines about what is not normal and affects all issues.

A pause, limited agents, a silent tracker, a used-up budget of the day, a lost journal, failed pushes: one
line says what is wrong, and one what to do about it.
"""

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from symphony.api.models import Budgets, Issue, JournalHealth, State
from symphony.cli.formatting import arrow, cell, duration, plural, seconds_between, tokens

_LIMITS: Final = {"agent_rate_limited": "rate limited", "agent_usage_limit": "out of credit"}


def condition_lines(document: State | Issue) -> Iterator[Text]:
    """The lines for all issues, or for one; limited agents and failed pushes only with all issues."""
    if document.paused:
        yield Text("Paused: nothing new starts, what runs goes on.", style="yellow")
        yield arrow("symphony resume")
    if isinstance(document, State):
        yield from _limited_agents(document)
    yield from _tracker(document)
    yield from _day_budget(document.budgets)
    if document.journal is not None:
        yield from _journal(document.journal)
    if isinstance(document, State):
        yield from _failed_pushes(document)


def tokens_today(budgets: Budgets) -> str | None:
    """How much of the day's budget is used: `5.2M of 6.0M`; None if the day has no budget."""
    limit = budgets.max_tokens_per_day
    return None if limit is None else f"{tokens(budgets.day_tokens)} of {tokens(limit)}"


def _limited_agents(state: State) -> Iterator[Text]:
    for agent in state.agents:
        if (limit := agent.limited) is not None:
            wait = duration(seconds_between(state.generated_at, limit.until))
            problem = f"The agent {agent.name} is {_LIMITS.get(limit.code, 'limited')} for {wait}: "
            yield Text.assemble((problem, "yellow"), cell(limit.message))


def _tracker(document: State | Issue) -> Iterator[Text]:
    tracker, now = document.tracker, document.generated_at
    failed = f"{plural(tracker.failures_in_a_row, 'request')} in a row failed"
    if tracker.circuit == "open":
        wait = duration(seconds_between(now, tracker.until))
        yield Text(f"Requests to the tracker pause for {wait}: {failed}.", style="yellow")
    elif tracker.circuit == "half_open":
        next_at = tracker.asks_next_at
        wait = f" in {duration(seconds_between(now, next_at))}" if next_at else ""
        yield Text(f"The tracker is asked once more{wait}, after {failed}.", style="yellow")
    else:
        return
    # The head of the status shows the failure of the last poll already.
    shown = isinstance(document, State) and document.health.poll_failure is not None
    if tracker.last_error and not shown:
        yield Text.assemble("  ", cell(tracker.last_error))
    if tracker.circuit == "open":
        yield arrow("symphony refresh asks at once, unless the tracker itself asked for the pause")


def _day_budget(budgets: Budgets) -> Iterator[Text]:
    limit, spender = budgets.max_tokens_per_day, budgets.used_up_by
    if limit is None or budgets.day_tokens < limit:
        return
    day = budgets.day or "the day"
    yield Text(f"The budget of {day} is used up: {tokens_today(budgets)} tokens.", style="yellow")
    if spender is not None:
        run = f"{spender.issue_identifier} (agent {spender.agent}), whose run used {tokens(spender.tokens)}"
        yield cell(f"The last of it went to {run}.", "yellow")
    yield arrow("wait for the next day (UTC), or raise agent.budget.max_tokens_per_day")


def _journal(journal: JournalHealth) -> Iterator[Text]:
    if journal.state == "memory":
        reason = journal.reason or "the journal cannot be used; a restart forgets what happens now"
        yield cell(f"{reason[:1].upper()}{reason[1:]}.", "yellow")
        if journal.hint:
            yield arrow(journal.hint)


def _failed_pushes(state: State) -> Iterator[Text]:
    for push in state.failed_pushes:
        wait = seconds_between(state.generated_at, push.next_try_at)
        again = "" if wait is None else f" It is tried again in {duration(wait)}."
        yield cell(f"{push.issue_identifier} is not pushed: {push.failure.message}.{again}", "yellow")
        if push.failure.hint:
            yield arrow(push.failure.hint)

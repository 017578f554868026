"""What holds for all issues at once and people should know: pause, tracker, budget of the day, journal.

Only what is out of the ordinary is said: a line of what is so, and one of what to do about it.
"""

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from symphony.cli.wording import cell, count, lasting, plural, seconds_between
from symphony.observability.model import Budgets, Issue, JournalHealth, State

__all__ = ["condition_lines", "tokens_today"]

RESUME: Final = "symphony resume"
_LIMITS: Final = {"agent_rate_limited": "rate limited", "agent_usage_limit": "out of credit"}


def condition_lines(document: State | Issue) -> Iterator[Text]:
    """The lines for a document of the state or of an issue; agents and pushes are told with the state."""
    if document.paused:
        yield Text("Paused: nothing new starts, what runs goes on.", style="yellow")
        yield _do(RESUME)
    if isinstance(document, State):
        yield from _agents(document)
    yield from _tracker(document)
    yield from _day(document.budgets)
    yield from _journal(document.journal)
    if isinstance(document, State):
        yield from _failed_pushes(document)


def tokens_today(budgets: Budgets) -> str | None:
    """How much of the budget of the day is used; `None` where there is no budget."""
    limit = budgets.max_tokens_per_day
    return None if limit is None else f"{count(budgets.day_tokens)} of {count(limit)}"


def _agents(state: State) -> Iterator[Text]:
    """Those that nobody is given to now."""
    for agent in state.agents:
        if (limited := agent.limited) is not None:
            wait = lasting(seconds_between(state.generated_at, limited.until))
            words = _LIMITS.get(limited.code, "limited")
            yield Text.assemble(
                (f"The agent {agent.name} is {words} for {wait}: ", "yellow"), cell(limited.message)
            )


def _tracker(document: State | Issue) -> Iterator[Text]:
    """The error of the last poll, if it failed, stands above already."""
    tracker, now = document.tracker, document.generated_at
    failed = f"{plural(tracker.failures_in_a_row, 'question')} in a row failed"
    match tracker.circuit:
        case "open":
            wait = lasting(seconds_between(now, tracker.until))
            yield Text(f"The tracker is left alone for {wait}: {failed}.", style="yellow")
        case "half_open":
            next_at = tracker.asks_next_at
            wait = f" in {lasting(seconds_between(now, next_at))}" if next_at else ""
            yield Text(f"The tracker is asked once more{wait}, after {failed}.", style="yellow")
        case _:
            return
    told = isinstance(document, State) and document.health.poll_failure is not None
    if tracker.last_error and not told:
        yield Text.assemble("  ", cell(tracker.last_error))
    if tracker.circuit == "open":
        yield _do("symphony refresh asks at once, unless the tracker itself asked to be left alone")


def _day(budgets: Budgets) -> Iterator[Text]:
    limit, spender = budgets.max_tokens_per_day, budgets.used_up_by
    if limit is not None and budgets.day_tokens >= limit:
        day = budgets.day or "the day"
        yield Text(f"The budget of {day} is used up: {tokens_today(budgets)} tokens.", style="yellow")
        if spender is not None:
            who = f"{spender.issue_identifier} (agent {spender.agent})"
            yield cell(f"The last of it went to {who}, whose run used {count(spender.tokens)}.", "yellow")
        yield _do("wait for the next day (UTC), or raise agent.budget.max_tokens_per_day")


def _journal(journal: JournalHealth | None) -> Iterator[Text]:
    if journal is not None and journal.state == "memory":
        reason = journal.reason or "the journal cannot be used; a restart forgets what happens now"
        yield cell(f"{reason[:1].upper()}{reason[1:]}.", "yellow")
        if journal.hint:
            yield _do(journal.hint)


def _failed_pushes(state: State) -> Iterator[Text]:
    """Branches that `origin` should have and does not."""
    for push in state.failed_pushes:
        wait = seconds_between(state.generated_at, push.next_try_at)
        again = "" if wait is None else f" It is tried again in {lasting(wait)}."
        yield cell(f"{push.issue_identifier} is not pushed: {push.failure.message}.{again}", "yellow")
        if push.failure.hint:
            yield _do(push.failure.hint)


def _do(words: str) -> Text:
    return Text.assemble("  ", ("→ ", "bold"), cell(words))

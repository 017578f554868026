"""What holds for all issues at once and people should know: pause, tracker, budget of the day, journal.

Only what is out of the ordinary is said: a line of what is so, and one of what to do about it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from symphony.cli.wording import cell, count, lasting, plural, seconds_between

__all__ = ["condition_lines", "tokens_today"]

Document = Mapping[str, Any]

RESUME: Final = "symphony resume"
_LIMITS: Final = {"agent_rate_limited": "rate limited", "agent_usage_limit": "out of credit"}


def condition_lines(document: Document) -> Iterator[Text]:
    """The lines for a document of the state or of an issue."""
    if document.get("paused"):
        yield Text("Paused: nothing new starts, what runs goes on.", style="yellow")
        yield _do(RESUME)
    yield from _agents(document)
    yield from _tracker(document)
    yield from _day(document)
    yield from _journal(_part(document, "journal"))


def tokens_today(document: Document) -> str | None:
    """How much of the budget of the day is used; null where there is no budget."""
    budgets = _part(document, "budgets")
    limit = budgets.get("max_tokens_per_day")
    return None if limit is None else f"{count(budgets.get('day_tokens'))} of {count(limit)}"


def _agents(document: Document) -> Iterator[Text]:
    """Those that nobody is given to now; only the state tells of them."""
    found = document.get("agents")
    for agent in found if isinstance(found, list) else ():
        limited = _part(agent, "limited")
        if limited:
            wait = lasting(seconds_between(document.get("generated_at"), limited.get("until")))
            words = _LIMITS.get(str(limited.get("code")), "limited")
            yield Text.assemble(
                (f"The agent {agent.get('name')} is {words} for {wait}: ", "yellow"),
                cell(limited.get("message")),
            )


def _tracker(document: Document) -> Iterator[Text]:
    """The error of the last poll, if it failed, stands above already."""
    tracker = _part(document, "tracker")
    failed = f"{plural(tracker.get('failures_in_a_row') or 0, 'question')} in a row failed"
    match tracker.get("circuit"):
        case "open":
            wait = lasting(seconds_between(document.get("generated_at"), tracker.get("until")))
            yield Text(f"The tracker is left alone for {wait}: {failed}.", style="yellow")
        case "half_open":
            yield Text(f"The tracker is asked once more, after {failed}.", style="yellow")
        case _:
            return
    if tracker.get("last_error") and not _part(document, "health").get("poll_failure"):
        yield Text.assemble("  ", cell(tracker["last_error"]))


def _day(document: Document) -> Iterator[Text]:
    budgets = _part(document, "budgets")
    limit, used = budgets.get("max_tokens_per_day"), budgets.get("day_tokens") or 0
    if limit is not None and used >= limit:
        day = budgets.get("day") or "the day"
        words = f"The budget of {day} is used up: {tokens_today(document)} tokens."
        yield Text(words, style="yellow")
        yield _do("wait for the next day (UTC), or raise agent.budget.max_tokens_per_day")


def _journal(journal: Document) -> Iterator[Text]:
    if journal.get("state") == "memory":
        reason = str(
            journal.get("reason") or "the journal cannot be used; a restart forgets what happens now"
        )
        yield cell(f"{reason[:1].upper()}{reason[1:]}.", "yellow")
        if journal.get("hint"):
            yield _do(journal["hint"])


def _do(words: object) -> Text:
    return Text.assemble("  ", ("→ ", "bold"), cell(words))


def _part(document: Document, name: str) -> Document:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}

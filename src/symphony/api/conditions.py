"""Abnormal conditions that affect all issues, in words for the pages and the command line. Pure.

Conditions are: an unusable file or tracker, a pause, limited agents, a used-up daily budget, a lost journal,
failed pushes, writes that the tracker refuses, work that is on no branch, and pushes in progress.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from symphony.api import models
from symphony.api.formatting import sentence, tokens
from symphony.domain import plural

_LIMITS: Final = {
    "agent_rate_limited": "rate limited",
    "agent_usage_limit": "out of credit",
    "agent_unavailable": "without an answer of its model",
}


class Condition(Struct, frozen=True, kw_only=True):
    """One abnormal condition.

    Attributes:
        tone: `info`, `warn` or `error`.
        text: what is wrong.
        hint: what to do about it.
        until: when it ends or is tried again.
    """

    tone: str
    text: str
    hint: str | None = None
    until: str | None = None


def conditions(document: models.State | models.Issue) -> Iterator[Condition]:
    """The conditions that a document of all issues, or of one issue, shows."""
    failed_poll = None
    if isinstance(document, models.State):
        failed_poll = document.health.poll_failure
        yield from _failures(document.health)
    if document.paused:
        text = "Paused: nothing new starts, and running sessions continue."
        yield Condition(tone="warn", text=text, hint="symphony resume")
    if isinstance(document, models.State):
        yield from _limited_agents(document)
    tracker = document.tracker
    if tracker.circuit != "closed":
        error = f": {tracker.last_error}" if tracker.last_error and failed_poll is None else ""
        failed = f"{plural(tracker.failures_in_a_row, 'request')} in a row failed{error}"
        is_open = tracker.circuit == "open"
        what = "Requests to the tracker pause" if is_open else "The tracker is asked once more"
        yield Condition(
            tone="warn",
            text=sentence(f"{what}, because {failed}"),
            hint="symphony refresh asks at once, unless the tracker itself asked for the pause"
            if is_open
            else None,
            until=tracker.until or tracker.asks_next_at,
        )
    yield from _day_budget(document.budgets)
    journal = document.journal
    if journal is not None and journal.state == "memory":
        reason = journal.reason or "the journal cannot be used; a restart forgets what happens now"
        yield Condition(tone="warn", text=sentence(f"{reason[:1].upper()}{reason[1:]}"), hint=journal.hint)
    for push in document.failed_pushes if isinstance(document, models.State) else ():
        what = f"{push.issue_identifier} is not pushed"
        if push.place != "origin":
            what = f"{push.branch} is not in the repository"
        text = sentence(f"{what}: {push.failure.message}")
        yield Condition(tone="warn", text=text, hint=push.failure.hint)
    if isinstance(document, models.State):
        yield from _unfinished_jobs(document.outbox)
        yield from _schedules(document.schedules)
    yield from _kept(document)
    for going in document.pushes if isinstance(document, models.State) else ():
        text = f"{going.branch} is being pushed, since {going.began_at}."
        yield Condition(tone="info", text=text)


def _unfinished_jobs(outbox: models.OutboxCounts) -> Iterator[Condition]:
    """Jobs that do not succeed."""
    reason = f": {outbox.failure}" if outbox.failure else ""
    if outbox.given_up:
        text = f"the outbox has given up {plural(outbox.given_up, 'job')}{reason}"
        hint = "symphony outbox list names them, symphony outbox retry tries them again"
        yield Condition(tone="error", text=sentence(text), hint=hint)
    elif outbox.failing:
        text = f"the outbox tries {plural(outbox.failing, 'job')} again{reason}"
        hint = "they are tried again until they do: symphony outbox list"
        yield Condition(tone="warn", text=sentence(text), hint=hint)


def _schedules(schedules: tuple[models.Schedule, ...]) -> Iterator[Condition]:
    """The next recurring issue, and those that cannot be filed."""
    for schedule in schedules:
        if schedule.failure is not None:
            text = sentence(f"The issue of the schedule {schedule.name} is not filed: {schedule.failure}")
            yield Condition(tone="warn", text=text, hint="it is tried again: symphony schedules")
    waiting = [(each.next_at, each.name) for each in schedules if each.next_at is not None and not each.due]
    if waiting:
        at, name = min(waiting)
        yield Condition(tone="info", text=f"The next recurring issue is due at {at}: {name}.")


def _kept(document: models.State | models.Issue) -> Iterator[Condition]:
    """The workspaces with work that is on no branch."""
    kept = (document.kept,) if isinstance(document, models.Issue) else document.kept
    for each in kept:
        if each is not None:
            text = f"The workspace of {each.issue_identifier} is kept: {each.reason}"
            look = each.look and f"look at it: {each.look}"
            yield Condition(tone="warn", text=sentence(text), hint=look or f"see {each.path}")


def day_tokens(budgets: models.Budgets) -> str | None:
    """How much of the day's budget is used: `5.2M of 6.0M`; `None` if the day has no budget."""
    limit = budgets.max_tokens_per_day
    return None if limit is None else f"{tokens(budgets.day_tokens)} of {tokens(limit)}"


def placed(where: str | None, message: str) -> str:
    """A message with its `path:line`, if there is one."""
    return f"{where}: {message}" if where else message


def _failures(health: models.DaemonHealth) -> Iterator[Condition]:
    invalid = "WORKFLOW.md cannot be used. Nothing new starts, and the last good settings stay"
    silent = "The tracker did not answer the last poll"
    for failure, heading in ((health.workflow_failure, invalid), (health.poll_failure, silent)):
        if failure is not None:
            text = sentence(f"{heading}: {placed(failure.where, failure.message)}")
            yield Condition(tone="error", text=text, hint=failure.hint)


def _limited_agents(state: models.State) -> Iterator[Condition]:
    for agent in state.agents:
        if (limit := agent.limited) is not None:
            text = f"The agent {agent.name} is {_LIMITS.get(limit.code, 'limited')}: {limit.message}"
            yield Condition(tone="warn", text=sentence(text), until=limit.until)


def _day_budget(budgets: models.Budgets) -> Iterator[Condition]:
    spender = budgets.used_up_by
    if budgets.max_tokens_per_day is None or budgets.day_tokens < budgets.max_tokens_per_day:
        return
    text = f"The budget of {budgets.day or 'the day'} is used up: {day_tokens(budgets)} tokens."
    if spender is not None:
        run = f"{spender.issue_identifier} (agent {spender.agent}), whose run used {tokens(spender.tokens)}"
        text = f"{text} The last of it went to {run}."
    yield Condition(
        tone="warn",
        text=text,
        hint="wait for the next day (UTC), or raise agent.budget.max_tokens_per_day",
    )

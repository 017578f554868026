"""Why an issue is, or is not, being worked on: one answer put together from its document; pure.

The reason itself is worded by `scheduler.policy`, as everywhere. Here stands what goes with it: what happens
next, and what a person can do about it.
"""

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace
from rich.text import Text

from symphony.api.models import Block, Budgets, Issue, JournalHealth, Reason, Retry, Run, State
from symphony.cli.documents import Explanation, KnownIssue
from symphony.cli.formatting import ago, attempt, cell, count, lasting, plural, seconds_between
from symphony.domain import one_line

_NEEDS_A_PERSON: Final = "the agent needs a person: "
_AT_A_POLL: Final = "It is looked at again with every poll of the tracker."
_NOTHING: Final = "Nothing, as long as it stays like this."
GOES_ON: Final = "It goes on, if it is still active."
_NO_DAEMON: Final = "Nothing before a daemon runs."
_REVIEW: Final = "It waits for a review; what a person does with the issue is seen within ten minutes."
_START: Final = "start a daemon: symphony run"
_REQUEST: Final = "state, labels, title or description"
_PAUSED: Final = ("It starts once the daemon is resumed; what runs goes on.", "run: symphony resume")
ADVICE: Final[Mapping[str, tuple[str, str | None]]] = {
    "incomplete": (_AT_A_POLL, "complete the issue in the tracker"),
    "terminal": (_NOTHING, "move it to an active state to have it worked on"),
    "inactive": (_NOTHING, "move it to an active state to have it worked on"),
    "not_dispatchable": (_AT_A_POLL, "settle what it waits for, in the tracker"),
    "label_missing": (_AT_A_POLL, "add the label, or change tracker.required_labels"),
    "running": ("The run goes on.", None),
    "retrying": ("The next attempt begins when its wait is over.", None),
    "blocked": (_NOTHING, f"change its {_REQUEST}"),
    "blocker_running": ("It starts once that run has ended and delivered its work.", None),
    "same_identifier": (
        "It starts once the other one is over; the two share a workspace.",
        "give one of them another identifier",
    ),
    "draining": ("The daemon ends; the next one takes the issue up.", "start the daemon again: symphony run"),
    "workflow_invalid": (
        "It starts once WORKFLOW.md is usable again; what runs goes on.",
        "mend WORKFLOW.md; the daemon reads it within a second",
    ),
    "paused": _PAUSED,
    "day_budget": (
        "It starts when the next day (UTC) begins.",
        "raise agent.budget.max_tokens_per_day",
    ),
    "agent_limited": (
        "It starts when the agent may be asked again, or another may take its place.",
        "name a fallback (agent.fallback), or buy credit and run: symphony retry",
    ),
    "no_slot": (
        "It starts when a slot is free, in the order of priority and age.",
        "raise agent.max_concurrent_agents, or give it a higher priority",
    ),
    "no_state_slot": (
        "It starts when a slot of its state is free.",
        "raise agent.max_concurrent_agents_by_state for that state",
    ),
    "starting": ("It starts as soon as the tracker has confirmed it.", None),
    "deferred": (_AT_A_POLL, None),
}
"""By reason code: what happens next, and what a person can do."""


def after(retry: Retry, last_error: str | None) -> str | None:
    """What came before: how the last run failed, and why it waits now where that is something else."""
    told = [one for one in (last_error, retry.error) if one]
    return "; then: ".join(dict.fromkeys(told)) if retry.error else None


def explained(issue: KnownIssue) -> Explanation:
    """Why it is, or is not, being worked on."""
    if issue.running is not None:
        return _running(issue.running, issue.generated_at)
    if issue.retry is not None:
        told = _retrying(issue.retry, issue.last_error, issue.generated_at)
        told = replace(told, next=_PAUSED[0], advice=_PAUSED[1]) if issue.paused else told
        return _first_a_daemon(told, issue, follows=_NO_DAEMON)
    if issue.blocked is not None:
        return _first_a_daemon(_blocked(issue, issue.blocked), issue)
    return _over(issue) if issue.status in {"ready", "ended"} else _waiting(issue)


def _first_a_daemon(told: Explanation, issue: KnownIssue, *, follows: str | None = None) -> Explanation:
    """What is told of a claim that is only remembered: every order needs a daemon that takes it."""
    if issue.source != "files":
        return told
    return replace(told, next=follows or told.next, advice=_join(_START, told.advice))


def _running(run: Run, now: str) -> Explanation:
    quiet, began = seconds_between(run.last_event_at, now), ago(seconds_between(run.started_at, now))
    if run.stopping:
        answer = f"An agent is being stopped ({run.stopping})."
    elif run.session_id is None and quiet is None:
        answer = f"A run has begun {began}; it is {run.stage.replace('_', ' ')}."
    else:
        answer = f"An agent is at work: turn {run.turn}, begun {began}, last sign of life {ago(quiet)}."
    return Explanation(
        running=True,
        code="running",
        answer=answer,
        since=run.started_at,
        next="After each turn the issue is looked at: still active means another turn, otherwise delivery.",
        advice=None,
    )


def _retrying(retry: Retry, last_error: str | None, now: str) -> Explanation:
    error, wait = after(retry, last_error), seconds_between(now, retry.due_at)
    due = "now" if wait is not None and wait <= 0 else f"in {lasting(wait)}"
    if error:
        answer = _sentence(f"It waits for attempt {attempt(retry)}, after: {error}")
        follows = f"That attempt begins {due}, if there is a slot ({retry.due_at})."
    else:
        answer = GOES_ON
        follows = f"It is looked at once more {due} ({retry.due_at})."
    return Explanation(running=False, code="retrying", answer=answer, since=None, next=follows, advice=None)


def _blocked(issue: KnownIssue, block: Block) -> Explanation:
    return Explanation(
        running=False,
        code="blocked",
        answer=_sentence(f"It waits for a person: {block.error.removeprefix(_NEEDS_A_PERSON)}"),
        since=block.blocked_at,
        next=ADVICE["blocked"][0],
        advice=_ways_on(issue, block),
    )


def _over(issue: KnownIssue) -> Explanation:
    """What is said of an issue whose work is out of our hands: where it lies, and how to look at it."""
    result, ready = issue.result, issue.status == "ready"
    where = (
        f"It is in {issue.state}, which is no active state"
        if issue.state
        else "No tracker list has it any more"
    )
    if result is None:
        return Explanation(
            running=False,
            code=issue.status,
            answer=_sentence(f"{where}, and no branch of it is remembered"),
            since=None,
            next=_NOTHING,
            advice=ADVICE["inactive"][1],
        )
    lines = f"+{result.insertions} -{result.deletions}"
    work = f"its work is on the branch {result.branch} ({plural(result.commits, 'commit')}, {lines})"
    failure = result.push_failure
    unpushed = f"; it could not be pushed: {failure.message}" if failure else ""
    again = f"; or {ADVICE['inactive'][1]}" if ready else ""
    return Explanation(
        running=False,
        code=issue.status,
        answer=_sentence(f"{where}; {work}{unpushed}"),
        since=result.ended_at,
        next=_REVIEW if ready else _NOTHING,
        advice=f"look at it: {' or '.join(result.look)}{again}",
    )


def _ways_on(issue: KnownIssue, block: Block) -> str:
    """Everything that has a blocked issue tried again."""
    first = remedy(block, issue.issue_identifier, issue.issue_url)
    if _REQUEST in first:
        return first
    retried = ""
    if "symphony " not in first:
        retried = f"have it tried again: symphony unblock {_name(issue.issue_identifier)}"
    return f"{_join(first, retried)}; or change its {_REQUEST}"


def remedy(block: Block, identifier: str, url: str | None) -> str:
    """What a person can do about a blocked issue: what the failure says, or the command that helps."""
    hint, name = one_line(block.failure.hint or ""), _name(identifier)
    if block.question is not None and "symphony answer" not in hint:
        place = one_line(url or "")
        where = f"the issue ({place})" if place else "the issue"
        return f'answer it by a comment on {where}, or: symphony answer {name} "…"'
    return hint or f"have it tried again: symphony unblock {name}"


def _name(identifier: str) -> str:
    """The issue as a word of a command line."""
    return shlex.quote(one_line(identifier))


def unasked(block: Block) -> bool:
    """Whether a block has a question that its error does not tell."""
    return block.question is not None and one_line(block.question) not in one_line(block.error)


def _waiting(issue: KnownIssue) -> Explanation:
    unknown = Reason(code=issue.status, message=issue.status)  # a status of a later version
    reason = unknown if issue.waiting is None else issue.waiting.reason
    follows, advice = ADVICE.get(reason.code, (_AT_A_POLL, None))
    if issue.daemon is None and reason.code not in {"terminal", "inactive"}:
        follows, advice = _NO_DAEMON, _join(advice, _START)
    return Explanation(
        running=False,
        code=reason.code,
        answer=_sentence(f"It is not running: {reason.message}"),
        since=None,
        next=follows,
        advice=advice,
    )


def _sentence(text: str) -> str:
    """On one line, with one mark at its end."""
    line = one_line(text)
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."


def _join(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)


# What holds for all issues at once and people should know: pause, tracker, budget of the day, journal.
#
# Only what is out of the ordinary is said: a line of what is so, and one of what to do about it.


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

"""Why an issue is, or is not, being worked on: one answer put together from its document; pure.

The reason itself is worded by `scheduler.policy`, as everywhere. Here stands what goes with it: what happens
next, and what a person can do about it.
"""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from symphony.cli.wording import ago, lasting, seconds_between
from symphony.domain.plain import one_line

__all__ = ["ADVICE", "Explanation", "after", "explain_document", "remedy", "unasked"]

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer to "why is it (not) running?".

    Attributes:
        running: whether an agent is at work on it.
        code: stable: `running`, `retrying`, `blocked`, or the code of what it waits for.
        answer: one sentence.
        since: when that began, ISO-8601, or null where it is not known.
        next: what happens without anybody doing anything.
        advice: what a person can do, or null where nothing is needed.
    """

    running: bool
    code: str
    answer: str
    since: str | None
    next: str
    advice: str | None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


_NEEDS_A_PERSON: Final = "the agent needs a person: "
_AT_A_POLL: Final = "It is looked at again with every poll of the tracker."
_NOTHING: Final = "Nothing, as long as it stays like this."
GOES_ON: Final = "It goes on, if it is still active."
_NO_DAEMON: Final = "Nothing before a daemon runs."
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


def after(error: Any, last_error: Any) -> str | None:
    """What came before: how the last run failed, and why it waits now where that is something else."""
    told = [str(one) for one in (last_error, error) if one]
    return "; then: ".join(dict.fromkeys(told)) if error else None


def explain_document(document: Document) -> Explanation:
    """The explanation of a document of `/api/v1/<identifier>` with its `source` and `daemon`."""
    now = document.get("generated_at")
    match document.get("status"):
        case "running":
            return _running(_part(document, "running"), now)
        case "retrying":
            told = _retrying(_part(document, "retry"), document.get("last_error"), now)
            told = replace(told, next=_PAUSED[0], advice=_PAUSED[1]) if document.get("paused") else told
            return _first_a_daemon(told, document, follows=_NO_DAEMON)
        case "blocked":
            return _first_a_daemon(_blocked(document), document)
        case _:
            return _waiting(document)


def _first_a_daemon(told: Explanation, document: Document, *, follows: str | None = None) -> Explanation:
    """What is told of a claim that is only remembered: every order needs a daemon that takes it."""
    if document.get("source") != "files":
        return told
    return replace(told, next=follows or told.next, advice=_join(_START, told.advice))


def _running(run: Document, now: Any) -> Explanation:
    turn, quiet = run.get("turn"), seconds_between(run.get("last_event_at"), now)
    if stopping := run.get("stopping"):
        answer = f"An agent is being stopped ({stopping})."
    elif run.get("session_id") is None and quiet is None:
        stage = str(run.get("stage") or "starting").replace("_", " ")
        answer = f"A run has begun {ago(seconds_between(run.get('started_at'), now))}; it is {stage}."
    else:
        began = ago(seconds_between(run.get("started_at"), now))
        answer = f"An agent is at work: turn {turn}, begun {began}, last sign of life {ago(quiet)}."
    return Explanation(
        running=True,
        code="running",
        answer=answer,
        since=run.get("started_at"),
        next="After each turn the issue is looked at: still active means another turn, otherwise delivery.",
        advice=None,
    )


def _retrying(retry: Document, last_error: Any, now: Any) -> Explanation:
    error, wait = after(retry.get("error"), last_error), seconds_between(now, retry.get("due_at"))
    due = "now" if wait is not None and wait <= 0 else f"in {lasting(wait)}"
    if error:
        answer = _sentence(f"It waits for attempt {retry.get('attempt')}, after: {error}")
        follows = f"That attempt begins {due}, if there is a slot ({retry.get('due_at')})."
    else:
        answer = GOES_ON
        follows = f"It is looked at once more {due} ({retry.get('due_at')})."
    return Explanation(running=False, code="retrying", answer=answer, since=None, next=follows, advice=None)


def _blocked(document: Document) -> Explanation:
    block = _part(document, "blocked")
    return Explanation(
        running=False,
        code="blocked",
        answer=_sentence(f"It waits for a person: {str(block.get('error')).removeprefix(_NEEDS_A_PERSON)}"),
        since=block.get("blocked_at"),
        next=ADVICE["blocked"][0],
        advice=_ways_on({**document, **block}),
    )


def _ways_on(row: Document) -> str:
    """Everything that has a blocked issue tried again."""
    first, name = remedy(row), _name(row)
    if _REQUEST in first:
        return first
    retried = "" if "symphony " in first else f"have it tried again: symphony unblock {name}"
    return f"{_join(first, retried)}; or change its {_REQUEST}"


def remedy(row: Document) -> str:
    """What a person can do about a blocked issue: what the failure says, or the command that helps."""
    hint = one_line(str(_part(row, "failure").get("hint") or ""))
    if row.get("question") is not None and "symphony answer" not in hint:
        return f'answer it: symphony answer {_name(row)} "…"'
    return hint or f"have it tried again: symphony unblock {_name(row)}"


def _name(row: Document) -> str:
    """The issue as a word of a command line."""
    return shlex.quote(one_line(str(row.get("issue_identifier"))))


def unasked(row: Document) -> bool:
    """Whether a blocked row has a question that its error does not tell."""
    question = row.get("question")
    return question is not None and one_line(str(question)) not in one_line(str(row.get("error")))


def _waiting(document: Document) -> Explanation:
    reason = _part(_part(document, "waiting"), "reason")
    code = str(reason.get("code"))
    follows, advice = ADVICE.get(code, (_AT_A_POLL, None))
    if document.get("daemon") is None and code not in {"terminal", "inactive"}:
        follows, advice = _NO_DAEMON, _join(advice, _START)
    return Explanation(
        running=False,
        code=code,
        answer=_sentence(f"It is not running: {reason.get('message')}"),
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


def _part(document: Document, name: str) -> Document:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}

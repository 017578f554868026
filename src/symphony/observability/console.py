"""The terminal of `symphony run`."""

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from symphony.domain import one_line, plain_text, plural

Event = Mapping[str, Any]

_ID_WIDTH: Final = 8
_TITLE_CHARS: Final = 80
_COLOURS: Final = {"dim": "2", "bold": "1", "green": "32", "yellow": "33", "red": "31", "cyan": "36"}
_LEVELS: Final = {"warning": "yellow", "error": "red", "critical": "red"}
_CODE: Final = re.compile(r"[a-z]+(?:_[a-z]+)*: (?=\S)")
_KEPT: Final = 999
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_OTHER: Final = frozenset(
    {
        *("event", "level", "exception", "hint", "reason", "where", "path"),
        *("issue_id", "issue_identifier", "run_id", "session_id"),
    }
)
"""Fields that are not listed for an event without its own words."""


class PeopleLines:
    """Makes the lines of events.

    Each stream needs its own, because it remembers what it has said about an issue.
    """

    def __init__(self, out: TextIO) -> None:
        plain_terminal = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
        self._coloured = out.isatty() and not plain_terminal
        self._failed: dict[str, str] = {}
        self._bad_skills: set[str] = set()

    def __call__(self, event: Event) -> str:
        """The line without its line break; empty for an event that is not shown."""
        words = self._words(event)
        if not words:
            return ""
        level, name = str(event.get("level")), str(event.get("event"))
        about = str(event.get("issue_identifier") or "")
        moment = self._painted(time.strftime("%H:%M:%S"), "dim")
        issue = self._painted(f"{one_line(about):{_ID_WIDTH}}", "bold")
        colour = _LEVELS.get(level) or _GOOD.get(name, "")
        lines = [f"{moment}  {issue}  {self._painted(one_line(words), colour)}"]
        indent = " " * (len("00:00:00") + 2 + _ID_WIDTH + 2)
        hint = event.get("hint")
        if hint and event.get("outcome") is None:  # events after the end of a run repeat the hint
            lines.append(f"{indent}→ {one_line(str(hint))}")
        if stack := event.get("exception"):
            lines += [f"{indent}{line}" for line in plain_text(str(stack)).splitlines()]
        return "\n".join(lines)

    def _words(self, event: Event) -> str:
        """The words of an event, without those of a moment ago."""
        name, about = str(event.get("event")), str(event.get("issue_identifier") or "")
        match name:
            case "run_ended" if event.get("reason"):
                self._failed = {**dict(list(self._failed.items())[-_KEPT:]), about: str(event["reason"])}
            case "run_retrying" if self._failed.pop(about, None) == str(event.get("reason")):
                return _again(event)
            case "skill_problem":  # every session repeats it
                told = f"{event.get('path')} {event.get('code')}"
                if event.get("level") not in _LEVELS or told in self._bad_skills:
                    return ""
                self._bad_skills = {*list(self._bad_skills)[-_KEPT:], told}
                return f"a skill cannot be loaded: {event.get('path')} ({event.get('code')})"
            case _:
                pass
        say = WORDS.get(name)
        if say is not None:
            return say(event)
        return _without_words(event) if event.get("level") in _LEVELS else ""

    def _painted(self, text: str, colour: str) -> str:
        code = _COLOURS.get(colour)
        return f"\x1b[{code}m{text}\x1b[0m" if code and self._coloured else text


def _without_words(event: Event) -> str:
    """The line of any other warning or error: its subject, the reason, and the other fields."""
    name = str(event.get("event")).replace("_", " ")
    where = event.get("where") or event.get("path")
    rest = ", ".join(
        f"{key} {value}" for key, value in event.items() if key not in _OTHER and value not in (None, "")
    )
    told = [str(one) for one in (where, event.get("reason"), rest) if one]
    return ": ".join([name, *told])


def _why(event: Event) -> str:
    """The reason without the code of its category, which is in the log."""
    reason = str(event.get("reason"))
    match = _CODE.match(reason)
    return reason[match.end() :] if match else reason


def _lasting(ms: object) -> str:
    """A duration for people: `20 s`, `5 min`."""
    length = ms if isinstance(ms, int) else 0
    if length < _MINUTE_MS:
        return f"{-(-length // _SECOND_MS)} s"
    minutes, rest = divmod(length // _SECOND_MS, 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def _attempt(event: Event) -> str:
    return f"attempt {event.get('attempt_number')} of {event.get('attempt_limit')}"


def _started(event: Event) -> str:
    title = one_line(str(event.get("title") or ""), _TITLE_CHARS)
    facts = [_attempt(event)] if event.get("attempt_number") != 1 else []
    if not str(event.get("agent_reason", "")).startswith("the default"):
        facts.append(f"by {event.get('agent')}: {event.get('agent_reason')}")
    more = f" ({'; '.join(facts)})" if facts else ""
    return f"started: {title}{more}"


def _ended(event: Event) -> str:
    did = f"{plural(event.get('turns'), 'turn')}, {plural(event.get('commits'), 'commit')}"
    if event.get("outcome") == "succeeded":
        return f"ended: {did}"
    if event.get("outcome") == "input_required":
        return f"stopped to ask a person: {did}"
    reason = f": {_why(event)}" if event.get("reason") else ""
    return f"{str(event.get('outcome')).replace('_', ' ')} after {did}{reason}"


def _again(event: Event) -> str:
    return f"retry in {_lasting(event.get('delay_ms'))} ({_attempt(event)})"


def _signal(event: Event) -> str:
    does = "what runs is stopped now" if event.get("now") else "running turns may end, nothing new starts"
    return f"{event.get('signal')}: {does}"


WORDS: Final[Mapping[str, Callable[[Event], str]]] = {
    "serving": lambda event: (
        f"works on the issues of {event.get('workflow')}"
        f"{' until nothing is left to do' if event.get('once') else '; Ctrl-C stops it'}"
    ),
    "agent_ready": lambda event: (
        f"the agent {event.get('agent')} is ready: {event.get('program')} {event.get('version')}"
    ),
    "agent_notice": lambda event: f"the agent {event.get('agent')}: {event.get('reason')}",
    "http_serving": lambda event: f"the API listens on http://{event.get('host')}:{event.get('port')}",
    "predecessor_reaped": lambda event: f"ended processes of a killed daemon: {event.get('processes')}",
    "claim_recovered": lambda event: f"taken over from the last daemon, where it was {event.get('kind')}",
    "run_started": _started,
    "turn_started": lambda event: f"turn {event.get('turn')}",
    "thread_resumed": lambda event: f"continues the earlier conversation ({event.get('reason')})",
    "run_stopping": lambda event: f"is being stopped: {event.get('reason')}",
    "run_ended": _ended,
    "run_interrupted": lambda _: "interrupted; the next daemon continues it",
    "run_retrying": lambda event: f"{_again(event)}, because: {_why(event)}",
    "issue_blocked": lambda event: f"blocked: {_why(event)}",
    "issue_unblocked": lambda event: f"goes on: {event.get('reason')}",
    "issue_moved": lambda event: f"moved to {event.get('state')}",
    "claim_released": lambda event: f"is in {event.get('state')} now; no more work here",
    "workflow_reloaded": lambda _: "WORKFLOW.md was read again and is in effect",
    "workflow_rejected": lambda event: f"WORKFLOW.md cannot be used: {event.get('reason')}",
    "workflow_warning": lambda event: f"{event.get('where')}: {event.get('reason')}",
    "circuit_closed": lambda _: "the tracker answers again",
    "agent_tried_again": lambda event: f"the agent {event.get('agent')} is tried again",
    "agent_recovered": lambda event: f"the agent {event.get('agent')} works again",
    "operator_asked": lambda event: f"an operator asked: {event.get('verb')}",
    "day_budget_used": lambda event: f"its agent {event.get('agent')} used up the token budget of today",
    "agent_reports_no_tokens": lambda event: f"its agent {event.get('agent')} reports no tokens",
    "day_began": lambda event: f"a new day for budgets: {event.get('day')}",
    "journal_recovered": lambda _: "the journal can be written again",
    "signal_received": _signal,
    "stopped": lambda _: "stopped",
}
"""The words for people, by event. Events of level info that are not named here appear only in the log."""
_GOOD: Final = {"run_started": "cyan", "run_ended": "green"}

"""Numbers and times as people read them, in a terminal and on a page."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from symphony.api.models import Overlap, PastRun, Retry, Run
from symphony.domain import one_line, without_codes
from symphony.scheduler import StopReason

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_THOUSAND, _MILLION = 1_000, 1_000_000
_SHOWN_PATHS: Final = 3
_SHOW_SECONDS_BELOW: Final = 10 * _MINUTE


def tokens(number: int) -> str:
    """A number of tokens: `950`, `12.3k`, `4.5M`."""
    if number < _THOUSAND:
        return str(number)
    if number < _MILLION:
        return f"{number / _THOUSAND:.1f}k"
    return f"{number / _MILLION:.1f}M"


def attempt_of(run: Run | Retry) -> str:
    """The attempt that runs or comes next: `3 of 5`."""
    return f"{run.attempt_number} of {run.attempt_limit}"


def sentence(text: str) -> str:
    """The text on one line, with a full stop unless it already ends a sentence."""
    line = one_line(without_codes(text))
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."


_EVENTS: Final = {
    "notification": "agent",
    "other_message": "agent",
    "tool_call_completed": "tool",
    "turn_input_required": "question",
    "approval_auto_approved": "approval",
    "approval_declined": "approval",
    "approval_required": "approval",
    "malformed": "agent",
}


def event_words(name: str) -> str:
    """The name of an event for people; JSON and the log have the name itself."""
    return _EVENTS.get(name, name.replace("_", " "))


_OUTCOMES: Final = {
    "running": "Running",
    "succeeded": "Ended",
    "no_progress": "Ended without a change",
    "failed": "Failed",
    "timed_out": "Timed out",
    "input_required": "Waits for a person",
    "canceled": "Stopped",
    "interrupted": "Broken off",
}
_NO_REASON: Final = {
    "succeeded": "the agent said that it is done",
    "no_progress": "the agent said that it is done",
}
_ENDS: Final = ("finished: ", "stopped: ")


def outcome_words(outcome: str | None) -> str:
    """How a run ended, in a few words; an outcome of a later version is unchanged."""
    return _OUTCOMES.get(outcome or "running") or str(outcome).replace("_", " ")


def run_words(run: PastRun) -> str:
    """How a run ended and why, in one sentence."""
    outcome = outcome_words(run.outcome)
    if run.outcome is None:
        return outcome
    reason = without_codes(run.reason or _NO_REASON.get(run.outcome, ""))
    for end in _ENDS:
        reason = reason.removeprefix(end)
    return f"{outcome}: {reason}" if reason else outcome


def overlap_words(overlap: Overlap) -> str:
    """`changes src/a.py as SYM-4 does`, with the first paths and the number of the others."""
    shown = overlap.paths[:_SHOWN_PATHS]
    more = len(overlap.paths) - len(shown) + overlap.paths_left_out
    paths = ", ".join([*shown, *([f"{more:,} more"] if more else [])])
    return f"changes {paths} as {overlap.issue_identifier} does"


def stop_words(reason: str) -> str:
    """Why a run is stopped, as a part of a sentence; a reason of a later version is unchanged."""
    return StopReason(reason).words if reason in set(StopReason) else reason


_BUTTONS: Final = {
    "retry": "Retry",
    "unblock": "Unblock",
    "stop": "Stop",
    "verify": "Verify",
    "answer": "Send answer",
    "pause": "Pause",
    "resume": "Resume",
    "drain": "Drain",
    "refresh": "Poll now",
}
_PLACES: Final = {
    "explain": "the page of the issue",
    "status": "the board",
    "diff": "its change",
    "review": "its change",
}
_WORD: Final = r"""(?:'[^']*'|"'"|[^\s`"',;]+)+"""
_COMMAND: Final = re.compile(
    r"(?P<run>\brun:? )?(?:`symphony (?P<quoted>[a-z]+)(?: [^`]*)?`"
    rf'|symphony (?P<issue>retry|unblock|stop|verify|answer|explain|diff|review)\b(?: {_WORD})?(?: "…")?'
    r"|symphony (?P<daemon>pause|resume|drain|refresh|status)\b)"
)
"""Matches a command in a hint: in back quotes, with the identifier of an issue, or alone."""


def button_words(text: str | None) -> str:
    """A hint for a page: each command is replaced by the button that does the same, or by where to look.

    A command without a counterpart on a page stays.
    """

    def instead(found: re.Match[str]) -> str:
        verb = found["quoted"] or found["issue"] or found["daemon"]
        if verb in _PLACES:
            return f"look at {_PLACES[verb]}" if found["run"] else _PLACES[verb]
        button = _BUTTONS.get(verb)
        return found[0] if button is None else f"{'press ' if found['run'] else ''}“{button}”"

    return _COMMAND.sub(instead, text or "")


def duration(seconds: float | None) -> str:
    """A duration in its two largest units: `5 s`, `3 min 20 s`, `14 min`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return "?"
    whole = max(int(seconds), 0)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes} min {rest} s" if rest and whole < _SHOW_SECONDS_BELOW else f"{minutes} min"
    if whole < _DAY:
        hours, rest = divmod(whole, _HOUR)
        return f"{hours} h {rest // _MINUTE} min" if rest >= _MINUTE else f"{hours} h"
    days, rest = divmod(whole, _DAY)
    return f"{days} d {rest // _HOUR} h" if rest >= _HOUR else f"{days} d"


def ago(seconds: float | None) -> str:
    """The time since an event: `3 s ago`; `now` within the first second; `never` for `None`."""
    if seconds is None:
        return "never"
    return "now" if seconds < 1 else f"{duration(seconds)} ago"


def parse_time(text: str | None) -> datetime | None:
    """A time in a document; `None` if it is missing or malformed."""
    try:
        parsed = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Seconds between two times in documents; `None` if one is missing."""
    begin, end = parse_time(earlier), parse_time(later)
    return None if begin is None or end is None else (end - begin) / timedelta(seconds=1)

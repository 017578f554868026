"""Numbers, times and foreign text as people read them; pure."""

from datetime import UTC, datetime, timedelta

from rich.text import Text

from symphony.api.models import Retry, Run
from symphony.domain import one_line, plain_text

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_FEW_MINUTES = 10 * _MINUTE
_THOUSAND, _MILLION = 1_000, 1_000_000


def cell(text: object, style: str = "") -> Text:
    """Text of others on one line: neither markup of ours nor anything that steers the terminal."""
    return Text(_encodable(one_line("" if text is None else str(text))), style=style)


def lines(text: object, style: str = "") -> Text:
    """Text of others with its lines."""
    return Text(_encodable(plain_text("" if text is None else str(text))), style=style)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def count(number: int) -> str:
    """A number of tokens: `950`, `12.3k`, `4.5M`."""
    if number < _THOUSAND:
        return str(number)
    if number < _MILLION:
        return f"{number / _THOUSAND:.1f}k"
    return f"{number / _MILLION:.1f}M"


def attempt(going: Run | Retry) -> str:
    """Which attempt runs or comes next: `3 of 5`."""
    return f"{going.attempt_number} of {going.attempt_limit}"


def plural(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def lasting(seconds: float | None) -> str:
    """A duration in its two largest units: `5 s`, `3 min 20 s`, `14 min`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return "?"
    whole = max(int(seconds), 0)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes} min {rest} s" if rest and whole < _FEW_MINUTES else f"{minutes} min"
    if whole < _DAY:
        hours, rest = divmod(whole, _HOUR)
        return f"{hours} h {rest // _MINUTE} min" if rest >= _MINUTE else f"{hours} h"
    days, rest = divmod(whole, _DAY)
    return f"{days} d {rest // _HOUR} h" if rest >= _HOUR else f"{days} d"


def ago(seconds: float | None) -> str:
    """How long something is past: `3 s ago`; `now` within the second."""
    if seconds is None:
        return "never"
    return "now" if seconds < 1 else f"{lasting(seconds)} ago"


def moment(text: str | None) -> datetime | None:
    """A time of a document; `None` where there is none."""
    try:
        parsed = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """From one time of a document to another; `None` where one is missing."""
    begin, end = moment(earlier), moment(later)
    return None if begin is None or end is None else (end - begin) / timedelta(seconds=1)

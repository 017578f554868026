"""When a server wants to be asked again, in each of the forms in which servers say it (TR7).

Seconds, an HTTP date, Unix time in seconds or milliseconds, ISO 8601. Moments are counted from the server's
own `Date`, so that a clock that is off, here or there, does not matter.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["LONGEST_MS", "SHORTEST_MS", "server_now_s", "wait_ms"]

SHORTEST_MS = 1_000
LONGEST_MS = 3_600_000
_NUMBER = re.compile(r"\d{1,16}(\.\d{1,9})?")
_LONGEST_DELAY_S = 10_000_000  # 115 days: what is larger is a moment and no delay
_MILLISECONDS = 100_000_000_000  # a moment in seconds is smaller until the year 5138


def server_now_s(headers: Mapping[str, str], now_s: float) -> float:
    """The server's clock by its `Date` header, else ours; Unix seconds."""
    moment = _moment_s(headers.get("date", ""))
    return now_s if moment is None else moment


def wait_ms(value: str | None, *, now_s: float) -> int | None:
    """How long `value` asks to wait, within a second and an hour; null where it says nothing or is past."""
    text = (value or "").strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        number = float(text)
        delay_s = number if number <= _LONGEST_DELAY_S else _seconds(number) - now_s
    else:
        moment = _moment_s(text)
        if moment is None:
            return None
        delay_s = moment - now_s
    if delay_s <= 0:
        return None
    return min(max(math.ceil(delay_s * 1000), SHORTEST_MS), LONGEST_MS)


def _seconds(moment: float) -> float:
    return moment / 1000 if moment >= _MILLISECONDS else moment


def _moment_s(text: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
        except (ValueError, TypeError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None

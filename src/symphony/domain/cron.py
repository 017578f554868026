"""When a cron line is due, in a time zone.

A line has the five fields of Debian's cron, with its rules for daylight saving: a fixed time that does not
exist is due at the first minute after the gap, and one that exists twice is due the first time. A line whose
minute or hour begins with `*` goes by elapsed time instead, so that `*/15 * * * *` is due in both hours.

Source of the rules: cron(8) of Debian, as implemented by the library cronsim.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

from cronsim import CronSim, CronSimError

MAX_CRON_CHARS: Final = 200
_FIELDS: Final = 5
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ANY_DAY: Final = datetime(2024, 1, 1, tzinfo=UTC)


def cron_problem(line: str) -> str | None:
    """Why a line is no cron line or is never due (30 February); `None` if it is valid and due some day."""
    if len(line) > MAX_CRON_CHARS:
        return f"must not have more than {MAX_CRON_CHARS} characters"
    if len(line.split()) != _FIELDS:
        return "must have five fields: minute, hour, day of month, month, day of week"
    try:
        next(CronSim(line, _ANY_DAY))
    except (CronSimError, StopIteration) as error:
        reason = str(error) or "no day of the next 50 years fits"
        return f"must be a cron line that comes true: {reason[0].lower()}{reason[1:]}"
    return None


@lru_cache(maxsize=256)
def next_due_ms(line: str, zone: tzinfo, after_ms: int) -> int | None:
    """The first time after `after_ms` at which a line is due; `None` if there is none within 50 years.

    Times are wall-clock times in ms since 1970. The caller has checked `line` with `cron_problem`.
    """
    # cronsim counts in local time, which is ambiguous when clocks are set back: it may return a time before
    # `after_ms`.
    all_due = (
        (due.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
        for due in CronSim(line, moment(after_ms, zone))
    )
    return next((due_ms for due_ms in all_due if due_ms > after_ms), None)


def moment(wall_ms: int, zone: tzinfo = UTC) -> datetime:
    """A wall-clock time (ms since 1970) as a date and time in a zone."""
    return (_EPOCH + timedelta(milliseconds=wall_ms)).astimezone(zone)

"""Decides when the next recurring issue is filed, and which due times are left out. Pure.

    waits -> due -> filed, and the time counts as handled
              |
              +---> skipped: the former issue is open

Times are wall-clock times in ms since 1970. A due time counts once: all times up to `handled_ms` are done,
whatever happens to the clock. Due times that passed while nothing could be filed make one issue together.
"""

from dataclasses import dataclass, replace
from datetime import tzinfo
from enum import StrEnum
from typing import Final

from msgspec import Struct

from symphony.domain import next_due_ms

MAX_SET_BACK_MS: Final = 26 * 3_600_000
"""A clock that was set back further was wrong before: the schedule counts anew from its present time."""


class Schedule(Struct, frozen=True, kw_only=True):
    """When issues are filed: `cron` in `zone`.

    With `skip_while_open`, none is filed while the former one is open.
    """

    name: str
    cron: str
    zone: tzinfo
    skip_while_open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledIssue:
    """An issue that a schedule filed; `state` as it was last seen."""

    id: str
    identifier: str
    url: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """The record of a schedule.

    Attributes:
        handled_ms: due times up to this one are done.
        removed: it is not in the settings now; what passes meanwhile is not caught up.
        due_ms: the due time that was filed or skipped last.
        skipped: that time was skipped, because the former issue was open.
        issue: the issue that was filed last.
        failure: why the last attempt failed, in one line.
    """

    handled_ms: int
    removed: bool = False
    due_ms: int | None = None
    skipped: bool = False
    issue: FiledIssue | None = None
    failure: str | None = None


class Former(StrEnum):
    """The previous issue of a schedule."""

    OVER = "over"
    OPEN = "open"
    UNKNOWN = "unknown"


class ScheduleVerdict(StrEnum):
    """What to do about a schedule now."""

    WAIT = "wait"
    ASK = "ask"
    """Find out whether the former issue is open."""
    SKIP = "skip"
    FILE = "file"


class ScheduleDecision(Struct, frozen=True, kw_only=True):
    """What to do about a schedule, and its record afterwards; `due_ms` is the due time in question."""

    verdict: ScheduleVerdict
    record: ScheduleRecord
    due_ms: int | None = None


def present_schedule(record: ScheduleRecord | None, now_ms: int) -> ScheduleRecord:
    """The record of a schedule in the settings; a new schedule has nothing to catch up on."""
    if record is None:
        return ScheduleRecord(handled_ms=now_ms)
    if record.removed or record.handled_ms > now_ms + MAX_SET_BACK_MS:
        return replace(record, removed=False, handled_ms=now_ms)
    return record


def decide_schedule(
    schedule: Schedule, record: ScheduleRecord, now_ms: int, former: Former
) -> ScheduleDecision:
    """The decision for now.

    The first unhandled due time stands for all later ones, so a second decision on the same state, after a
    crash, is about the same time.
    """
    due_ms = next_due_ms(schedule.cron, schedule.zone, record.handled_ms)
    if due_ms is None or due_ms > now_ms:
        return ScheduleDecision(verdict=ScheduleVerdict.WAIT, record=record, due_ms=due_ms)
    if schedule.skip_while_open and former is Former.UNKNOWN:
        return ScheduleDecision(verdict=ScheduleVerdict.ASK, record=record, due_ms=due_ms)
    skipped = schedule.skip_while_open and former is Former.OPEN
    after = replace(record, handled_ms=now_ms, due_ms=due_ms, skipped=skipped, failure=None)
    return ScheduleDecision(
        verdict=ScheduleVerdict.SKIP if skipped else ScheduleVerdict.FILE, record=after, due_ms=due_ms
    )

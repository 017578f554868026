"""A schedule over a year: clock changes, daylight saving, restarts, pauses, open issues."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs

from symphony.domain import moment, next_due_ms
from symphony.scheduler import (
    FiledIssue,
    Former,
    Schedule,
    ScheduleRecord,
    ScheduleVerdict,
    decide_schedule,
    present_schedule,
)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BERLIN = ZoneInfo("Europe/Berlin")
BEGIN = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
DAILY = Schedule(name="daily", cron="30 2 * * *", zone=BERLIN)
ISSUE = FiledIssue(id="1", identifier="SYM-1")


@dataclass
class World:
    """A daemon that looks at the clock; `filed` are the due times of its issues."""

    schedule: Schedule
    record: ScheduleRecord | None = None
    former: Former = Former.OVER
    filed: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)

    def look(self, now_ms: int, *, dies: bool = False) -> None:
        """Look once; a daemon that dies has recorded nothing."""
        record = present_schedule(self.record, now_ms)
        found = decide_schedule(self.schedule, record, now_ms, self.former)
        if dies:
            return
        self.record = found.record
        if found.verdict is ScheduleVerdict.FILE and found.due_ms is not None:
            self.filed.append(found.due_ms)
            self.record = replace(found.record, issue=ISSUE)
        elif found.verdict is ScheduleVerdict.SKIP and found.due_ms is not None:
            self.skipped.append(found.due_ms)


def due_times(schedule: Schedule, since: int, until: int) -> list[int]:
    found, at = list[int](), since
    while (due := next_due_ms(schedule.cron, schedule.zone, at)) is not None and due <= until:
        found.append(due)
        at = due
    return found


@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "0 9 * * MON-FRI", "15 */12 * * *", "0 0 1 * *", "0 12 29 2 *"]
)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "UTC"])
def test_a_year_with_deaths_files_each_due_time_once(cron: str, zone: str) -> None:
    schedule, chance = Schedule(name="s", cron=cron, zone=ZoneInfo(zone)), Random(7)  # noqa: S311 - no secret
    world, now = World(schedule), BEGIN
    world.look(now)
    while now < BEGIN + 365 * DAY:
        world.look(now, dies=chance.random() < 0.2)
        now += chance.randrange(MINUTE, 90 * MINUTE)
    world.look(now)
    assert world.filed == due_times(schedule, BEGIN, now)


def test_what_passed_without_a_daemon_makes_one_issue() -> None:
    world = World(DAILY)
    world.look(BEGIN)
    world.look(BEGIN + 40 * DAY)
    world.look(BEGIN + 40 * DAY + 1)
    assert world.filed == due_times(DAILY, BEGIN, BEGIN + 2 * DAY)[:1]
    world.look(BEGIN + 41 * DAY)
    assert len(world.filed) == 2


def test_daylight_saving_neither_doubles_nor_loses_a_day() -> None:
    world = World(DAILY)
    for step in range(365 * 24 * 4):
        world.look(BEGIN + step * 15 * MINUTE)
    days = [moment(due, BERLIN).date() for due in world.filed]
    assert len(days) == len(set(days)) == 365
    odd = {moment(due, BERLIN).strftime("%m-%d %H:%M") for due in world.filed} - {
        day.strftime("%m-%d 02:30") for day in days
    }
    assert odd == {"03-29 03:00"}


def test_a_clock_that_is_set_back_files_nothing_twice() -> None:
    world = World(DAILY)
    world.look(BEGIN)
    world.look(BEGIN + DAY)
    for back in (MINUTE, HOUR, 12 * HOUR, 25 * HOUR):
        world.look(BEGIN + DAY - back)
        world.look(BEGIN + DAY + MINUTE)
    assert len(world.filed) == 1


def test_a_clock_that_was_years_ahead_does_not_silence_a_schedule() -> None:
    world = World(DAILY)
    world.look(BEGIN + 3_650 * DAY)
    world.look(BEGIN)
    world.look(BEGIN + DAY)
    assert world.filed == due_times(DAILY, BEGIN, BEGIN + DAY)


def test_nothing_is_filed_while_the_former_issue_is_open_and_that_time_is_over() -> None:
    world = World(DAILY)
    world.look(BEGIN)
    world.former = Former.OPEN
    world.look(BEGIN + DAY)
    world.former = Former.OVER
    world.look(BEGIN + DAY + HOUR)
    assert (len(world.filed), len(world.skipped)) == (0, 1)
    world.look(BEGIN + 2 * DAY)
    assert len(world.filed) == 1


def test_what_is_not_known_of_the_former_issue_is_asked_for_and_the_time_stays_due() -> None:
    record = ScheduleRecord(handled_ms=BEGIN, issue=ISSUE)
    found = decide_schedule(DAILY, record, BEGIN + DAY, Former.UNKNOWN)
    assert (found.verdict, found.record) == (ScheduleVerdict.ASK, record)
    regardless = structs.replace(DAILY, skip_while_open=False)
    for former in Former:
        assert decide_schedule(regardless, record, BEGIN + DAY, former).verdict is ScheduleVerdict.FILE


def test_a_schedule_that_was_left_out_for_a_while_catches_nothing_up() -> None:
    record = ScheduleRecord(handled_ms=BEGIN, removed=True, issue=ISSUE)
    back = present_schedule(record, BEGIN + 9 * DAY)
    assert (back.handled_ms, back.removed, back.issue) == (BEGIN + 9 * DAY, False, ISSUE)
    assert present_schedule(None, BEGIN).handled_ms == BEGIN

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from symphony.domain import cron_problem, moment, next_due_ms

BERLIN = ZoneInfo("Europe/Berlin")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    "line", ["0 9 * * MON", "*/15 * * * *", "0 0 29 2 *", "0 0 L * *", "0 0 31 2 1", "0 0 * 2 MON#5"]
)
def test_a_line_that_comes_true_some_day_is_none_of_a_problem(line: str) -> None:
    assert cron_problem(line) is None


@pytest.mark.parametrize(
    "line",
    [
        *("0 0 30 2 *", "0 0 31 4,6 *", "61 * * * *", "0 0 * * 8", "x"),
        *("", "@daily", "* * * * * *", "0 9 * *", f"{'0,' * 200}0 9 * * *"),
    ],
)
def test_a_line_that_never_comes_true_or_is_none_has_a_problem(line: str) -> None:
    assert cron_problem(line) is not None


@pytest.mark.parametrize(
    ("line", "after", "due"),
    [
        ("30 2 * * *", "2026-03-28T12:00+01:00", "2026-03-29T03:00+02:00"),  # it does not exist
        ("0,30 2 * * *", "2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"),  # both at the gap's end
        ("30 2 * * *", "2026-10-24T12:00+02:00", "2026-10-25T02:30+02:00"),  # twice: the first time
        ("30 2 * * *", "2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"),
        ("30 2 * * *", "2026-10-25T02:10+01:00", "2026-10-26T02:30+01:00"),  # between the two
        ("*/30 * * * *", "2026-10-25T02:30+02:00", "2026-10-25T02:00+01:00"),  # by elapsed time
    ],
)
def test_daylight_saving(line: str, after: str, due: str) -> None:
    found = next_due_ms(line, BERLIN, ms(after))
    assert found is not None
    assert moment(found, BERLIN).isoformat() == f"{due[:16]}:00{due[16:]}"

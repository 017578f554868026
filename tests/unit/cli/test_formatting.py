import pytest

from symphony.api.formatting import ago, duration, parse_time, seconds_between, tokens
from symphony.cli.formatting import cell, lines
from symphony.domain import plural


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "?"),
        (-5, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (840, "14 min"),
        (845, "14 min"),
        (3_600, "1 h"),
        (3_659, "1 h"),
        (8_040, "2 h 14 min"),
        (86_400, "1 d"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_are_told_in_their_two_largest_units(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_what_is_past_is_ago() -> None:
    assert [ago(None), ago(-1), ago(0.4), ago(3)] == ["never", "now", "now", "3 s ago"]


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0"), (999, "999"), (1_000, "1.0k"), (45_210, "45.2k"), (1_234_567, "1.2M")]
)
def test_tokens_are_told_short(number: int, words: str) -> None:
    assert tokens(number) == words


def test_one_is_singular() -> None:
    assert [plural(number, "slot") for number in (0, 1, 2)] == ["0 slots", "1 slot", "2 slots"]


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_none(text: str | None) -> None:
    assert parse_time(text) is None
    assert seconds_between(text, "2026-03-01T12:00:00Z") is None
    assert seconds_between("2026-03-01T12:00:00Z", text) is None


def test_a_time_without_a_zone_is_utc() -> None:
    assert seconds_between("2026-03-01T12:00:00", "2026-03-01T12:00:05.500000Z") == 5.5


def test_foreign_text_is_harmless() -> None:
    assert cell("a\x1b[2J\nb\ud800").plain == "a b?"
    assert cell(None).plain == ""
    assert lines("a\r\nb\x1b[31m\x07").plain == "a\nb "

import pytest

from symphony.domain import age_seconds, plural


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90m", 5_400), (" 12 H ", 43_200), ("30d", 2_592_000), ("1w", 604_800), ("5s", 5)],
)
def test_an_age_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert age_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "-1d", "1.5h", "1y", "9999999s", "\u0665d"])
def test_anything_else_is_no_age(text: str) -> None:
    assert age_seconds(text) is None


def test_one_is_no_plural() -> None:
    assert [plural(number, "turn") for number in (0, 1, 2)] == ["0 turns", "1 turn", "2 turns"]

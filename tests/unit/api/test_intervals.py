"""Confidence intervals, against the values in the papers that they are from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.api.intervals import difference, wilson


@pytest.mark.parametrize(
    ("successes", "number", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_that_of_wilson(
    successes: int, number: int, low: float, high: float
) -> None:
    assert wilson(successes, number) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [((56, 70, 48, 80), 0.0524, 0.3339), ((9, 10, 3, 10), 0.1705, 0.8090), ((10, 10, 0, 10), 0.6075, 1.0)],
)
def test_the_interval_of_a_difference_is_that_of_newcombe(
    counts: tuple[int, int, int, int], low: float, high: float
) -> None:
    assert difference(*counts) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 500), st.integers(0, 500))
def test_an_interval_holds_its_share_and_stays_in_bounds(successes: int, failures: int) -> None:
    number = successes + failures
    low, high = wilson(successes, number)
    assert 0 <= low <= (successes / number if number else 0.5) <= high <= 1

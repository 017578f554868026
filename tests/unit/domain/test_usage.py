"""Tokens by kind, prices with dates, and costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.domain import MAX_COUNT, NO_COST, Cost, Price, Tokens, cost_of, find_price

BIG = Price(input=2, output=10, cache_read=0.5, cache_write=3)
PRICES = {
    "gpt-*": [Price(input=1, output=1)],
    "gpt-5*": [Price(input=2, output=2)],
    "gpt-5.5": [Price(input=3, output=3), Price(since="2026-10-01", input=4, output=4)],
    "later": [Price(since="2026-10-01", input=5, output=5)],
}
COUNTS = st.builds(Tokens, *[st.integers(0, 10**9)] * 6)


def test_each_kind_of_token_has_its_price_and_reasoning_is_output() -> None:
    used = Tokens(1_000_000, 100_000, 1_100_000, 600_000, 100_000, 50_000)
    assert cost_of(used, BIG).cost_usd == pytest.approx(0.3 * 2 + 0.6 * 0.5 + 0.1 * 3 + 0.1 * 10)
    plain = Price(input=2, output=10)
    assert cost_of(used, plain).cost_usd == pytest.approx(2 + 1), "cached input costs as much as other input"


def test_tokens_without_a_price_are_unpriced_and_never_cost_nothing() -> None:
    assert cost_of(Tokens(3, 4, 7), None) == Cost(cost_usd=None, unpriced_tokens=7)
    assert cost_of(Tokens(total_tokens=9), BIG) == Cost(cost_usd=None, unpriced_tokens=9), "of no known kind"
    assert cost_of(Tokens(1_000_000, 0, 1_000_005), BIG) == Cost(cost_usd=2.0, unpriced_tokens=5)
    assert cost_of(Tokens(), BIG) == NO_COST
    assert cost_of(Tokens(5, 5, 10), Price(input=0, output=0)) == Cost(cost_usd=0.0)


@pytest.mark.parametrize(
    ("model", "day", "price"),
    [
        ("gpt-5.5", "2026-09-30", 3),
        ("gpt-5.5", "2026-10-01", 4),
        ("gpt-5.5-mini", "2026-10-01", 2),
        ("gpt-4", "2026-10-01", 1),
        ("later", "2026-09-30", None),
        ("later", "2027-01-01", 5),
        ("claude", "2026-10-01", None),
        (None, "2026-10-01", None),
        ("", "2026-10-01", None),
    ],
)
def test_an_exact_name_goes_first_then_the_longer_beginning_then_the_latest_day(
    model: str | None, day: str, price: float | None
) -> None:
    found = find_price(PRICES, model, day)
    assert (found and found.input) == price


@given(COUNTS, COUNTS)
def test_what_is_above_a_mark_added_to_it_is_the_higher_of_both(one: Tokens, other: Tokens) -> None:
    higher = one.plus(other.above(one)).counts()
    assert higher == {name: max(count, other.counts()[name]) for name, count in one.counts().items()}
    assert one.plus(Tokens(*[MAX_COUNT] * 6)) == Tokens(*[MAX_COUNT] * 6)


def test_costs_are_added_and_corrected() -> None:
    unpriced, known = Cost(unpriced_tokens=7), Cost(cost_usd=0.5)
    assert unpriced.plus(known) == Cost(cost_usd=0.5, unpriced_tokens=7)
    assert NO_COST.plus(unpriced).cost_usd is None
    correction = known.above(Cost(cost_usd=0.75, unpriced_tokens=7))
    assert Cost(cost_usd=2.0, unpriced_tokens=9).plus(correction) == Cost(cost_usd=1.75, unpriced_tokens=2)
    assert NO_COST.plus(correction) == Cost(cost_usd=0.0), "no sum is below 0"


def test_people_are_shown_a_millionth_of_a_dollar() -> None:
    assert Cost(cost_usd=0.1 + 0.2, unpriced_tokens=3).rounded() == Cost(cost_usd=0.3, unpriced_tokens=3)
    assert NO_COST.rounded() is NO_COST

"""Counts of tokens and turns: no sum of them leaves the range that every reader of JSON holds exactly."""

from typing import Final

MOST: Final = 2**53


def within(count: int) -> int:
    """The nearest count in 0..`MOST`."""
    return min(max(count, 0), MOST)


def added(one: int, other: int) -> int:
    """The sum of two counts; at `MOST` it stays there."""
    return within(within(one) + within(other))

"""Counts of tokens and turns: no sum of them leaves the range that every reader of JSON holds exactly."""

from typing import Final

MAX_COUNT: Final = 2**53


def clamp_count(count: int) -> int:
    """The nearest count in 0..`MOST`."""
    return min(max(count, 0), MAX_COUNT)


def add_counts(one: int, other: int) -> int:
    """The sum of two counts; at `MOST` it stays there."""
    return clamp_count(clamp_count(one) + clamp_count(other))

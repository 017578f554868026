"""Counts of tokens and turns, limited to the integers that every JSON reader represents exactly; as words."""

from typing import Final

MAX_COUNT: Final = 2**53


def clamp_count(count: int) -> int:
    """The nearest count from 0 to `MAX_COUNT`."""
    return min(max(count, 0), MAX_COUNT)


def add_counts(one: int, other: int) -> int:
    """The sum of two counts, at most `MAX_COUNT`."""
    if one >= 0 <= other and (total := one + other) <= MAX_COUNT:
        return total  # nearly always, and counts are added with each report of an agent
    return clamp_count(clamp_count(one) + clamp_count(other))


def plural(number: object, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""Numbers and ages as people read and write them, and counts that fit into every JSON reader's numbers."""

import re
from typing import Final

MAX_COUNT: Final = 2**53
"""The largest count."""

_AGE: Final = re.compile(r"(\d{1,6})\s*([smhdw])", re.ASCII)
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def age_seconds(text: str) -> float | None:
    """The seconds of an age such as `90m`, `12h`, `30d` or `4w`, or of `0`; `None` for any other text."""
    text = text.strip().lower()
    if text == "0":
        return 0.0
    found = _AGE.fullmatch(text)
    return None if found is None else float(int(found[1]) * _UNITS_S[found[2]])


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

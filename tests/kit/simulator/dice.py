"""Chance that is the same on every machine: whole numbers and comparisons only, from one seed."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

__all__ = ["Dice", "Span"]

T = TypeVar("T")

Span = tuple[int, int]


class Dice(Random):
    """A seeded source of chance.

    Draws are products of one double and a small whole number, which IEEE 754 fixes to the bit. Nothing
    here calls a logarithm, whose last bit differs between mathematical libraries.
    """

    def chance(self, probability: float) -> bool:
        """True with this probability; a probability of 0 draws nothing."""
        return probability > 0 and self.random() < probability

    def between(self, span: Span) -> int:
        """A whole number of the span, both ends included."""
        low, high = span
        return low + int(self.random() * (high - low + 1))

    def pick(self, many: Sequence[T]) -> T:
        """One of many."""
        return many[int(self.random() * len(many))]

    def around(self, mean: int) -> int:
        """A wait of at least 1 whose mean is `mean`."""
        return 1 + int(self.random() * 2 * mean)

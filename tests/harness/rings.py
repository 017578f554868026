"""What of a test is run by `make test`, and what by `make test-all` alone."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet

__all__ = ["mark_variants", "mostly_slow"]

_EVERY_CASE = ("tests/unit/", "tests/simulation/")


def mark_variants(items: Iterable[pytest.Item]) -> None:
    """Mark all cases but the first of each test `slow`.

    Left alone are unit tests, simulations, and tests of which some case is marked by hand.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.nodeid.startswith(_EVERY_CASE):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for first, *variants in cases.values():
        if all(item.get_closest_marker("slow") is None for item in (first, *variants)):
            for item in variants:
                item.add_marker(pytest.mark.slow)


def mostly_slow(values: Iterable[Any], *, fast: int = 1) -> list[ParameterSet]:
    """Values of a parameter of a unit test: the first ones show the promise, and the others are `slow`.

    Args:
        values: as for `pytest.mark.parametrize`; several values of one case are a tuple.
        fast: how many come first.
    """
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=pytest.mark.slow if number >= fast else (),
        )
        for number, value in enumerate(values)
    ]

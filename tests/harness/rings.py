"""What of a test is run by `make test`, and what by `make test-all` alone."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet

__all__ = ["mostly_slow"]


def mostly_slow(values: Iterable[Any], *, fast: int = 1) -> list[ParameterSet]:
    """Values of a parameter: the first ones show the promise, and the others are variants, marked `slow`.

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

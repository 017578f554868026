"""The order in which pytest-xdist shares out the tests: no worker is left with the long ones at the end."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

__all__ = ["in_shares"]

T = TypeVar("T")


def in_shares(tests: Sequence[T], workers: int, *, name: Callable[[T], str]) -> list[T]:
    """The same tests, for `--dist worksteal`, which gives each worker one piece of the list to begin with.

    Each piece begins with whole files of long tests and ends with unit tests. Whoever is done first takes
    from the end of the others' pieces, so what is left at last takes milliseconds and not a minute.
    Tests of Ray come first, in one piece, so that there is one Ray cluster.

    Args:
        tests: all of them.
        workers: how many processes there are.
        name: tells the node id of a test.
    """
    ray, long, short = _sorted(tests, name)
    files = [[*file] for _, file in groupby(long, key=lambda test: name(test).partition("::")[0])]
    shares = [[test for file in files[worker::workers] for test in file] for worker in range(workers)]
    shares[0] = [*ray, *shares[0]]
    shared: list[T] = []
    for left, share in zip(range(workers, 0, -1), shares, strict=True):
        size = (len(tests) - len(shared)) // left  # as xdist counts
        filling = max(0, size - len(share)) if left > 1 else len(short)
        shared += [*share, *short[:filling]]
        short = short[filling:]
    return shared


def _sorted(tests: Iterable[T], name: Callable[[T], str]) -> tuple[list[T], list[T], list[T]]:
    """Tests of Ray, other long ones, and unit tests."""
    found: tuple[list[T], list[T], list[T]] = ([], [], [])
    for test in tests:
        path = name(test)
        found[0 if "integration/ray/" in path else 2 if path.startswith("tests/unit/") else 1].append(test)
    return found

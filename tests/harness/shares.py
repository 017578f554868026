"""The order in which pytest-xdist shares out the tests: no worker is left with the long ones at the end."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

__all__ = ["in_shares"]

T = TypeVar("T")


def in_shares(tests: Sequence[T], workers: int, *, name: Callable[[T], str]) -> list[T]:
    """The same tests, for `--dist worksteal`, which gives each worker one piece of the list to begin with.

    A test that starts processes waits for most of its time, and a unit test never. So each piece has whole
    files of long tests with unit tests between them, which keep the processors busy, and it ends with unit
    tests: whoever is done first takes from the end of the others' pieces, and what is left at last takes
    milliseconds and not a minute. Tests of Ray come first, in one piece, so that there is one Ray cluster.

    Args:
        tests: all of them.
        workers: how many processes there are.
        name: tells the node id of a test.
    """
    ray, long, short = _sorted(tests, name)
    files = [[*file] for _, file in groupby(long, key=lambda test: name(test).partition("::")[0])]
    shared: list[T] = []
    for worker in range(workers):
        own = files[worker::workers]
        left = workers - worker
        size = (len(tests) - len(shared)) // left  # as xdist counts
        first = [] if worker else ray
        filling = size - len(first) - sum(map(len, own)) if left > 1 else len(short)
        shared += [*first, *_mixed(own, short[: max(0, filling)])]
        short = short[max(0, filling) :]
    return shared


def _mixed(files: Sequence[Sequence[T]], short: Sequence[T]) -> list[T]:
    """The files with half of the short tests between them, and the other half behind them."""
    each = len(short) // (2 * len(files)) if files else 0
    mixed = [
        test
        for number, file in enumerate(files)
        for test in (*file, *short[number * each : (number + 1) * each])
    ]
    return [*mixed, *short[len(files) * each :]]


def _sorted(tests: Iterable[T], name: Callable[[T], str]) -> tuple[list[T], list[T], list[T]]:
    """Tests of Ray, other long ones, and unit tests."""
    found: tuple[list[T], list[T], list[T]] = ([], [], [])
    for test in tests:
        path = name(test)
        found[0 if "integration/ray/" in path else 2 if path.startswith("tests/unit/") else 1].append(test)
    return found

from collections.abc import Iterator
from itertools import groupby

import pytest

from harness.shares import in_shares

RAY = [f"tests/integration/ray/test_runs.py::test_{number}" for number in range(5)]
LONG = [f"tests/acceptance/test_{file}.py::test_{number}" for file in "abcdefg" for number in range(3)]
SHORT = [f"tests/unit/cli/test_x.py::test_{number}" for number in range(60)]


def _pieces(tests: list[str], workers: int) -> Iterator[list[str]]:
    """What each worker begins with, as xdist cuts it."""
    for left in range(workers, 0, -1):
        size = len(tests) // left
        yield tests[:size]
        tests = tests[size:]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6])
def test_each_worker_has_whole_long_files_with_short_tests_between_and_behind_them(workers: int) -> None:
    shared = in_shares([*LONG, *RAY, *SHORT], workers, name=str)
    assert sorted(shared) == sorted([*LONG, *RAY, *SHORT])
    assert shared[: len(RAY)] == RAY
    owners: dict[str, int] = {}
    for worker, piece in enumerate(_pieces(shared, workers)):
        for test in piece:
            if test in LONG:
                assert owners.setdefault(test.partition("::")[0], worker) == worker
        short = [len([*tests]) for kind, tests in groupby(piece, key=SHORT.__contains__) if kind]
        assert piece[-1] in SHORT
        assert short[-1] >= sum(short) / 2, "the rest is between the long ones"
    assert len(set(owners.values())) == workers


def test_a_selection_of_long_tests_alone_is_shared_out_as_well() -> None:
    assert sorted(in_shares(LONG, 4, name=str)) == sorted(LONG)
    assert in_shares([], 4, name=str) == []


def test_tests_of_one_kind_keep_their_order() -> None:
    shared = in_shares([*SHORT, *LONG], 1, name=str)
    assert [test for test in shared if test in LONG] == LONG
    assert [test for test in shared if test in SHORT] == SHORT

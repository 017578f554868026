"""The invariants bite: broken schedulers and daemons are found within a few schedules, by the right rule."""

from collections.abc import Callable

import pytest

from harness.broken_parts import BROKEN_PARTS
from harness.broken_steps import BROKEN_STEPS
from kit.simulator import INVARIANTS, Result, run_schedule

ENOUGH = 500


def _found(run: Callable[[int], Result], expected: str) -> None:
    for seed in range(ENOUGH):
        result = run(seed)
        if result.violations:
            break
    else:
        pytest.fail(f"not found in {ENOUGH} schedules")
    assert {found.invariant for found in result.violations} == {expected}
    assert f"--schedules 1 --seed {seed}" in result.report()


@pytest.mark.parametrize("name", BROKEN_STEPS)
def test_a_broken_scheduler_is_found_by_the_rule_that_it_breaks(name: str) -> None:
    broken, expected = BROKEN_STEPS[name]
    _found(lambda seed: run_schedule(seed, step=broken), expected)


@pytest.mark.parametrize("name", BROKEN_PARTS)
def test_a_broken_daemon_is_found_by_the_rule_that_it_breaks(name: str) -> None:
    broken, expected = BROKEN_PARTS[name]
    _found(lambda seed: run_schedule(seed, parts=broken()), expected)


def test_every_invariant_is_shown_to_bite() -> None:
    shown = {expected for _, expected in (*BROKEN_STEPS.values(), *BROKEN_PARTS.values())}
    assert shown == set(INVARIANTS)

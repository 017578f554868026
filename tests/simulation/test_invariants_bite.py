"""The invariants bite: broken schedulers are found within a few schedules, by the right rule."""

import pytest

from harness.broken_steps import BROKEN_STEPS
from symphony.testing.simulator import INVARIANTS, run_schedule

ENOUGH = 300


@pytest.mark.parametrize("name", BROKEN_STEPS)
def test_a_broken_scheduler_is_found_by_the_rule_that_it_breaks(name: str) -> None:
    broken, expected = BROKEN_STEPS[name]
    for seed in range(ENOUGH):
        result = run_schedule(seed, step=broken)
        if result.violations:
            break
    else:
        pytest.fail(f"not found in {ENOUGH} schedules")
    assert {found.invariant for found in result.violations} == {expected}
    assert f"--schedules 1 --seed {seed}" in result.report()


def test_every_invariant_is_shown_to_bite() -> None:
    assert {expected for _, expected in BROKEN_STEPS.values()} == set(INVARIANTS)

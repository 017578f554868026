"""The invariants bite: broken schedulers and daemons are found within a few schedules, by the right rule."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.broken_parts import BROKEN_PARTS
from harness.broken_steps import BROKEN_STEPS
from harness.broken_watches import BROKEN_WATCHES
from kit.simulator import (
    INVARIANTS,
    PROFILES,
    ForgeHabits,
    Parts,
    Result,
    Scenario,
    Simulation,
    hours,
    run_schedule,
)

ENOUGH = 500
FIRST = {
    "drops the timer of the drain": 32,
    "starts under an invalid workflow": 309,
    "uses a run id again": 45,
    "starts what is not eligible": 201,
    "lets idle runs go on": 710,
    "starts while paused": 62,
    "ignores the budget of the day": 41,
    "is deaf to comments": 182,
    "reads no comments": 182,
    "drops an answer": 97,
    "starts on a limited agent": 84,
    "forgets a limit": 84,
    "drops the timer of a limit": 84,
    "keeps nothing of a block": 24,
    "keeps only after the effect": 53,
    "has retries come due at once": 63,
    "forgets what was asked": 44,
    "forgets that it is paused": 73,
    "starts closed work": 441,
    "lifts a block when a run ends": 193,
    "forgets which feedback it took": 36,
    "counts no turns": 1,
    "sends work back for ever": 13,
    "takes silence for an end": 28,
    "takes an answer twice": 22,
    "never unblocks": 7,
    "ignores the budget of an issue": 31,
    "tells nobody of a block": 16,
    "prefers the fallback": 10,
    "lifts a stop by a setting": 63,
    "ends nothing that is left": 25,
    "forgets the blocks": 13,
    "keeps a claim that was given up": 13,
    "forgets what was told": 2,
    "blocks nothing": 8,
}
"""Where the search starts for those that are found in few schedules: only a saving of time."""


def _find(name: str, run: Callable[[int], Result], expected: str) -> None:
    first = FIRST.get(name, 0)
    for seed in range(first, first + ENOUGH):
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
    _find(name, lambda seed: run_schedule(seed, step=broken), expected)


@pytest.mark.parametrize("name", BROKEN_PARTS)
def test_a_broken_daemon_is_found_by_the_rule_that_it_breaks(name: str) -> None:
    broken, expected = BROKEN_PARTS[name]
    _find(name, lambda seed: run_schedule(seed, parts=broken()), expected)


@pytest.mark.parametrize("name", BROKEN_WATCHES)
def test_a_broken_watch_is_found_by_the_rule_that_it_breaks(name: str) -> None:
    watch, expected = BROKEN_WATCHES[name]
    habits = ForgeHabits(observe_ms=60_000, checks_ms=(1_000, 60_000), conflicts=0.8, late=0)
    profile = replace(PROFILES["forge"], forge=habits)
    scenario = Scenario(issues=6, profile=profile)
    runs = (
        Simulation(scenario, seed=seed, duration=hours(8), parts=Parts(watch=watch)).run()
        for seed in range(FIRST.get(name, 0), 10)
    )
    found = next((result.violations for result in runs if result.violations), ())
    assert {each.invariant for each in found} == {expected}


def test_the_search_starts_late_only_for_what_is_searched() -> None:
    assert FIRST.keys() <= {*BROKEN_STEPS, *BROKEN_PARTS, *BROKEN_WATCHES}


def test_every_invariant_is_shown_to_bite() -> None:
    broken = (*BROKEN_STEPS.values(), *BROKEN_PARTS.values(), *BROKEN_WATCHES.values())
    shown = {expected for _, expected in broken}
    assert shown == set(INVARIANTS)

"""Every crash point: the daemon dies there, and what was left undone is done once, or told (DESIGN 4)."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.nightly import NIGHTLY
from kit.simulator import INVARIANTS, PROFILES, CrashPoint, Result, Scenario, hours
from kit.simulator.crash_points import ALL_POINTS, OUTCOMES, RECOVERY_POINTS, StepPoint, table
from kit.simulator.profiles import AgentHabits, CheckHabits, JournalHabits, OperatorHabits
from kit.simulator.simulation import Simulation
from symphony.domain import FaultPoint

_DOCS = Path(__file__).parents[2] / "docs" / "RELIABILITY.md"
_BEGIN, _END = "<!-- simulated-crash-points:begin -->", "<!-- simulated-crash-points:end -->"
_ENOUGH = 60
_DEATHS = 3 if NIGHTLY else 1
_DURATION = hours(3 if NIGHTLY else 1)
_MINUTE_MS = 60_000
_WORLD = replace(
    PROFILES["calm"],
    name="mine",
    checks=CheckHabits(rounds=1, lasts_ms=(500, 5_000)),
    agents=AgentHabits(turn_ms=(5_000, 200_000), asks=0.3, fails=0.2, stubborn=0.2, stalls=0.1),
    operators=OperatorHabits(
        drain_every_ms=60 * _MINUTE_MS, verb_every_ms=20 * _MINUTE_MS, down_ms=(0, 30_000)
    ),
)


def _died(point: CrashPoint, *, ordinal: int = 1, journal: JournalHabits | None = None) -> list[Result]:
    """The lives of some worlds in which the daemon died at a point."""
    profile = replace(_WORLD, journal=journal or _WORLD.journal)
    scenario = Scenario(issues=6, slots=2, profile=profile, crash=(point, ordinal))
    found = []
    for seed in range(_ENOUGH):
        result = Simulation(scenario, seed=seed, duration=_DURATION, replays=NIGHTLY).run().check()
        if result.statistics.crashes.get(point):
            found.append(result)
            if len(found) == _DEATHS:
                break
    return found


@pytest.mark.parametrize("point", ALL_POINTS)
def test_a_death_there_is_made_up_for(point: CrashPoint) -> None:
    found = _died(point)
    assert found
    for result in found:
        assert result.statistics.lives > 1


@pytest.mark.parametrize("point", [StepPoint.KEPT, FaultPoint.TURN_ENDED, FaultPoint.AFTER_COMMENT])
def test_a_journal_that_is_gone_costs_nothing_but_history(point: CrashPoint) -> None:
    assert _died(point, journal=JournalHabits(lost=1))


@pytest.mark.parametrize("point", RECOVERY_POINTS)
def test_a_death_during_the_recovery_is_made_up_for_too(point: CrashPoint) -> None:
    assert _died(point, ordinal=2)


def test_every_point_has_its_row_and_every_rule_in_it_exists() -> None:
    assert OUTCOMES.keys() == set(ALL_POINTS)
    for outcome in OUTCOMES.values():
        assert outcome.rules
        assert set(outcome.rules) <= set(INVARIANTS)


def test_the_table_in_the_docs_is_that_of_the_simulator() -> None:
    """`SYMPHONY_WRITE_DOCS=1` writes it."""
    text = _DOCS.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    wanted = f"{before}{_BEGIN}\n{table()}\n{_END}{after}"
    if os.environ.get("SYMPHONY_WRITE_DOCS"):
        _DOCS.write_text(wanted, encoding="utf-8")
    assert text == wanted, "write it anew with SYMPHONY_WRITE_DOCS=1"

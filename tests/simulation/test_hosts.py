"""Sessions on hosts that die, freeze, are cut off and come back: no two live agents of one issue."""

from collections import Counter
from dataclasses import replace

import pytest

from harness.nightly import NIGHTLY
from harness.rings import mostly_slow
from kit.simulator import PROFILES, Result, Scenario, days
from kit.simulator.judged import AGENT
from kit.simulator.simulation import Parts, Simulation
from symphony.domain import Category
from symphony.scheduler import MAX_REST_MS, Notify, RunEnded, StartRun

SCENARIO = Scenario(issues=40, slots=10, profile=PROFILES["hosts"], poll_interval_ms=300_000)
SEEDS = range(4 if NIGHTLY else 2)


def run(seed: int, *, parts: Parts | None = None) -> Result:
    return Simulation(SCENARIO, seed=seed, duration=days(2), parts=parts, replays=False).run()


@pytest.mark.parametrize("seed", mostly_slow(SEEDS))
def test_no_issue_has_two_live_agents_and_all_are_finished(seed: int) -> None:
    result = run(seed).check()
    ends = [fact.outcome.failure for _, fact, _ in result.history if isinstance(fact, RunEnded)]
    reasons = Counter(failure.category for failure in ends if failure is not None)
    assert reasons[Category.WORKER_LOST] > 0, "the positive control: links were lost"
    assert reasons[Category.HOST_UNAVAILABLE] > 0, "and hosts were away"
    assert result.statistics.lives > 1, "and daemons died"


def test_no_host_gets_more_runs_than_it_may() -> None:
    habits = SCENARIO.profile.hosts
    running: dict[str, str | None] = {}
    most: Counter[str] = Counter()
    result = run(1).check()
    for life in result.lives:
        running.clear()
        for _, fact, said in life.steps:
            if isinstance(fact, RunEnded):
                running.pop(fact.run_id, None)
            for command in said:
                if isinstance(command, StartRun):
                    running[command.run_id] = command.host
            for host, count in Counter(host for host in running.values() if host).items():
                most[host] = max(most[host], count)
    assert set(most) == set(habits.names)
    assert max(most.values()) == habits.slots


@pytest.mark.slow
def test_a_host_with_another_release_rests_and_holds_nothing_up() -> None:
    """It is tried now and then, one run at a time, and never while it rests."""
    habits = replace(SCENARIO.profile.hosts, names=("a", "b"), old=("b",), trouble_every_ms=None)
    calm = replace(SCENARIO.profile, hosts=habits, operators=PROFILES["calm"].operators)
    scenario = replace(SCENARIO, profile=calm)
    duration = days(2 if NIGHTLY else 1)
    result = Simulation(scenario, seed=1, duration=duration, replays=False).run().check()
    starts = Counter(
        command.host for _, _, said in result.history for command in said if isinstance(command, StartRun)
    )
    rests = [
        command.fields["host"]
        for _, _, said in result.history
        for command in said
        if isinstance(command, Notify) and command.event == "host_resting"
    ]
    assert set(rests) == {"b"}
    tries = duration.total_seconds() * 1_000 / MAX_REST_MS
    assert starts["b"] <= tries + 10, "one in ten minutes, after the first rests"


def test_a_daemon_that_does_not_wait_for_what_is_left_on_hosts_is_found() -> None:
    found = [run(seed, parts=Parts(fences=False)) for seed in SEEDS]
    broken = {violation.invariant for result in found for violation in result.violations}
    assert broken == {AGENT.name}

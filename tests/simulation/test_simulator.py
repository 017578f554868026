"""The simulator itself: scripted sessions, figures, reports, and the same history for the same seed."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest

from harness.broken_steps import doubles_a_run
from harness.nightly import NIGHTLY
from kit.simulator import (
    PROFILES,
    Result,
    Scenario,
    Session,
    SimulationFailedError,
    days,
    hours,
    make_issue,
    make_settings,
    run_schedule,
    simulate,
)
from kit.simulator.books import Left
from kit.simulator.clock import Clock
from kit.simulator.dice import Dice
from kit.simulator.memory import Memory
from symphony.domain import Category
from symphony.scheduler import (
    ClaimKind,
    Notify,
    OutcomeKind,
    Recovered,
    RunEnded,
    StartRun,
    StoredClaim,
    initial_state,
    step,
)

STORM = Scenario(issues=40, slots=3, profile=PROFILES["storm"], poll_interval_ms=300_000)


def _one(*sessions: Session, **settings: object) -> Result:
    """What becomes of one issue whose attempts go like this."""
    scenario = Scenario(
        board=(make_issue("A-1"),),
        sessions={"A-1": sessions},
        settings=make_settings(**settings),
        winds_down=False,
    )
    return simulate(scenario, duration=hours(3)).check()


def _ends(result: Result) -> list[OutcomeKind]:
    return [fact.outcome.kind for _, fact, _ in result.history if isinstance(fact, RunEnded)]


def _start_times(result: Result) -> list[int]:
    return [now_ms for now_ms, _, said in result.history for each in said if isinstance(each, StartRun)]


# --- scripted sessions -----------------------------------------------------------------------------------


def test_a_session_that_succeeds_finishes_its_issue_in_one_run() -> None:
    result = _one(Session.succeeds(after_s=90, turns=3))
    assert _ends(result) == [OutcomeKind.SUCCEEDED]
    assert (result.statistics.finished, result.statistics.starts, result.statistics.retries) == (1, 1, 0)


def test_failures_are_retried_with_backoff_until_one_succeeds() -> None:
    failing = Session.fails(after_s=5)
    result = _one(failing, failing, Session.succeeds())
    assert _ends(result) == [OutcomeKind.FAILED, OutcomeKind.FAILED, OutcomeKind.SUCCEEDED]
    ends = [now_ms for now_ms, fact, _ in result.history if isinstance(fact, RunEnded)]
    waits = [start - end for start, end in zip(_start_times(result)[1:], ends, strict=False)]
    assert [wait // 10_000 for wait in waits] == [1, 2]
    assert result.statistics.starts_per_issue == {"a-1": 3}


def test_an_agent_that_asks_a_person_blocks_its_issue() -> None:
    result = _one(Session.asks())
    assert _ends(result) == [OutcomeKind.INPUT_REQUIRED]
    assert result.statistics.blocks == 1


def test_a_stalled_agent_is_stopped_though_it_takes_its_time_to_end() -> None:
    result = _one(Session.stalls(after_s=20).stubborn(for_s=100), Session.succeeds())
    assert _ends(result) == [OutcomeKind.CANCELED, OutcomeKind.SUCCEEDED]
    first, second = _start_times(result)
    assert second - first > 300_000 + 100_000


def test_without_a_stall_limit_a_hanging_turn_ends_by_its_own_timeout() -> None:
    assert _ends(_one(Session.stalls(), Session.succeeds(), stall_timeout_ms=0))[0] is OutcomeKind.TIMED_OUT


@pytest.mark.parametrize("session", [Session.crashes_at_launch(), Session.workspace_fails()])
def test_attempts_that_never_get_to_work_block_the_issue(session: Session) -> None:
    result = _one(session, max_attempts_without_progress=2)
    assert _ends(result) == [OutcomeKind.FAILED] * 2
    assert result.statistics.blocks == 1


def test_sessions_without_progress_block_the_issue_too() -> None:
    result = _one(Session.succeeds(moves_to=None).idle(), max_turns=1, max_attempts_without_progress=3)
    assert result.statistics.blocks == 1
    assert result.statistics.starts == 3


def test_a_wait_that_the_agent_asks_for_is_kept() -> None:
    patient = Session.fails(Category.AGENT_RATE_LIMITED, after_s=1, retry_after_ms=1_200_000)
    first, second = _start_times(_one(patient, Session.succeeds()))
    assert second - first > 1_200_000


@pytest.mark.slow
def test_no_outage_of_the_models_blocks_an_issue_and_all_finish_after_it() -> None:
    settings = make_settings(max_concurrent_agents=5, max_attempts_without_progress=1)
    scenario = Scenario(issues=60, settings=settings, profile=PROFILES["models"])
    result = simulate(scenario, seed=4711, duration=days(7 if NIGHTLY else 3)).check()
    said = (command for *_, commands in result.history for command in commands if isinstance(command, Notify))
    notices = [one for one in said if one.event == "agent_limited"]
    told = [one for one in notices if one.level == "warning"]
    assert result.statistics.blocks == 0
    assert result.statistics.finished == 60
    assert 0 < len(told) < len(notices), "an outage is told once, and tried again and again"
    assert all(one.fields["delay_ms"] <= 60_000 for one in notices)


# --- its own mistakes ------------------------------------------------------------------------------------


def test_a_wall_clock_that_was_set_counts_until_a_later_life_has_written_its_times() -> None:
    clock, habits = Clock(), PROFILES["forge"].journal
    memory, settings = Memory(clock, Dice(0), replace(habits, lost=0, full_every_ms=None)), make_settings()
    claim = StoredClaim(issue=make_issue("A-1"), kind=ClaimKind.RETRYING, due_ms=80_000)
    clock_set = []
    for event in (Recovered(claims=(claim,)), None, Recovered(claims=(claim,)), None):
        memory.begin(1)
        memory.first_input(settings, ())
        clock_set.append(memory.left is not None and memory.left.clock_set)
        if event is not None:  # else it dies before it writes anything
            before = initial_state(settings, epoch="d1")
            after, commands = step(before, event, clock.now_ms)
            memory.step(before, event, after, commands, partial(Left, state=after))
            clock.run(clock.now_ms + 1_000)
        if len(clock_set) == 1:
            memory.set_clock()
        memory.close(cleanly=True)
    assert clock_set == [False, True, True, False]


@pytest.mark.parametrize("seed", [7001887, 14007913, 200021176])
def test_a_schedule_that_the_simulator_judged_wrongly_breaks_no_rule(seed: int) -> None:
    """Feedback given a second after the end, times from before the clock was set, and work not pushed yet."""
    assert run_schedule(seed).violations == ()


# --- figures ---------------------------------------------------------------------------------------------


def test_slots_are_filled_and_freed_ones_are_filled_again_at_once() -> None:
    scenario = Scenario(issues=30, slots=3, poll_interval_ms=1_800_000, winds_down=False)
    found = simulate(scenario, duration=hours(12)).check().statistics
    assert found.max_running == 3
    assert found.longest_slot_gap_ms is not None
    assert found.longest_slot_gap_ms < 1_000


def test_a_world_of_trouble_meets_every_kind_of_it() -> None:
    result = simulate(STORM, seed=3, duration=days(2)).check()
    kinds = {type(fact).__name__ for _, fact, _ in result.history}
    assert kinds >= {
        "PollFailed",
        "RefreshFailed",
        "WorkflowRejected",
        "DrainAsked",
        "SettingsChanged",
        "WakeAsked",
    }
    assert result.statistics.lives > 2
    assert len(result.recordings) == result.statistics.lives


# --- the same again --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_seed_gives_one_history_in_every_process_whatever_its_hash_seed() -> None:
    program = (
        "from kit.simulator import *\n"
        "storm = Scenario(issues=40, slots=3, profile=PROFILES['storm'], poll_interval_ms=300_000)\n"
        "print(simulate(storm, seed=5, duration=hours(1)).digest)\n"
        "print(*(run_schedule(n).digest for n in range(8)))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "4711")
    }
    assert len(digests) == 1
    assert len(set(digests.pop().split())) == 9


# --- reports ---------------------------------------------------------------------------------------------


def test_a_failure_tells_rule_trace_seed_and_replay() -> None:
    result = simulate(Scenario(issues=2), seed=4711, duration=days(1), step=doubles_a_run)
    with pytest.raises(SimulationFailedError) as caught:
        result.check()
    words = str(caught.value)
    assert "broken: one-run-per-issue: a second run was started beside a live one" in words
    assert "StartRun d1-" in words
    assert words.endswith(
        "replay: PYTHONPATH=tests python -m kit.simulator --seed 4711 --days 1"
        " --profile calm --issues 2 --slots 10 --poll-s 30"
    )

"""Short random schedules: a small world each, drawn from the seed, with much happening in little time."""

from dataclasses import replace
from datetime import timedelta

from kit.simulator.crash_points import ALL_POINTS
from kit.simulator.dice import Dice
from kit.simulator.profiles import HANDED_OFF, PROFILES, CheckHabits, ForgeHabits
from kit.simulator.result import Result
from kit.simulator.scenario import Scenario, make_issue, make_settings, minutes
from kit.simulator.simulation import Parts, Simulation
from symphony.scheduler import AgentInfo, AgentRule, StepFunction, step

__all__ = ["run_schedule", "schedule"]


_NAMES = ("storm", "storm", "crashes", "crashes", "restless", "outage", "flaky", "busy", "calm")
_RULES = (
    (),
    (AgentRule(use="claude", label="x"),),
    (AgentRule(use="gemini", label="y", fallback="aider"), AgentRule(use="claude", state="todo")),
    (
        AgentRule(use="gemini", label="x", state="in progress"),
        AgentRule(use="gemini", label="x", fallback="codex"),
    ),
)
_QUICK = {"claude": AgentInfo(kind="claude", section="claude", stall_timeout_ms=40_000)}
_OTHER_DICE = 10**9
_FORGE_DICE = 2 * 10**9
_WITH_FORGE = 0.3
_CHECK_DICE = 3 * 10**9
_WITH_CHECKS = 0.3
_REPLAYED = 4
_CRASHED = 0.6


def schedule(seed: int) -> tuple[Scenario, timedelta]:
    """The small world of a seed: one to six issues, up to three slots, odd limits, a mix of profiles."""
    dice, agents = Dice(seed), Dice(seed + _OTHER_DICE)
    settings = make_settings(
        max_concurrent_agents=dice.pick((1, 1, 2, 2, 3, 0)),
        max_concurrent_by_state=dice.pick(({}, {}, {"todo": 1}, {"todo": 2, "in progress": 1})),
        max_turns=dice.pick((1, 2, 20)),
        max_retry_backoff_ms=dice.pick((1, 5_000, 300_000)),
        stall_timeout_ms=dice.pick((0, 60_000, 300_000)),
        poll_interval_ms=dice.pick((20_000, 60_000, 300_000)),
        max_attempts_without_progress=dice.pick((1, 2, 5)),
        drain_timeout_ms=dice.pick((0, 10_000, 60_000)),
        required_labels=("x",) if dice.chance(0.1) else (),
        max_tokens_per_issue=dice.pick((None, None, 3_000)),
        max_tokens_per_day=dice.pick((None, None, 5_000)),
        max_turns_per_issue=dice.pick((None, None, 3)),
        rules=agents.pick(_RULES),
        fallback=agents.pick((None, "claude")),
        agents=agents.pick(({}, _QUICK)),
        max_turns_without_progress=agents.pick((1, 2, None)),
    )
    profile = PROFILES[dice.pick(_NAMES)]
    turn_ms = dice.pick(((1_000, 60_000), (10_000, 600_000)))
    habits = replace(profile.agents, turn_ms=turn_ms, sign_every_ms=dice.pick((30_000, 120_000)))
    forge = Dice(seed + _FORGE_DICE)
    if forge.chance(_WITH_FORGE):
        habits = replace(habits, moves_to=HANDED_OFF, unmoved=0.05, turns=(1, 1))
        checks_ms, late = (1_000, 60_000), forge.pick((0, 0.1))
        pulls = ForgeHabits(observe_ms=30_000, checks_ms=checks_ms, late=late, event_every_ms=300_000)
        profile = replace(profile, forge=pulls)
    checks = Dice(seed + _CHECK_DICE)
    if checks.chance(_WITH_CHECKS):
        rounds, lasts_ms = checks.pick((0, 1, 2)), checks.pick(((500, 5_000), (10_000, 600_000)))
        settings = replace(settings, verify_rounds=rounds)
        profile = replace(profile, checks=CheckHabits(rounds=rounds, lasts_ms=lasts_ms))
        habits = replace(habits, moves_to=checks.pick((("Done", "Backlog"), habits.moves_to)), unmoved=0.05)
    scenario = Scenario(
        board=tuple(make_issue(f"S-{number}", labels=("x",)) for number in range(dice.between((1, 3)))),
        issues=dice.between((0, 4)),
        profile=replace(profile, agents=habits),
        settings=settings,
        hurry=dice.pick((30, 100, 300)),
        crash=(dice.pick(ALL_POINTS), dice.pick((1, 1, 2, 3, 5))) if dice.chance(_CRASHED) else None,
        max_inputs=dice.between((10, 60)) * (3 if profile.forge.observe_ms else 1),
    )
    return scenario, minutes(dice.between((10, 240)))


def run_schedule(seed: int, *, step: StepFunction = step, parts: Parts | None = None) -> Result:
    """Live through the schedule of a seed; every fourth one is taken a second time, step by step."""
    scenario, duration = schedule(seed)
    replays = seed % _REPLAYED == 0
    command = f"PYTHONPATH=tests python -m kit.simulator --schedules 1 --seed {seed}"
    simulation = Simulation(
        scenario,
        seed=seed,
        duration=duration,
        step=step,
        parts=parts,
        replays=replays,
        replay_command=command,
    )
    return simulation.run()

"""The real scheduler in a world of chance and virtual time: months of operation in seconds.

    from kit.simulator import PROFILES, Scenario, days, simulate

    result = simulate(Scenario(issues=500, slots=10, profile=PROFILES["storm"]), seed=4711, duration=days(90))
    result.check()  # raises for a broken rule, with the seed and the command that replays it
    print(result.statistics.finished, result.statistics.max_running)

A heap of timed things is the clock: nothing sleeps, nothing waits, there is no event loop and no I/O. What is
real is `symphony.scheduler.machine.step`, and what is kept and read back of it for a restart
(`symphony.journal.recorder` and `.recovery`); the tracker, the sessions, the people, the operators and the
file of the journal are models. The daemon dies at each crash point in turn.
"""

from kit.simulator.crash_points import CrashPoint
from kit.simulator.forge import Watch
from kit.simulator.invariants import ALL as INVARIANTS
from kit.simulator.memory import Forgetting
from kit.simulator.profiles import (
    PROFILES,
    AgentHabits,
    ForgeHabits,
    HostHabits,
    JournalHabits,
    OperatorHabits,
    PeopleHabits,
    Profile,
    TrackerHabits,
)
from kit.simulator.recording import judge, recording_of, write
from kit.simulator.referee import InvariantBrokenError, Referee, Violation
from kit.simulator.result import Result, SimulationFailedError
from kit.simulator.rules import Invariant
from kit.simulator.scenario import Scenario, days, hours, make_issue, make_settings, minutes
from kit.simulator.schedules import run_schedule, schedule
from kit.simulator.session import Ending, Session, Turn
from kit.simulator.simulation import Parts, Simulation, simulate
from kit.simulator.statistics import Statistics

__all__ = [
    "INVARIANTS",
    "PROFILES",
    "AgentHabits",
    "CrashPoint",
    "Ending",
    "ForgeHabits",
    "Forgetting",
    "HostHabits",
    "Invariant",
    "InvariantBrokenError",
    "JournalHabits",
    "OperatorHabits",
    "Parts",
    "PeopleHabits",
    "Profile",
    "Referee",
    "Result",
    "Scenario",
    "Session",
    "Simulation",
    "SimulationFailedError",
    "Statistics",
    "TrackerHabits",
    "Turn",
    "Violation",
    "Watch",
    "days",
    "hours",
    "judge",
    "make_issue",
    "make_settings",
    "minutes",
    "recording_of",
    "run_schedule",
    "schedule",
    "simulate",
    "write",
]

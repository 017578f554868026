"""The real scheduler in a world of chance and virtual time: months of operation in seconds.

    from symphony.testing.simulator import PROFILES, Scenario, days, simulate

    result = simulate(Scenario(issues=500, slots=10, profile=PROFILES["storm"]), seed=4711, duration=days(90))
    result.check()  # raises for a broken rule, with the seed and the command that replays it
    print(result.statistics.finished, result.statistics.max_running)

A heap of timed things is the clock: nothing sleeps, nothing waits, there is no event loop and no I/O. What is
real is `symphony.scheduler.machine.step`, and what is kept and read back of it for a restart
(`symphony.journal.keeping` and `.recovery`); the tracker, the sessions, the people, the operators and the
file of the journal are models. The daemon dies at each crash point in turn.
"""

from symphony.testing.simulator.crash_points import CrashPoint
from symphony.testing.simulator.invariants import ALL as INVARIANTS
from symphony.testing.simulator.memory import Forgetting
from symphony.testing.simulator.profiles import (
    PROFILES,
    AgentHabits,
    JournalHabits,
    OperatorHabits,
    PeopleHabits,
    Profile,
    TrackerHabits,
)
from symphony.testing.simulator.recording import Recording, RecordingError, read, replay, write
from symphony.testing.simulator.referee import InvariantBrokenError, Referee, Step, Violation
from symphony.testing.simulator.result import Result, SimulationFailedError
from symphony.testing.simulator.rules import Invariant
from symphony.testing.simulator.scenario import Scenario, days, hours, make_issue, make_settings, minutes
from symphony.testing.simulator.schedules import run_schedule, schedule
from symphony.testing.simulator.session import Ending, Session, Turn
from symphony.testing.simulator.simulation import Parts, Simulation, simulate
from symphony.testing.simulator.statistics import Statistics

__all__ = [
    "INVARIANTS",
    "PROFILES",
    "AgentHabits",
    "CrashPoint",
    "Ending",
    "Forgetting",
    "Invariant",
    "InvariantBrokenError",
    "JournalHabits",
    "OperatorHabits",
    "Parts",
    "PeopleHabits",
    "Profile",
    "Recording",
    "RecordingError",
    "Referee",
    "Result",
    "Scenario",
    "Session",
    "Simulation",
    "SimulationFailedError",
    "Statistics",
    "Step",
    "TrackerHabits",
    "Turn",
    "Violation",
    "days",
    "hours",
    "make_issue",
    "make_settings",
    "minutes",
    "read",
    "replay",
    "run_schedule",
    "schedule",
    "simulate",
    "write",
]

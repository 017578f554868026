"""How bad the world is: named mixes of faults, from `calm` to `storm`.

Probabilities are per request, per session or per change; `*_every_ms` are mean waits, null for never. Whoever
wants another world combines the four parts in a `Profile` of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.simulator.dice import Span

__all__ = [
    "PROFILES",
    "AgentHabits",
    "CheckHabits",
    "ForgeHabits",
    "HostHabits",
    "JournalHabits",
    "OperatorHabits",
    "PeopleHabits",
    "Profile",
    "TrackerHabits",
]

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

HANDED_OFF = ("Backlog", "Backlog", "Backlog", "Done")
"""Where sessions move their issues if people look at pull requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerHabits:
    """How the tracker answers.

    Attributes:
        latency_ms: of a request that goes well.
        fails, rate_limits, malforms: the probability that a request fails in this way; a refresh that is
            malformed may name its culprits.
        hangs: the probability that an answer comes only after `hang_ms`.
        stale: the probability that an answer shows the board as it was when it was asked.
        doubles: the probability that an answer holds an issue twice.
        repeats: the probability that an answer comes once more.
        outage_every_ms, outage_ms: how often everything fails, and for how long.
    """

    latency_ms: Span = (20, 400)
    fails: float = 0
    rate_limits: float = 0
    retry_after_ms: Span = (1_000, 600_000)
    malforms: float = 0
    hangs: float = 0
    hang_ms: Span = (30_000, 600_000)
    stale: float = 0
    doubles: float = 0
    repeats: float = 0
    outage_every_ms: int | None = None
    outage_ms: Span = (MINUTE_MS, 2 * HOUR_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHabits:
    """How sessions go; the probabilities are per session, and what they leave over succeeds.

    A session that succeeds moves its issue to one of `moves_to`. `unmoved` is the probability that it leaves
    its issue where it is; `idle` that a session leaves no progress; `stubborn` that it refuses to stop for a
    while; `survives` that its process outlives a daemon that is killed; `forgets` that a conversation cannot
    be gone on with. `outage_every_ms` and `outage_ms` are how often no model answers, and for how long.
    """

    turn_ms: Span = (MINUTE_MS, 40 * MINUTE_MS)
    turns: Span = (1, 3)
    prepare_ms: Span = (500, 20_000)
    deliver_ms: Span = (200, 5_000)
    sign_every_ms: int = 4 * MINUTE_MS
    moves_to: Sequence[str] = ("Done", "Done", "Backlog", "In Progress")
    unmoved: float = 0.1
    fails: float = 0
    stalls: float = 0
    asks: float = 0
    crashes: float = 0
    unprepared: float = 0
    times_out: float = 0
    silent: float = 0
    idle: float = 0
    stubborn: float = 0
    stubborn_ms: Span = (1_000, 10 * MINUTE_MS)
    survives: float = 0.5
    forgets: float = 0
    outage_every_ms: int | None = None
    outage_ms: Span = (MINUTE_MS, 8 * HOUR_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleHabits:
    """What people do on the board; `tells` is the probability that the tracker announces a change."""

    edit_every_ms: int | None = None
    tells: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorHabits:
    """What happens to the daemon: reloads, broken workflows, wakes, drains, kills, suspends.

    A `crash` ends it at one of its crash points. Operators say a verb, such as `stop` or `answer`, every
    `verb_every_ms`; `clock` is how often somebody sets the wall clock.
    """

    reload_every_ms: int | None = None
    break_every_ms: int | None = None
    broken_ms: Span = (MINUTE_MS, 2 * HOUR_MS)
    wake_every_ms: int | None = None
    drain_every_ms: int | None = None
    kill_every_ms: int | None = None
    down_ms: Span = (1_000, 10 * MINUTE_MS)
    suspend_every_ms: int | None = None
    suspend_ms: Span = (1_000, 8 * HOUR_MS)
    crash_every_ms: int | None = None
    verb_every_ms: int | None = None
    clock_every_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHabits:
    """The machines that run sessions; without `names` there are none. Those in `old` have another release.

    Every `trouble_every_ms` one of them dies, is cut off, or freezes. A freeze is shorter than what the
    daemon waits for a run that it lost.
    """

    names: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    slots: int | None = None
    trouble_every_ms: int | None = None
    down_ms: Span = (1_000, 20 * MINUTE_MS)
    freeze_ms: Span = (1_000, 55_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalHabits:
    """What happens to the journal: `lost` is the probability that a start finds it deleted or damaged.

    While its disk is full, nothing is written.
    """

    lost: float = 0
    full_every_ms: int | None = None
    full_ms: Span = (MINUTE_MS, 2 * HOUR_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeHabits:
    """What happens to pull requests; the probabilities are for each head, unless stated otherwise.

    Attributes:
        observe_ms: how often the daemon looks at them; 0 for never, as without a forge.
        checks_ms: when checks appear after a push, and again until each ends.
        red: the probability that a check fails.
        late: that it appears an hour later.
        conflicts: that the head conflicts with its base.
        unknown: that the forge has not computed that yet, in one look.
        event_every_ms: how often a person or bot does something to one of them.
    """

    observe_ms: int = 0
    checks_ms: Span = (1_000, 10 * MINUTE_MS)
    red: float = 0.4
    late: float = 0.1
    conflicts: float = 0.15
    unknown: float = 0.1
    event_every_ms: int = 20 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckHabits:
    """What verifications say; without `rounds` nothing is verified. The probabilities are per head.

    Attributes:
        rounds: how often work is sent back.
        fails: that a head fails.
        base_fails: that everything that fails also fails on the base.
        flaky: that the same head says something else the next time.
        not_done: that a verification is not carried out to its end, in one try.
        hangs: that a verification does not end by itself, in one try.
        remarks: that the reviewer asks for changes, where the commands passed.
        silent: that it gives no verdict, in one try.
        lasts_ms: how long the commands take, and then the reviewer.
        timeout_ms: how long one takes that hangs.
    """

    rounds: int | None = None
    fails: float = 0.4
    base_fails: float = 0.1
    flaky: float = 0.1
    not_done: float = 0.1
    hangs: float = 0.05
    remarks: float = 0.3
    silent: float = 0.2
    lasts_ms: Span = (500, 20 * MINUTE_MS)
    timeout_ms: int = HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A world: a name and the habits of those who live in it. `about` is one line for people."""

    name: str
    about: str
    tracker: TrackerHabits = TrackerHabits()
    agents: AgentHabits = AgentHabits()
    people: PeopleHabits = PeopleHabits()
    operators: OperatorHabits = OperatorHabits()
    journal: JournalHabits = JournalHabits()
    hosts: HostHabits = HostHabits()
    forge: ForgeHabits = ForgeHabits()
    checks: CheckHabits = CheckHabits()


_BAD_TRACKER = TrackerHabits(
    fails=0.05,
    rate_limits=0.03,
    malforms=0.04,
    hangs=0.03,
    stale=0.3,
    doubles=0.05,
    repeats=0.05,
    outage_every_ms=DAY_MS,
)
_BAD_AGENTS = AgentHabits(
    unmoved=0.25,
    fails=0.15,
    stalls=0.06,
    asks=0.04,
    crashes=0.06,
    unprepared=0.06,
    times_out=0.03,
    silent=0.1,
    idle=0.2,
    stubborn=0.2,
    forgets=0.1,
)
_BUSY_PEOPLE = PeopleHabits(edit_every_ms=4 * HOUR_MS, tells=0.6)
_RESTLESS = OperatorHabits(
    reload_every_ms=8 * HOUR_MS,
    break_every_ms=DAY_MS,
    wake_every_ms=2 * HOUR_MS,
    drain_every_ms=DAY_MS,
    kill_every_ms=DAY_MS,
    suspend_every_ms=DAY_MS,
    crash_every_ms=12 * HOUR_MS,
    verb_every_ms=4 * HOUR_MS,
    clock_every_ms=2 * DAY_MS,
)
_BAD_DISK = JournalHabits(lost=0.1, full_every_ms=2 * DAY_MS)
_FALLING = OperatorHabits(drain_every_ms=DAY_MS, crash_every_ms=2 * HOUR_MS, verb_every_ms=2 * HOUR_MS)

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(name="calm", about="nothing goes wrong"),
        Profile(
            name="outage",
            about="the tracker hangs, fails, limits, and repeats old answers",
            tracker=_BAD_TRACKER,
        ),
        Profile(name="flaky", about="agents fail, stall, ask, crash and refuse to stop", agents=_BAD_AGENTS),
        Profile(
            name="models",
            about="no model answers for hours, again and again",
            agents=AgentHabits(moves_to=("Done",), unmoved=0, outage_every_ms=8 * HOUR_MS),
        ),
        Profile(
            name="busy", about="people edit the board all day, often without a webhook", people=_BUSY_PEOPLE
        ),
        Profile(
            name="restless",
            about="reloads, broken workflows, operator actions, drains, kills, suspends",
            operators=_RESTLESS,
        ),
        Profile(
            name="crashes",
            about="the daemon dies at one crash point after the other, and agents ask",
            agents=AgentHabits(asks=0.15, fails=0.1, unmoved=0.2, stubborn=0.2),
            operators=_FALLING,
        ),
        Profile(
            name="hosts",
            about="four hosts that die, freeze, are cut off and come back, and a daemon that dies",
            agents=AgentHabits(fails=0.05, stubborn=0.3, prepare_ms=(500, 8_000)),
            operators=OperatorHabits(
                kill_every_ms=2 * HOUR_MS,
                down_ms=(1_000, MINUTE_MS),
                crash_every_ms=6 * HOUR_MS,
                verb_every_ms=4 * HOUR_MS,
            ),
            hosts=HostHabits(names=("a", "b", "c", "d"), slots=3, trouble_every_ms=20 * MINUTE_MS),
        ),
        Profile(
            name="forge",
            about="pull requests with checks, people and bots, while agents fail and the daemon dies",
            agents=AgentHabits(moves_to=HANDED_OFF, fails=0.05, asks=0.05, unmoved=0.1, idle=0.1),
            operators=OperatorHabits(
                drain_every_ms=DAY_MS, crash_every_ms=2 * HOUR_MS, kill_every_ms=8 * HOUR_MS
            ),
            forge=ForgeHabits(observe_ms=MINUTE_MS),
        ),
        Profile(
            name="checks",
            about="work is verified, and fails, while people move issues and the daemon dies",
            agents=AgentHabits(moves_to=("Done", "Backlog"), unmoved=0.1, fails=0.05, stubborn=0.2),
            people=_BUSY_PEOPLE,
            operators=OperatorHabits(
                drain_every_ms=DAY_MS, crash_every_ms=2 * HOUR_MS, verb_every_ms=4 * HOUR_MS
            ),
            checks=CheckHabits(rounds=2),
        ),
        Profile(
            name="storm",
            about="all of it at once",
            tracker=_BAD_TRACKER,
            agents=_BAD_AGENTS,
            people=_BUSY_PEOPLE,
            operators=_RESTLESS,
            journal=_BAD_DISK,
        ),
    )
}

"""The journal of simulated daemons: what is put is written a moment later, and a death may come before that.

What is put and what is read back are the real `journal.recorder`; the file is a model:
puts are written whole and in their order, a full disk holds them up, and a file may be gone at a start.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from kit.simulator.books import Left
from kit.simulator.dice import Dice
from kit.simulator.profiles import JournalHabits
from symphony.journal.jobs import Job, JobDone
from symphony.journal.model import (
    ClaimRecord,
    ClaimReleased,
    CommentRecord,
    DayRecord,
    EventRecord,
    IssueSpent,
    Record,
    RecoveredState,
    ResultRecord,
    ResultReleased,
    RunRecord,
    SettingRecord,
)
from symphony.journal.recorder import DaemonStart, StepRecorder, recovered_event
from symphony.journal.store import record_key
from symphony.processes.base import Identity
from symphony.scheduler import (
    MAX_THROTTLE_MS,
    Command,
    Event,
    Recovered,
    SchedulerSettings,
    State,
    WorkspaceRef,
)

__all__ = ["Clock", "Forgetting", "Memory", "Recover", "day_of"]


WRITTEN_AFTER_MS = 20
_EPOCH_MS = 1_767_225_600_000  # 2026-01-01
_MANY = 64
_SHIFT_MS = (-6 * 3_600_000, 6 * 3_600_000)

Recover = Callable[[RecoveredState, DaemonStart, tuple[WorkspaceRef, ...]], Recovered]


def _recover(
    remembered: RecoveredState, start: DaemonStart, workspaces: tuple[WorkspaceRef, ...]
) -> Recovered:
    return recovered_event(remembered, start, workspaces=workspaces)


def _keep(records: Sequence[Record], _before: State, _after: State) -> Sequence[Record]:
    return records


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """What of the memory may be replaced by something worse, to see that somebody notices.

    `recover` makes the first input of what was remembered, `keep` may change what one step puts.
    """

    recover: Recover = _recover
    keep: Callable[[Sequence[Record], State, State], Sequence[Record]] = _keep


def day_of(wall_ms: int) -> str:
    """The day of a moment, UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).date().isoformat()


class Clock(Protocol):
    """Virtual time, as far as a journal needs it."""

    @property
    def now_ms(self) -> int:
        """Milliseconds since the simulation began."""
        ...

    def after(self, delay_ms: int, act: Callable[..., None], *arguments: Any) -> object:
        """Let `act(*arguments)` happen after a delay."""
        ...


@dataclass(slots=True)
class _Put:
    due_ms: int
    records: Sequence[Record]
    left: Left | None
    clock_sets: int


@dataclass(slots=True)
class _File:
    """What is written. `left` is the state that it tells of, null where it tells of none.

    The times in it are those of a wall clock that had been set `clock_sets` times.
    """

    held: dict[tuple[str, ...], Record] = field(default_factory=dict)
    left: Left | None = None
    clock_sets: int = 0

    def write(self, put: _Put) -> None:
        for record in put.records:
            key = record_key(record)
            gone = isinstance(record, ClaimReleased | ResultReleased | JobDone) or (
                isinstance(record, RunRecord) and record.ended_wall_ms is not None
            )
            if gone or (isinstance(record, SettingRecord) and record.value is None):
                self.held.pop(key, None)
            elif not isinstance(record, EventRecord):
                self.held[key] = record
        self.left, self.clock_sets = put.left or self.left, put.clock_sets

    def remembered(self) -> RecoveredState:
        held = self.held.values()
        return RecoveredState(
            claims=tuple(one for one in held if isinstance(one, ClaimRecord)),
            results=tuple(one for one in held if isinstance(one, ResultRecord)),
            live_runs=tuple(one for one in held if isinstance(one, RunRecord)),
            spent={one.issue_id: one.spent for one in held if isinstance(one, IssueSpent)},
            days={one.day: one.tokens for one in held if isinstance(one, DayRecord)},
            settings={
                one.name: one.value
                for one in held
                if isinstance(one, SettingRecord) and one.value is not None
            },
            comments=tuple(one for one in held if isinstance(one, CommentRecord)),
            jobs=tuple(one for one in held if isinstance(one, Job)),
        )


class Memory:
    """The journal over all lives, and the wall clock that its times are of.

    `left` is what the present life found written when it began: null where nothing was, or all is lost.
    """

    def __init__(
        self, clock: Clock, dice: Dice, habits: JournalHabits, parts: Forgetting | None = None
    ) -> None:
        self.left: Left | None = None
        self.lost = False
        self._clock = clock
        self._dice = dice
        self._habits = habits
        self._parts = parts or Forgetting()
        self._file = _File()
        self._pending: deque[_Put] = deque()
        self._shift_ms = dice.between((0, 24 * 3_600_000))
        self._full_until_ms = 0
        self._clock_sets = self._clock_sets_before = 0  # in all, and before the present life
        self._resting = False
        self._remembered = RecoveredState()
        self._keeper = StepRecorder(_owner(0))
        if habits.full_every_ms is not None:
            clock.after(dice.around(habits.full_every_ms), self._fill, habits.full_every_ms)

    # --- the wall clock ----------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        """Now, by the wall clock."""
        return _EPOCH_MS + self._clock.now_ms + self._shift_ms

    def set_clock(self) -> None:
        """Somebody sets the wall clock."""
        self._shift_ms = max(0, self._shift_ms + self._dice.between(_SHIFT_MS))
        self._clock_sets += 1

    def today(self) -> str:
        """The day by the wall clock."""
        return day_of(self.wall_ms)

    # --- lives -------------------------------------------------------------------------------------------

    def begin(self, life: int) -> None:
        """A daemon opens the journal, which may be gone."""
        self._remembered, self.left = self._file.remembered(), self._file.left
        if not self._resting and self._dice.chance(self._habits.lost):
            self._file = _File()
            self._remembered, self.left = RecoveredState(), None
            self.lost = True
        self._keeper = StepRecorder(_owner(life), left=self._remembered.live_runs)

    def first_input(self, settings: SchedulerSettings, workspaces: tuple[WorkspaceRef, ...]) -> Recovered:
        """What the scheduler is told first."""
        start = DaemonStart(
            now_ms=self._clock.now_ms,
            wall_ms=self.wall_ms,
            today=self.today(),
            max_wait_ms=max(settings.max_retry_backoff_ms, MAX_THROTTLE_MS),
        )
        if self.left is not None:
            clock_set = self._file.clock_sets != self._clock_sets
            self.left = replace(self.left, max_wait_ms=start.max_wait_ms, clock_set=clock_set)
        self._clock_sets_before = self._clock_sets  # a life writes all times anew when it begins
        return self._parts.recover(self._remembered, start, workspaces)

    @property
    def known_comments(self) -> tuple[CommentRecord, ...]:
        """The same as records."""
        return tuple(self._remembered.comments)

    @property
    def comments(self) -> Mapping[tuple[str, str], str]:
        """What a predecessor knew to stand at the tracker: issue and kind -> fingerprint."""
        return {(one.issue_id, one.kind): one.fingerprint for one in self._remembered.comments}

    def step(
        self, before: State, fact: Event, after: State, commands: Sequence[Command], left: Callable[[], Left]
    ) -> None:
        """Keep what one step leaves; `left` tells what a successor would have to know."""
        records: Sequence[Record] = self._keeper.step(
            before,
            fact,
            after,
            tuple(commands),
            now_ms=self._clock.now_ms,
            wall_ms=self.wall_ms,
        )
        records = self._parts.keep(records, before, after)
        if records:
            self._put(records, left())

    def commented(self, issue_id: str, kind: str, body: str) -> None:
        """A comment of ours stands at the tracker."""
        record = CommentRecord(
            issue_id=issue_id,
            kind=kind,
            comment_id=f"{issue_id}/{kind}",
            fingerprint=body,
            at_wall_ms=self.wall_ms,
        )
        self._put((record,), None)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that a predecessor did not finish."""
        return self._remembered.jobs

    def put_job(self, record: Job | JobDone) -> None:
        """A job is queued, was tried, or is done."""
        self._put((record,), None)

    def keep(self, name: str, value: str) -> None:
        """Put something under a name."""
        self._put((SettingRecord(name=name, value=value),), None)

    def kept(self, name: str) -> str | None:
        """What a predecessor left under a name, or what is written since."""
        self._write_due()
        found = self._file.held.get(record_key(SettingRecord(name=name, value="")))
        return found.value if isinstance(found, SettingRecord) else None

    def close(self, *, cleanly: bool) -> None:
        """The daemon ends: cleanly with everything written, else as far as the writer had come."""
        self._write_due()
        if cleanly and self._clock.now_ms >= self._full_until_ms:
            lucky = len(self._pending)
        else:
            lucky = self._dice.between((0, len(self._pending))) if self._pending else 0
        for _ in range(lucky):
            self._file.write(self._pending.popleft())
        self._pending.clear()

    def rest(self) -> None:
        """Nothing goes wrong with the file any more: a full disk has room again."""
        self._resting = True
        self._full_until_ms = 0
        for put in self._pending:
            put.due_ms = min(put.due_ms, self._clock.now_ms + WRITTEN_AFTER_MS)

    # --- the file ----------------------------------------------------------------------------------------

    def _put(self, records: Sequence[Record], left: Left | None) -> None:
        due_ms = max(self._clock.now_ms + WRITTEN_AFTER_MS, self._full_until_ms)
        self._pending.append(_Put(due_ms, records, left, self._clock_sets_before))
        if len(self._pending) > _MANY:
            self._write_due()

    def _write_due(self) -> None:
        while self._pending and self._pending[0].due_ms <= self._clock.now_ms:
            self._file.write(self._pending.popleft())

    def _fill(self, every_ms: int) -> None:
        """The disk is full for a while; what was put before is written by then, or waits too."""
        if self._resting:
            return
        self._write_due()
        self._full_until_ms = self._clock.now_ms + self._dice.between(self._habits.full_ms)
        for put in self._pending:
            put.due_ms = self._full_until_ms
        self._clock.after(self._dice.around(every_ms), self._fill, every_ms)


def _owner(life: int) -> Identity:
    return Identity(boot_id="simulated", pid=life + 1, started=0.0)

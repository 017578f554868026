"""The daemon around the scheduler, one life after the other: carries commands out in virtual time.

It does what `symphony.daemon` does, without a process: questions go to the tracker, runs to the workers,
timers to the clock, and what happens to the journal. A fact that belongs to an earlier life never reaches
the present one. A life begins with the end of what the last one left, and may end at every crash point.
"""

from functools import partial

from kit.simulator.clock import Clock
from kit.simulator.crash_points import AROUND, StepPoint
from kit.simulator.dice import Dice
from kit.simulator.memory import Memory
from kit.simulator.notes import Notes
from kit.simulator.referee import Referee
from kit.simulator.tracker import Act, Deliver, Tracker
from kit.simulator.workers import Workers
from symphony.domain import FaultPoint
from symphony.scheduler import (
    CleanWorkspace,
    Command,
    ContinueRun,
    DayBegan,
    Event,
    Exit,
    FetchCandidates,
    FinishRun,
    MoveIssue,
    PostComment,
    PushBranch,
    ReadAnswers,
    RefreshIssues,
    SchedulerSettings,
    SetTimer,
    StartRun,
    State,
    StopRun,
    Timer,
    TimerFired,
    WakeAsked,
    initial_state,
)

__all__ = ["Daemon"]


_STALE_TIMER = 0.1
_ANNOUNCED_MS = 50
_DAY_MS = 86_400_000
_PUSH_MS = 700
_PUSH_AGAIN_MS = 20_000


class Daemon:
    """One daemon at a time; `on_exit` is called when it ends by itself.

    `alive` from the first moment of its start, up from the moment on which it serves: before that
    `up_since_ms` is null. `reaps` is whether a start ends the agents that are left.
    """

    def __init__(
        self,
        clock: Clock,
        dice: Dice,
        referee: Referee,
        tracker: Tracker,
        workers: Workers,
        memory: Memory,
        notes: Notes,
        *,
        reaps: bool = True,
    ) -> None:
        self.up_since_ms: int | None = None
        self.alive = False
        self.life = 0
        self.on_exit: Act | None = None
        self._clock = clock
        self._dice = dice
        self._referee = referee
        self._tracker = tracker
        self._workers = workers
        self._memory = memory
        self._notes = notes
        self._reaps = reaps
        self._crashes = workers.crashes
        self._timers: dict[Timer, int] = {}
        self._deliver: Deliver = partial(self._tell_in, 0)
        tracker.announce = self._announced

    @property
    def state(self) -> State:
        """What the scheduler knows, or knew."""
        return self._referee.state

    @property
    def up(self) -> bool:
        """Whether it serves."""
        return self.up_since_ms is not None

    # --- its life ----------------------------------------------------------------------------------------

    def start(self, settings: SchedulerSettings) -> None:
        """Begin a life: end what the last one left running, then serve."""
        self.life += 1
        self.alive = True
        if self._crashes.reach(FaultPoint.LOCKED):
            return
        wait_ms = self._workers.reaping_ms() if self._reaps else 0
        if wait_ms:
            self._clock.after(wait_ms, self._reaped, self.life, settings)
        else:
            self._reaped(self.life, settings)

    def _reaped(self, life: int, settings: SchedulerSettings) -> None:
        if life != self.life or not self.alive:
            return
        if self._reaps:
            self._workers.reap()
        if not (self._crashes.reach(FaultPoint.REAPED) or self._crashes.reach(FaultPoint.CHECKED)):
            self._serve(settings)

    def _serve(self, settings: SchedulerSettings) -> None:
        """Tell the scheduler what was left, on disk and in the journal."""
        self.up_since_ms = self._clock.now_ms
        self._timers.clear()
        self._deliver = partial(self._tell_in, self.life)
        self._memory.begin(self.life)
        self._notes.begin()
        refs = self._workers.disk.workspaces
        workspaces = tuple(refs[key] for key in sorted(refs))
        fact = self._memory.first_input(settings, workspaces)
        self._referee.begin(initial_state(settings, epoch=f"d{self.life}"))
        self._referee.books.remember(self._memory.left)
        self.tell(fact)
        self._watch_the_day(self.life)

    def kill(self, *, cleanly: bool = False) -> None:
        """End at once, without a word; `cleanly` means that nothing runs and everything is written."""
        self.up_since_ms = None
        self.alive = False
        self._memory.close(cleanly=cleanly)
        self._workers.die()

    def look_at_the_day(self) -> None:
        """Tell that another day began, if one did."""
        if self.up and self.state.day is not None and self.state.day != self._memory.today():
            self.tell(DayBegan(day=self._memory.today()))

    def _watch_the_day(self, life: int) -> None:
        if life == self.life and self.up:
            self.look_at_the_day()
            self._clock.after(_DAY_MS - self._memory.wall_ms % _DAY_MS, self._watch_the_day, life)

    # --- what it hears and does --------------------------------------------------------------------------

    def tell(self, fact: Event) -> None:
        """Feed a fact to the scheduler, keep what it decides, and begin to carry it out."""
        if self.up_since_ms is None or self._crashes.reach(StepPoint.HEARD):
            return
        before = self.state
        commands = self._referee.tell(fact, self._clock.now_ms)
        if self._crashes.reach(StepPoint.DECIDED):
            return
        self._memory.step(before, fact, self.state, commands, self._referee.left)
        if self._crashes.reach(StepPoint.KEPT):
            return
        for command in commands:
            points = AROUND.get(type(command))
            if points and self._crashes.reach(points[0]):
                return
            self._carry_out(command)
            if not self.up or (points and self._crashes.reach(points[1])):
                return

    def _tell_in(self, life: int, fact: Event) -> None:
        if life == self.life:
            self.tell(fact)

    def _lives(self, life: int) -> bool:
        return life == self.life and self.up

    def _announced(self) -> None:
        self._clock.after(_ANNOUNCED_MS, self._deliver, WakeAsked(reason="tracker_changed"))

    def _carry_out(self, command: Command) -> None:  # noqa: C901, PLR0912 - one line per kind of command
        match command:
            case FetchCandidates():
                self._tracker.poll(command.request, self.state.settings.active_states, self._deliver)
            case RefreshIssues():
                self._tracker.refresh(command.request, command.ids, self._deliver)
            case StartRun():
                self._workers.start(command, self._deliver)
            case ContinueRun() | FinishRun():
                self._workers.direct(command)
            case StopRun():
                self._workers.stop(command)
            case MoveIssue():
                self._workers.move(command)
            case SetTimer():
                self._timers[command.timer] = command.token
                self._clock.at(command.due_ms, self._fire, self.life, command)
            case CleanWorkspace():
                self._clean(command)
            case ReadAnswers():
                ask = partial(self._notes.sure, command.comment, partial(self._lives, self.life))
                self._tracker.read(command, ask, self._deliver)
            case PostComment():
                self._notes.post(command, partial(self._lives, self.life))
            case PushBranch():
                self._clock.after(_PUSH_MS, self._push, self.life, command)
            case Exit():
                self._clock.after(0, self._exit, self.life)
            case _:
                pass  # words for people

    def _push(self, life: int, command: PushBranch) -> None:
        """Push, and again while it is refused and nothing newer is to be pushed."""
        if life != self.life or self._referee.books.pushes.get(command.issue.id) != command.head:
            return
        pushed = self._workers.pushed(command)
        if pushed.failure is not None:
            self._clock.after(_PUSH_AGAIN_MS, self._push, life, command)
        self._tell_in(life, pushed)

    def _clean(self, command: CleanWorkspace) -> None:
        if self._crashes.reach(FaultPoint.BEFORE_CLEAN):
            return
        disk = self._workers.disk
        if command.issue_id in disk.workspaces:
            disk.half.add(command.issue_id)  # its record stands, and there is no directory
        if self._crashes.reach(FaultPoint.MOVED_ASIDE):
            return
        disk.workspaces.pop(command.issue_id, None)
        disk.half.discard(command.issue_id)
        self._crashes.reach(FaultPoint.AFTER_CLEAN)

    def _fire(self, life: int, command: SetTimer) -> None:
        newest = self._timers.get(command.timer) == command.token
        if newest or self._dice.chance(_STALE_TIMER):
            self._tell_in(life, TimerFired(timer=command.timer, token=command.token))

    def _exit(self, life: int) -> None:
        if life == self.life and self.up:
            self.kill(cleanly=True)
            if self.on_exit is not None:
                self.on_exit()

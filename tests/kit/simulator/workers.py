"""Workers: each carries one run attempt out as its session tells, and ends with exactly one `RunEnded`.

An agent may outlive the daemon that started it. It is a process of the world then, which does what it was
about to do, until a later daemon ends it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from zlib import crc32

from kit.facts import changed
from kit.simulator.clock import Clock
from kit.simulator.crashing import Crashes
from kit.simulator.dice import Dice
from kit.simulator.hosts import LEASE_MS, Hosts
from kit.simulator.profiles import CheckHabits
from kit.simulator.session import Ending, Session, Turn
from kit.simulator.tracker import Tracker
from symphony.domain import (
    Blame,
    Category,
    CheckRun,
    DeliveredBranch,
    Failure,
    FaultPoint,
    Issue,
    ReviewerVerdict,
    Tokens,
    Verification,
    WorkSize,
    normalise_state,
)
from symphony.scheduler import (
    AgentReported,
    ContinueRun,
    Event,
    FinishReason,
    FinishRun,
    MoveIssue,
    Outcome,
    OutcomeKind,
    PushBranch,
    Pushed,
    ResumeReason,
    RunEnded,
    RunReport,
    RunStage,
    StartRun,
    StopRun,
    TurnEnded,
    WorkspaceRef,
)

__all__ = ["Disk", "Worker", "Workers"]


_TURN_TIMEOUT_MS = 3_600_000
_GRACE_MS = 2_000
_QUICK_MS = 50
_SLOWEST_MOVE_MS = 120_000
_KINDS = {
    Ending.FAILS: OutcomeKind.FAILED,
    Ending.ASKS: OutcomeKind.INPUT_REQUIRED,
    Ending.TIMES_OUT: OutcomeKind.TIMED_OUT,
}
_REFUSED = Failure(category=Category.PUSH_FAILED, blame=Blame.WORKSPACE, message="origin does not answer")
_LOST = Failure(category=Category.WORKER_LOST, blame=Blame.HOST, message="the link to the host was lost")
_UNAVAILABLE = Failure(
    category=Category.HOST_UNAVAILABLE, blame=Blame.HOST, message="the host cannot be reached"
)
_REVIEWER_TOKENS = 700
_NOT_REVIEWED = Failure(category=Category.NOT_REVIEWED, blame=Blame.HOST, message="the reviewer is silent")
_TIMED_OUT = Failure(category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message="the turn took too long")


@dataclass(slots=True)
class Disk:
    """What outlives daemon and agent alike.

    Attributes:
        workspaces: by issue id, also those that are half-made. half: which ones those are.
        threads: the tokens that each conversation has used since its beginning.
        used: the tokens that were used for an issue, by any conversation.
        heads: by issue id, the commit that was delivered last.
    """

    workspaces: dict[str, WorkspaceRef] = field(default_factory=dict)
    half: set[str] = field(default_factory=set)
    threads: dict[str, int] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    heads: dict[str, str] = field(default_factory=dict)


class Checks:
    """The operator's commands and the reviewer: what they say of a head, and how long that takes."""

    def __init__(self, dice: Dice, habits: CheckHabits) -> None:
        self._dice = dice
        self._habits = habits
        self._said: dict[str, CheckRun] = {}

    def lasts_ms(self) -> int:
        """How long the reviewer takes next."""
        return self._dice.between(self._habits.lasts_ms)

    def verify(self, head: str | None) -> tuple[int, Verification | None]:
        """How long the commands take on a head, and their result, mostly the same each time.

        The result is `None` if it is not carried out to its end. Without a head nothing is checked.
        """
        dice, habits = self._dice, self._habits
        lasts_ms = dice.between(habits.lasts_ms)
        if head is None:
            return lasts_ms, Verification(head="")
        if dice.chance(habits.not_done):
            return lasts_ms, None
        if dice.chance(habits.hangs):
            check = CheckRun(name="test", problem=f"did not end within {habits.timeout_ms} ms")
            return habits.timeout_ms, Verification(head=head, checks=(check,))
        if head not in self._said or dice.chance(habits.flaky):
            failed = dice.chance(habits.fails)
            on_base = dice.chance(habits.base_fails) or None
            self._said[head] = CheckRun(name="test", exit_code=int(failed), fails_on_base=on_base)
        return lasts_ms, Verification(head=head, checks=(self._said[head],))

    def review(self) -> ReviewerVerdict | None:
        """What the reviewer says this time; `None` if it gives no verdict."""
        if self._dice.chance(self._habits.silent):
            return None
        return ReviewerVerdict(reviewer="critic", approves=not self._dice.chance(self._habits.remarks))


class Workers:
    """All live workers of one daemon, and the agents that an earlier one left.

    `on_second` is called with an issue of which a second agent was started beside a live one.
    """

    def __init__(
        self, clock: Clock, tracker: Tracker, crashes: Crashes, sessions: Callable[[Issue], Session]
    ) -> None:
        self.disk = Disk()
        self.clock = clock
        self.tracker = tracker
        self.crashes = crashes
        self.on_second: Callable[[str], None] | None = None
        self._sessions = sessions
        self.hosts: Hosts | None = None
        self.checks: Checks | None = None
        self.fences = True
        self._live: dict[str, Worker] = {}
        self._left: dict[str, Worker] = {}
        self._left_on_hosts: list[tuple[Worker, int]] = []
        self._fenced: list[Worker] = []

    def start(self, command: StartRun, tell: Callable[[Event], None]) -> None:
        """Begin a run attempt; `tell` brings its facts to the daemon that asked for it."""

        def tell_and_forget(fact: Event) -> None:
            if isinstance(fact, RunEnded):
                self._live.pop(fact.run_id, None)
            tell(fact)

        worker = Worker(command, self._sessions(command.issue), self, tell_and_forget)
        self._live[command.run_id] = worker
        wait_ms = self._fence(command.issue.id)
        if wait_ms:
            worker.begin_later(wait_ms)
        else:
            worker.begin()

    @property
    def live(self) -> tuple["Worker", ...]:
        """The workers of the present daemon."""
        return tuple(self._live.values())

    def _fence(self, issue_id: str) -> int:
        """End what an earlier daemon left of an issue on hosts; how long that takes."""
        wait_ms = 0
        for left in tuple(self._left_on_hosts):
            worker, since_ms = left
            if worker.issue_id != issue_id or self.hosts is None or not self.fences:
                continue
            self._left_on_hosts.remove(left)
            if worker.agent:
                fence_ms = self.hosts.fence_ms(worker.host, since_ms)
                self._fenced = [one for one in self._fenced if one.agent] + [worker]
                self.clock.after(fence_ms, worker.die)
                wait_ms = max(wait_ms, fence_ms + 1)
        return wait_ms

    def direct(self, command: ContinueRun | FinishRun) -> None:
        """One more turn, or none."""
        if worker := self._live.get(command.run_id):
            worker.direct(command)

    def pushed(self, command: PushBranch) -> Pushed:
        """How a push goes; some remotes refuse it."""
        failure = _push_failure(f"{command.head} {self.clock.now_ms}")
        return Pushed(issue_id=command.issue.id, head=command.head, failure=failure)

    def stop(self, command: StopRun) -> None:
        """End in mid-turn."""
        if worker := self._live.get(command.run_id):
            worker.stop(verify=command.verify)

    def move(self, command: MoveIssue) -> None:
        """Move an issue in a while, from where it was seen."""
        wait_ms = crc32(f"{command.issue.id} {self.clock.now_ms}".encode()) % _SLOWEST_MOVE_MS
        self.clock.after(wait_ms, self._move, command)

    def _move(self, command: MoveIssue) -> None:
        issue = self.tracker.board.get(command.issue.id)
        if issue is not None and normalise_state(issue.state) in command.only_from:
            self.tracker.change(issue.id, state=command.state)

    def spawned(self, issue_id: str) -> None:
        """An agent was started; there must be no other one at work on its issue."""
        on_hosts = [worker for worker, _ in self._left_on_hosts]
        agents = [*self._live.values(), *self._left.values(), *on_hosts, *self._fenced]
        if sum(one.agent and one.issue_id == issue_id for one in agents) > 1 and self.on_second:
            self.on_second(issue_id)

    # --- the end of a daemon -----------------------------------------------------------------------------

    def die(self) -> None:
        """The daemon is gone: its workers tell nothing any more, and some of their agents live on."""
        for run_id, worker in self._live.items():
            if worker.agent and worker.host is not None:
                worker.leave(LEASE_MS)
                self._left_on_hosts.append((worker, self.clock.now_ms))
            elif worker.agent and worker.survives:
                worker.orphan()
                self._left[run_id] = worker
            else:
                worker.die()
        self._live.clear()

    def reaping_ms(self) -> int:
        """How long it takes to end what is left, 0 if nothing is."""
        alive = [worker for worker in self._left.values() if worker.agent]
        if not alive:
            return 0
        return _GRACE_MS if any(worker.stubborn for worker in alive) else _QUICK_MS

    def reap(self) -> None:
        """End what is left."""
        for worker in self._left.values():
            worker.die()
        self._left.clear()


class Worker:
    """One run attempt. What it has planned is void once it is told to end (`_phase` changes).

    `agent` says that its agent process lives.
    """

    def __init__(
        self, command: StartRun, session: Session, world: Workers, tell: Callable[[Event], None]
    ) -> None:
        self.agent = False
        self._command = command
        self._run_id = command.run_id
        self._issue = command.issue
        self._session = session
        self._world = world
        self._disk = world.disk
        self._clock = world.clock
        self._tell = tell
        self._phase = 0
        self._turn = 0
        self._orphan = self._made_anew = self._lost = False
        self._acted_in_turn = self._acted_in_run = False
        self._finished: FinishReason | None = None
        self._verifies = self._only_verifies = (
            command.resume is not None and command.resume.reason is ResumeReason.VERIFY
        )
        self._verification: Verification | None = None
        self._thread = ""
        self._known_tokens = 0
        self._report = RunReport(stage=RunStage.PREPARING_WORKSPACE)

    @property
    def issue_id(self) -> str:
        """Whom it works for."""
        return self._issue.id

    @property
    def host(self) -> str | None:
        """Where it is."""
        return self._command.host

    @property
    def survives(self) -> bool:
        """Whether its agent outlives the daemon."""
        return self._session.survives

    @property
    def stubborn(self) -> bool:
        """Whether its agent ends only when it is killed."""
        return self._session.stop_ms > _GRACE_MS

    # --- its life ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepare the workspace."""
        hosts = self._world.hosts
        refused_ms = None if hosts is None else hosts.refusal_ms(self.host)
        if refused_ms is not None:
            self._then(refused_ms, self._end, OutcomeKind.FAILED, _UNAVAILABLE)
        elif not self._dies(FaultPoint.BEFORE_PREPARE):
            self._then(self._session.prepare_ms, self._prepared)

    def begin_later(self, delay_ms: int) -> None:
        """Begin once what an earlier daemon left is surely gone."""
        self._then(delay_ms, self.begin)

    def lose(self, *, agent_ms: int, ended_ms: int) -> None:
        """It is cut off: its agent ends after a time, and the daemon is told of its end after another."""
        if self._lost:
            return
        self._lost = True
        self._phase += 1
        self._then(agent_ms, self._agent_gone)
        self._then(ended_ms, self._end, OutcomeKind.FAILED, _LOST)

    def leave(self, agent_ms: int) -> None:
        """The daemon is gone: the agent ends with the lease at the latest."""
        self._orphan = self._lost = True
        self._phase += 1
        self._then(agent_ms, self.die)

    def _agent_gone(self) -> None:
        self.agent = False

    def _prepared(self) -> None:
        if self._session.prepare_failure is not None:
            self._end(OutcomeKind.FAILED, self._session.prepare_failure)
            return
        issue, disk = self._issue, self._disk
        ref = WorkspaceRef(issue_id=issue.id, identifier=issue.identifier, path=f"/ws/{issue.identifier}")
        self._made_anew = issue.id not in disk.workspaces or issue.id in disk.half
        if self._made_anew:
            disk.workspaces[issue.id] = ref
            disk.half.add(issue.id)
            if self._dies(FaultPoint.WORKSPACE_RECORDED) or self._dies(FaultPoint.WORKSPACE_POPULATED):
                return
            disk.half.discard(issue.id)
        if self._dies(FaultPoint.AFTER_PREPARE):
            return
        if self._only_verifies:
            self._say(stage=RunStage.PREPARING_WORKSPACE, workspace_path=ref.path)
            self._close(OutcomeKind.SUCCEEDED, None)
            return
        self._say(stage=RunStage.LAUNCHING_AGENT, workspace_path=ref.path)
        self._then(self._session.launch_ms, self._launched)

    def _launched(self) -> None:
        if self._dies(FaultPoint.BEFORE_SPAWN):
            return
        if self._session.launch_failure is not None:
            self._end(OutcomeKind.FAILED, self._session.launch_failure)
            return
        self.agent = True
        self._world.spawned(self._issue.id)
        self._open_thread()
        if not self._dies(FaultPoint.AFTER_SPAWN):
            self._begin_turn()

    def _open_thread(self) -> None:
        """Go on with the conversation that is told of, unless it, or the workspace it is about, is gone."""
        resume, threads = self._command.resume, self._disk.threads
        thread = resume.thread if resume and not self._made_anew and not self._session.forgets else None
        if thread is not None and thread.thread_id in threads:
            self._thread, self._known_tokens = thread.thread_id, thread.tokens.total_tokens
        else:
            self._thread, self._known_tokens = f"t-{len(threads) + 1}", 0
            threads[self._thread] = 0

    def _use(self, tokens: int) -> int:
        """Use tokens; what this run has used since what was known of its conversation."""
        self._disk.used[self._issue.id] += tokens
        self._disk.threads[self._thread] += tokens
        return self._disk.threads[self._thread] - self._known_tokens

    def _begin_turn(self) -> None:
        turns = self._session.turns
        turn = turns[min(self._turn, len(turns) - 1)]
        self._turn += 1
        self._acted_in_turn = False
        self._say(
            stage=RunStage.STREAMING_TURN,
            turn_count=self._turn,
            event_count=self._report.event_count + 1,
            tool_calls=0,
            thread_id=self._thread,
            total_tokens=self._use(self._session.tokens),
        )
        if not turn.silent:
            self._next_sign(turn, self._clock.now_ms + turn.lasts_ms)
        if turn.moves_to is not None:
            self._then(turn.lasts_ms // 2, self._move, turn.moves_to)
        if turn.ending is Ending.HANGS:
            self._then(turn.lasts_ms + _TURN_TIMEOUT_MS, self._close, OutcomeKind.TIMED_OUT, _TIMED_OUT)
        else:
            self._then(turn.lasts_ms, self._end_turn, turn)

    def _next_sign(self, turn: Turn, until_ms: int) -> None:
        if self._clock.now_ms + turn.sign_every_ms < until_ms:
            self._then(turn.sign_every_ms, self._sign, turn, until_ms)

    def _sign(self, turn: Turn, until_ms: int) -> None:
        self._say(event_count=self._report.event_count + 1)
        self._next_sign(turn, until_ms)

    def _move(self, state: str) -> None:
        self._say(event_count=self._report.event_count + 1, tool_calls=self._report.tool_calls + 1)
        if self._dies(FaultPoint.BEFORE_TOOL):
            return
        self._world.tracker.change(self._issue.id, state=state)
        self._acted_in_turn = self._acted_in_run = True
        self._dies(FaultPoint.AFTER_TOOL)

    def _end_turn(self, turn: Turn) -> None:
        self._say(total_tokens=self._use(self._session.tokens // 2))
        if self._dies(FaultPoint.TURN_ENDED):
            return
        if turn.ending is Ending.COMPLETES:
            trace = self._acted_in_turn or self._session.progress
            self._tell(TurnEnded(run_id=self._run_id, turn=self._turn, trace=trace))
        else:
            self._close(_KINDS[turn.ending], turn.failure or _TIMED_OUT)

    # --- what it is told ---------------------------------------------------------------------------------

    def direct(self, command: ContinueRun | FinishRun) -> None:
        """One more turn, or none: then deliver and end."""
        if self._lost:
            return  # it does not hear it
        if isinstance(command, ContinueRun):
            self._then(0, self._begin_turn)
        else:
            self._finished, self._verifies = command.reason, command.verify
            self._then(0, self._finish, command.failure)

    def _finish(self, failure: Failure | None) -> None:
        self._close(OutcomeKind.FAILED if failure else OutcomeKind.SUCCEEDED, failure)

    def stop(self, *, verify: bool) -> None:
        """Drop what was planned and end, when the session pleases."""
        if self._lost:
            return  # it does not hear it
        self._phase += 1
        self._verifies = verify
        self._then(self._session.stop_ms, self._close, OutcomeKind.CANCELED, None)

    def orphan(self) -> None:
        """The daemon is gone and the agent goes on: with nobody to tell, to the end of its turn."""
        self._orphan = True

    def die(self) -> None:
        """Do nothing more."""
        self._phase = -1
        self.agent = False

    # --- its end -----------------------------------------------------------------------------------------

    def _close(self, kind: OutcomeKind, failure: Failure | None) -> None:
        """Stop the agent and deliver."""
        self.agent = False
        if self._orphan:
            return
        self._say(stage=RunStage.FINISHING)
        if not (self._dies(FaultPoint.AGENT_STOPPED) or self._dies(FaultPoint.BEFORE_DELIVER)):
            self._then(self._session.deliver_ms, self._delivered, kind, failure)

    def _delivered(self, kind: OutcomeKind, failure: Failure | None) -> None:
        checks = self._world.checks
        if self._dies(FaultPoint.AFTER_DELIVER):
            return
        if not self._verifies or checks is None:
            self._end(kind, failure)
        elif not self._dies(FaultPoint.BEFORE_VERIFY):
            self._say(stage=RunStage.VERIFYING)
            delivered = self._delivery()
            lasts_ms, result = checks.verify(None if delivered is None else delivered.head)
            self._then(lasts_ms, self._verified, checks, result, kind, failure)

    def _verified(
        self, checks: Checks, made: Verification | None, kind: OutcomeKind, failure: Failure | None
    ) -> None:
        self._verification = made
        if self._dies(FaultPoint.CHECK_ENDED):
            return
        if made is None or not made.head or not made.passed:
            self._verification_over(kind, failure)
        elif not self._dies(FaultPoint.BEFORE_REVIEWER):
            self._then(checks.lasts_ms(), self._reviewed, checks, kind, failure)

    def _reviewed(self, checks: Checks, kind: OutcomeKind, failure: Failure | None) -> None:
        self._disk.used[self._issue.id] += _REVIEWER_TOKENS
        total = self._report.facts.tokens.total_tokens + _REVIEWER_TOKENS
        self._say(total_tokens=total, reviewer_tokens=Tokens(total_tokens=_REVIEWER_TOKENS))
        verdict, made = checks.review(), self._verification
        if verdict is None or made is None:
            self._verification, failure = None, _NOT_REVIEWED
        elif self._dies(FaultPoint.AFTER_REVIEWER):
            return
        else:
            self._verification = replace(made, reviewer=verdict)
        self._verification_over(kind, failure)

    def _verification_over(self, kind: OutcomeKind, failure: Failure | None) -> None:
        if self._verification is None or not self._dies(FaultPoint.AFTER_VERIFY):
            self._end(kind, failure)

    def _end(self, kind: OutcomeKind, failure: Failure | None) -> None:
        self.die()
        question = failure.message if failure and kind is OutcomeKind.INPUT_REQUIRED else None
        excused = self._acted_in_run or self._only_verifies
        excused = excused or self._finished in {FinishReason.INACTIVE, FinishReason.DRAINING}
        if kind is OutcomeKind.SUCCEEDED and self._session.progress is False and not excused:
            kind = OutcomeKind.NO_PROGRESS
        outcome = Outcome(
            kind=kind,
            failure=failure,
            progress=self._session.progress,
            question=question,
            delivered=self._delivery(),
            verification=self._verification,
        )
        self._tell(RunEnded(run_id=self._run_id, outcome=outcome))

    def _delivery(self) -> DeliveredBranch | None:
        """What it has to deliver."""
        if self._only_verifies or not self._session.progress:
            head = self._disk.heads.get(self._issue.id) if self._verifies else None
        else:
            head = self._disk.heads[self._issue.id] = self._run_id
        if head is None:
            return None
        branch = f"symphony/{self._issue.identifier}"
        return DeliveredBranch(work=WorkSize(commits=1), branch=branch, head=head, to_push=True)

    # --- its words ---------------------------------------------------------------------------------------

    def _dies(self, point: FaultPoint) -> bool:
        """Whether the daemon ends here, and the attempt with it."""
        return not self._orphan and self._world.crashes.reach(point)

    def _say(self, **changes: object) -> None:
        self._report = changed(self._report, **changes)
        self._tell(AgentReported(run_id=self._run_id, report=self._report))

    def _then(self, delay_ms: int, act: Callable[..., None], *arguments: object) -> None:
        self._clock.after(delay_ms, self._unless_told, self._phase, act, arguments)

    def _unless_told(self, phase: int, act: Callable[..., None], arguments: tuple[object, ...]) -> None:
        if phase == self._phase:
            act(*arguments)


def _push_failure(what: str) -> Failure | None:
    """One push in three fails. No dice: they are for what decides how the story goes on."""
    return _REFUSED if crc32(what.encode()) % 3 == 0 else None

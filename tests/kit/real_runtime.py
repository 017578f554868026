"""The real runtime in virtual time: real effects, workers, timers, comments and moves on a simulated edge.

    world = live_through(seed, folder)
    assert not world.violation

Real are `scheduler.machine.step`, `runtime.effects` and all that it uses (workers, timers, comments, answers,
moves), the tracker of kind `memory`, and what is kept and read back for a restart. Simulated is the edge: how
long the tracker takes and when it fails, the agent's process, git, the journal's file, people and operators.
The daemon dies at each of the points that its code passes, and its agents may outlive it.

The referee of the simulator judges every step. The order in which tasks are cancelled is asyncio's, so a seed
gives the same world and nearly the same history; the inputs of each life are recorded for `judge`.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.abc import TaskGroup
from typing_extensions import override

from kit.simulator.crash_points import AROUND, StepPoint
from kit.simulator.crashing import Crashes
from kit.simulator.dice import Dice
from kit.simulator.judged import AGENT, COMMENT, FINISHED, TOLD, WINDS_DOWN
from kit.simulator.memory import Memory
from kit.simulator.orders import Orders
from kit.simulator.people import Agents
from kit.simulator.referee import InvariantBrokenError, Referee, Violation
from kit.simulator.scenario import make_settings
from kit.simulator.schedules import schedule
from kit.simulator.session import Ending, Session, Turn
from kit.virtual_time import run
from symphony.agents import base
from symphony.agents.base import AgentError, AgentSkillRoots, Capabilities, SessionRequest, cannot_list_skills
from symphony.agents.events import (
    Activity,
    AgentEvent,
    InputRequired,
    ItemStarted,
    SessionStarted,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.config import AGENT_SECTIONS, WorkflowFile, parse_workflow
from symphony.daemon.comments import CommentWriter, PeopleCommentReader, SkillComments
from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import ActionRequest, Core
from symphony.daemon.effects import Effects
from symphony.daemon.hosts.hosts import Hosts
from symphony.daemon.jobs import JobRunner
from symphony.daemon.moves import Moves
from symphony.daemon.pushes import Pushes
from symphony.daemon.runs.tracing import Traces
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import (
    Blame,
    Category,
    DeliveredBranch,
    Failure,
    FaultPoint,
    Issue,
    Redaction,
    Tokens,
    WorkSize,
)
from symphony.journal.jobs import Job, JobDone, JobState
from symphony.processes.local import LocalHost
from symphony.scheduler import (
    DayBegan,
    Drain,
    DrainAsked,
    Eligible,
    Event,
    OperatorAction,
    OperatorAsked,
    RunEnded,
    SettingsChanged,
    State,
    StepFunction,
    WakeAsked,
    WorkflowRejected,
    WorkspaceRef,
    eligibility,
    initial_state,
    step,
)
from symphony.trackers.base import Comment, TrackerError
from symphony.trackers.memory import MemoryTracker
from symphony.workspaces import (
    Delivery,
    ProgressMark,
    Removal,
    Workspace,
    WorkspaceError,
    WorkspaceRecord,
)

if TYPE_CHECKING:
    from symphony.agents.base import AgentBackend
    from symphony.workspaces import WorkspaceManager

__all__ = ["World", "live_through"]


_STATES = ("Todo", "In Progress", "In Review", "Done", "Cancelled")
_SETTLES_S = 12 * 3_600
_WAIT_S = 15.0
_GRACE_MS = 2_000
_BROKEN_FILE = Failure(category=Category.WORKFLOW_PARSE_ERROR, blame=Blame.CONFIG, message="not YAML")
_NO_PUSH = Failure(category=Category.PUSH_FAILED, blame=Blame.WORKSPACE, message="origin does not answer")


def live_through(seed: int, folder: Path, *, step: StepFunction = step, reaps: bool = True) -> "World":
    """Live through the schedule of a seed (`kit.simulator.schedules`), whose world ends well.

    `folder` is an empty directory for what the runtime writes. `step` is the scheduler that is judged,
    `reaps` whether a start ends the agents that are left. Look at `violation` of what is returned.
    """

    async def main() -> World:
        world = World(seed, folder, step, reaps=reaps)
        await world.live()
        return world

    return run(main)


@dataclass(slots=True)
class _Process:
    """An agent's process; `life` is that of the daemon which started it."""

    issue_id: str
    life: int
    session: Session
    is_alive: bool = True


@dataclass(slots=True)
class _Clock:
    """Virtual time for the parts of the simulator that keep it by themselves."""

    tasks: TaskGroup

    @property
    def now_ms(self) -> int:
        return _now_ms()

    def after(self, delay_ms: int, act: Callable[..., None], *arguments: Any) -> None:
        self.tasks.start_soon(self._later, delay_ms, act, arguments)

    async def _later(self, delay_ms: int, act: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        await anyio.sleep(delay_ms / 1000)
        act(*arguments)


def _now_ms() -> int:
    return round(anyio.current_time() * 1000)


class World:
    """One board, one daemon at a time, and those who disturb it.

    Attributes:
        violation: the first rule that was broken, or None.
        referee: judges every step; its `lives` hold all inputs.
        crashes: where the daemon died. starts: how many agents were started.
    """

    def __init__(self, seed: int, folder: Path, step: StepFunction, *, reaps: bool) -> None:
        self.scenario, duration = schedule(seed)
        self.duration_s = duration.total_seconds()
        self.dice = Dice(seed)
        self.outage_seed = seed + 2
        # Verifications need commands of a workflow file; the simulator has them.
        self.settings = replace(self.scenario.first_settings(), verify_rounds=None)
        self.referee = Referee(step)
        self.crashes = Crashes(Dice(seed + 1))
        self.violation: Violation | None = None
        self.state_dir = StateDirectory(folder / "state")
        self.folder = folder
        self.board = _Board(self)
        self.agents = Agents(None, self.dice, self.scenario.profile.agents, {})
        self.workspaces: dict[str, WorkspaceRef] = {}
        self.commits: Counter[str] = Counter()
        self.threads: dict[str, int] = {}
        self.processes: list[_Process] = []
        self.planned: dict[str, Session] = {}
        self.used: Counter[str] = Counter()
        self.starts = 0
        self.daemon: _Daemon | None = None
        self.is_calm = False
        self._reaps = reaps
        self._lives = 0
        self._changed = anyio.Event()

    async def live(self) -> None:
        """From the first start to a clean end, or to the first broken rule."""
        self.referee.books.tokens = self.used
        if self.scenario.crash is not None:
            self.crashes.arm(*self.scenario.crash)
        self.crashes.on_death(self.kill)
        await anyio.to_thread.run_sync(self.state_dir.create)
        async with anyio.create_task_group() as self.tasks:
            habits = self.scenario.profile.journal
            self.memory = Memory(_Clock(self.tasks), self.dice, habits)
            for issue in self.scenario.board:
                self.board.put(issue)
            self.tasks.start_soon(self._keep_a_daemon)
            with anyio.move_on_after(self.duration_s):
                async with anyio.create_task_group() as disturbers:
                    disturbers.start_soon(self._people)
                    disturbers.start_soon(self._operators)
                    disturbers.start_soon(self._outages)
            try:
                await self._settle()
                await self._wind_down()
            except InvariantBrokenError as error:
                self.violation = self.violation or error.violation
            self.tasks.cancel_scope.cancel()

    def break_rule(self, error: InvariantBrokenError) -> None:
        """The first broken rule ends the world."""
        self.violation = self.violation or error.violation
        self.tasks.cancel_scope.cancel()

    # --- the daemons -------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """What the scheduler of the present daemon knows."""
        return self.referee.state

    def tell(self, fact: Event) -> None:
        """Tell the daemon that serves, if one does."""
        if self.daemon is not None:
            self.daemon.post(fact)

    def kill(self, *, cleanly: bool = False) -> None:
        """The daemon is gone in mid-step, and some of its agents live on."""
        daemon = self.daemon
        if daemon is None:
            return
        self.daemon, daemon.is_alive = None, False
        self.memory.close(cleanly=cleanly)
        for process in self.processes:
            if process.life == daemon.life and not process.session.survives:
                process.is_alive = False
        daemon.tasks.cancel_scope.cancel()
        self.tell_change()

    async def _keep_a_daemon(self) -> None:
        """A daemon is brought back whenever it went away."""
        while True:
            self._lives += 1
            left = [process for process in self.processes if process.is_alive]
            if left and self._reaps:
                stubborn = any(process.session.stop_ms > _GRACE_MS for process in left)
                await anyio.sleep(2 if stubborn else 0.05)
                for process in left:
                    process.is_alive = False
            self.processes = [process for process in self.processes if process.is_alive]
            await _Daemon(self, self._lives).serve()
            down_ms = self.scenario.profile.operators.down_ms
            await anyio.sleep(0.1 if self.is_calm else self.dice.between(down_ms) / 1000)

    def tell_change(self) -> None:
        """Let everybody look again who waits for something."""
        self._changed.set()
        self._changed = anyio.Event()

    # --- who disturbs ------------------------------------------------------------------------------------

    async def _people(self) -> None:
        dice = self.dice
        while True:
            await anyio.sleep(dice.around(120_000) / 1000)
            issue_id = dice.pick([issue.id for issue in self.scenario.board])
            change: dict[str, Any] = dice.pick(
                (
                    {"state": dice.pick(_STATES)},
                    {"state": "Todo"},
                    {"title": dice.pick(("one", "two"))},
                    {"labels": dice.pick(((), ("x",), ("x", "y")))},
                    {"dispatchable": dice.chance(0.7)},
                )
            )
            await self.board.change(issue_id, **change)
            if dice.chance(0.5):
                self.tell(WakeAsked(reason="tracker_changed"))

    async def _operators(self) -> None:
        dice = self.dice
        orders = Orders(dice, self)
        while True:
            await anyio.sleep(dice.around(180_000) / 1000)
            if self.daemon is None:
                continue
            match dice.between((0, 7)):
                case 0:
                    self.kill()
                case 1:
                    self.tell(DrainAsked())
                case 2:
                    self.tell(WorkflowRejected(failure=_BROKEN_FILE))
                    await anyio.sleep(dice.between((1, 60)))
                    self.tell(SettingsChanged(settings=self.settings))
                case 3:
                    slots = dice.pick((self.settings.max_concurrent_agents, 1, 3))
                    self.settings = replace(self.settings, max_concurrent_agents=slots)
                    self.tell(SettingsChanged(settings=self.settings))
                case 4:
                    self.memory.set_clock()
                    self._tell_the_day()
                case 5:
                    self.crashes.arm()
                case _:
                    orders.give()

    async def _outages(self) -> None:
        """The tracker is down for minutes or hours, now and then."""
        dice = Dice(self.outage_seed)
        while True:
            await anyio.sleep(dice.around(3_600_000) / 1000)
            self.board.is_down = True
            try:
                await anyio.sleep(dice.around(900_000) / 1000)
            finally:
                self.board.is_down = False

    def _tell_the_day(self) -> None:
        if self.state.day is not None and self.state.day != self.memory.today():
            self.tell(DayBegan(day=self.memory.today()))

    # --- the end -----------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Nobody disturbs and all goes well: what may be worked on is finished or blocked.

        Raises:
            InvariantBrokenError: it is not.
        """
        self.is_calm = True
        self.crashes.disarm()
        self.agents.calm_down()
        self.memory.rest()
        if self.daemon is not None and self.state.drain is not Drain.NO:
            await self._until(lambda: self.daemon is None)
        await self._until(lambda: self.daemon is not None)
        self.settings = make_settings(poll_interval_ms=60_000, max_concurrent_agents=2)
        for fact in (
            SettingsChanged(settings=self.settings),
            OperatorAsked(action=OperatorAction.RESUME),
            WakeAsked(reason="good weather"),
        ):
            self.tell(fact)
        unfinished: list[str] = []
        for wait_s in (60 * 2**look for look in range(10)):
            await anyio.sleep(wait_s)
            unfinished = await self._unfinished()
            if not unfinished:
                await self._look_for_untold()
                self.referee.replay()
                return
        raise self.referee.broken(FINISHED, "it is neither finished nor blocked", _now_ms(), unfinished[0])

    async def _look_for_untold(self) -> None:
        if not await self._until(lambda: self.daemon is not None and not self.daemon.has_jobs):
            raise self.referee.broken(TOLD, "a job for the tracker is not done", _now_ms(), "")
        for issue_id, blocked in sorted(self.state.blocked.items()):
            if not await self.board.says_blocked(issue_id):
                words = f"nobody told that it is blocked: {blocked.failure.message}"
                raise self.referee.broken(TOLD, words, _now_ms(), issue_id)

    async def _unfinished(self) -> list[str]:
        state = self.state
        return [
            issue.id
            for issue in await self.board.now_in(state.settings.active_states)
            if issue.id in state.running
            or issue.id in state.retrying
            or isinstance(eligibility(issue, state), Eligible)
        ]

    async def _wind_down(self) -> None:
        """Everything is done: claims go, and the daemon ends when it is asked to.

        Raises:
            InvariantBrokenError: they do not.
        """
        for issue in self.scenario.board:
            await self.board.change(issue.id, state="Done")
        self.tell(WakeAsked(reason="the end"))
        if not await self._until(lambda: not self._claimed()):
            words = "an issue is still claimed though everything is done"
            raise self.referee.broken(WINDS_DOWN, words, _now_ms(), self._claimed()[0])
        self.tell(DrainAsked())
        if not await self._until(lambda: self.daemon is None):
            raise self.referee.broken(WINDS_DOWN, "the daemon was asked to end and did not", _now_ms())

    def _claimed(self) -> list[str]:
        return sorted({*self.state.running, *self.state.retrying, *self.state.blocked})

    async def _until(self, holds: Callable[[], bool]) -> bool:
        """Wait for something, half a day at most; whether it came."""
        with anyio.move_on_after(_SETTLES_S):
            while not holds():
                with anyio.move_on_after(_WAIT_S):
                    await self._changed.wait()
            return True
        return False


class _Daemon:
    """One life of the daemon: the mailbox loop of `runtime.service` around the real effects."""

    def __init__(self, world: World, life: int) -> None:
        self.world = world
        self.life = life
        self.is_alive = True
        self._give, self._inbox = anyio.create_memory_object_stream[Event](float("inf"))

    def post(self, fact: Event | ActionRequest) -> None:
        """Into the mailbox; dropped once the daemon is dead. Nobody asks for actions."""
        if self.is_alive and not isinstance(fact, ActionRequest):
            self._give.send_nowait(fact)

    async def serve(self) -> None:
        """Live until the daemon dies or has ended by itself."""
        world, memory = self.world, self.world.memory
        with self._give, self._inbox:
            async with anyio.create_task_group() as self.tasks:
                world.daemon = self
                for point in (FaultPoint.LOCKED, FaultPoint.REAPED, FaultPoint.CHECKED):
                    if world.crashes.reach(point):
                        return
                memory.begin(self.life)
                core = self._core = Core(
                    state_dir=world.state_dir,
                    environment={},
                    post=self.post,
                    now_ms=_now_ms,
                    wall_ms=lambda: memory.wall_ms,
                )
                core.context = self._context()
                self._jobs = JobRunner(core, memory.jobs, record=self._record)
                self._jobs.kinds = {
                    "comment": CommentWriter(memory.known_comments, on_written=self._commented),
                    "move": Moves(core),
                    "push": Pushes(core),
                }
                core.observers = (self._jobs,)
                self._effects = Effects(
                    core,
                    tasks=self.tasks,
                    before_poll=_nothing,
                    review_tools=lambda _issue_id, tools: tools,
                    handled=_nothing,
                    on_exit=self._ended,
                    jobs=self._jobs,
                    skill_comments=SkillComments(self._jobs, record=lambda _: None, recorded=_nothing),
                    people_comments=PeopleCommentReader(lambda _: ()),
                    traces=Traces(None, found_ms=lambda _: None, now_ms=lambda: 0),
                    hosts=Hosts(LocalHost(), {}, world.state_dir.path),
                )
                refs = tuple(world.workspaces[key] for key in sorted(world.workspaces))
                self.post(memory.first_input(world.settings, refs))
                world.referee.begin(initial_state(world.settings, epoch=f"d{self.life}"))
                world.referee.books.remember(memory.left)
                self.tasks.start_soon(core.timers.run)
                self.tasks.start_soon(self._jobs.run)
                world.tell_change()
                async for fact in self._inbox:
                    self._take(fact)

    def _take(self, fact: Event) -> None:
        """One step, what is kept of it, and what is begun because of it; the daemon may die in between."""
        world, reach = self.world, self.world.crashes.reach
        if not self.is_alive or reach(StepPoint.HEARD):
            return
        if isinstance(fact, RunEnded) and fact.outcome.failure is not None:
            assert "internal error" not in fact.outcome.failure.message, fact.outcome.failure.line
        before = world.state
        try:
            commands = world.referee.tell(fact, _now_ms())
        except InvariantBrokenError as error:
            world.break_rule(error)
            return
        self._core.state = world.state
        if reach(StepPoint.DECIDED):
            return
        world.memory.step(before, fact, world.state, commands, world.referee.left)
        if reach(StepPoint.KEPT):
            return
        for command in commands:
            points = AROUND.get(type(command))
            if points and reach(points[0]):
                return
            self._effects.carry_out(command)
            if points and reach(points[1]):
                return
        self._core.stepped(before, fact, world.state, commands)
        world.tell_change()

    def fault(self, point: FaultPoint) -> None:
        """A point of the real code."""
        if self.is_alive:
            self.world.crashes.reach(point)

    def _ended(self) -> None:
        if self.is_alive:
            self.world.kill(cleanly=True)

    @property
    def has_jobs(self) -> bool:
        """Whether a job waits that was not given up."""
        return any(job.state is JobState.WAITING for job in self._jobs.jobs)

    def _record(self, record: Job | JobDone) -> None:
        if self.is_alive:
            self.world.memory.put_job(record)

    def _commented(self, issue_id: str, kind: str, _comment_id: str, fingerprint: str) -> None:
        if self.is_alive:
            self.world.memory.commented(issue_id, kind, fingerprint)

    def _context(self) -> RuntimeContext:
        world = self.world
        front = "tracker: {kind: memory}\nagent: {skills: {enabled: false}}"
        data = f"---\n{front}\n---\nWork on {{{{ issue.identifier }}}}.\n".encode()
        path = world.folder / "WORKFLOW.md"
        file = WorkflowFile(path=path, data=data)
        workflow = parse_workflow(file, environment={}, tracker_kinds=("memory",), agent_kinds=AGENT_SECTIONS)
        names, codex = ("codex", "claude", "gemini", "aider"), workflow.agents["codex"]
        backend = cast("AgentBackend", _Backend(self))
        return RuntimeContext(
            workflow=replace(workflow, agents={name: replace(codex, name=name) for name in names}),
            active_states=("Todo", "In Progress"),
            terminal_states=("Done", "Cancelled"),
            tracker=world.board,
            tools=world.board,
            workspaces=cast("WorkspaceManager", _Workspaces(self)),
            agents=dict.fromkeys(names, backend),
            secret_names=frozenset(),
            redaction=Redaction(),
            fault=self.fault,
        )


async def _nothing() -> None:
    """What needs no work here."""


# --- the edge ----------------------------------------------------------------------------------------------


class _Board(MemoryTracker):
    """The real tracker of kind `memory`, whose answers take their time, fail, or hang."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._habits = world.scenario.profile.tracker
        self.is_down = False

    async def _answer(self) -> None:
        dice, habits = self._world.dice, self._habits
        if self._world.is_calm:
            await anyio.sleep(0.1)
            return
        hangs = dice.chance(habits.hangs)
        await anyio.sleep(dice.between(habits.hang_ms if hangs else habits.latency_ms) / 1000)
        if self.is_down or dice.chance(habits.fails):
            raise TrackerError(
                Failure(category=Category.TRACKER_REQUEST, blame=Blame.TRACKER, message="no answer")
            )
        if dice.chance(habits.rate_limits):
            wait_ms = dice.between(habits.retry_after_ms)
            raise TrackerError(
                Failure(
                    category=Category.TRACKER_RATE_LIMITED,
                    blame=Blame.TRACKER,
                    message="too many requests",
                    retry_after_ms=wait_ms,
                )
            )

    async def now_in(self, states: Collection[str]) -> Sequence[Issue]:
        """The issues in these states, at once."""
        return await super().fetch_issues_by_states(sorted(states))

    async def says_blocked(self, issue_id: str) -> bool:
        """Whether the daemon said there that the issue is blocked."""
        comments = await super().list_comments(issue_id)
        return any(one.mine and one.body.startswith("<!-- symphony:blocked ") for one in comments)

    async def change(self, issue_id: str, **changes: Any) -> None:
        """A person changes an issue."""
        for issue in await super().fetch_issues_by_ids([issue_id]):
            self.put(replace(issue, **changes))

    @override
    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[Issue]:
        await self._answer()
        return await super().fetch_issues_by_states(states)

    @override
    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        await self._answer()
        return await super().fetch_issues_by_ids(ids)

    @override
    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        await self._answer()
        return await super().list_comments(issue_id)

    @override
    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        await self._answer()
        name = await super().put_comment(issue_id, body, key=key, comment_id=comment_id)
        self._look_for_doubles(issue_id, await super().list_comments(issue_id))
        if comment_id is None and not self._world.is_calm and self._world.dice.chance(0.5):
            self._world.tasks.start_soon(self._say, issue_id)
        return name

    def _look_for_doubles(self, issue_id: str, comments: Sequence[Comment]) -> None:
        """The first line of a comment of ours is its marker: what it is about and what it was made from."""
        marks = Counter(one.body.partition(" fp=")[0] for one in comments if one.mine)
        if any(times > 1 for times in marks.values()):
            world = self._world
            world.break_rule(
                world.referee.broken(COMMENT, "it has the same comment twice", _now_ms(), issue_id)
            )

    async def _say(self, issue_id: str) -> None:
        """A person answers."""
        await anyio.sleep(self._world.dice.between((1, 600)))
        if await super().fetch_issues_by_ids([issue_id]):
            self.comment(issue_id, "the first one", author="ann")


class _Workspaces:
    """What git would do, by counting. Nothing happens any more for a daemon that is dead."""

    def __init__(self, daemon: _Daemon) -> None:
        self._daemon = daemon
        self._world = daemon.world

    async def prepare(self, issue: Issue, attempt: int | None, *, run_id: str | None = None) -> Workspace:
        """Make the workspace of an issue, or take the one that is there."""
        del attempt, run_id
        world = self._world
        session = world.agents.session(issue)
        world.planned[issue.id] = session
        await anyio.sleep(session.prepare_ms / 1000)
        if session.prepare_failure is not None:
            raise WorkspaceError(session.prepare_failure)
        made = issue.id not in world.workspaces
        if made:
            path = str(world.folder)
            world.workspaces[issue.id] = WorkspaceRef(
                issue_id=issue.id, identifier=issue.identifier, path=path
            )
        return Workspace(
            key=issue.id,
            path=world.folder,
            branch=f"symphony/{issue.identifier}",
            base_commit=None,
            created_now=made,
        )

    async def before_run(self, *_: object, **__: object) -> None:
        await anyio.lowlevel.checkpoint()

    async def after_run(self, *_: object, **__: object) -> None:
        await anyio.lowlevel.checkpoint()

    async def verify(self, workspace: Workspace) -> None:
        del workspace
        await anyio.lowlevel.checkpoint()

    async def exists(self, workspace: Workspace) -> bool:
        await anyio.lowlevel.checkpoint()
        return workspace.key in self._world.workspaces

    async def progress(self, workspace: Workspace) -> ProgressMark:
        await anyio.lowlevel.checkpoint()
        return ProgressMark(head=str(self._world.commits[workspace.key]), tree="")

    async def deliver(
        self, workspace: Workspace, *, git_said: str | None = None, clean: bool = False
    ) -> Delivery:
        del git_said, clean
        commits = self._world.commits[workspace.key]
        if self._daemon.is_alive:
            await anyio.sleep(1)
        head, work = f"{workspace.key}-{commits}", WorkSize(commits=commits)
        if not commits or workspace.branch is None:
            return Delivery(head=head)
        delivered = DeliveredBranch(branch=workspace.branch, head=head, work=work, to_push=True)
        return Delivery(head=head, work=work, delivered=delivered)

    async def place(self, branch: str) -> Failure | None:
        del branch
        await anyio.lowlevel.checkpoint()
        return None

    async def push(self, branch: str) -> Failure | None:
        """One push in three fails."""
        del branch
        await anyio.sleep(0.7)
        return None if self._world.is_calm or self._world.dice.chance(0.7) else _NO_PUSH

    async def locate(self, issue_id: str, identifier: str) -> WorkspaceRecord:
        await anyio.lowlevel.checkpoint()
        return WorkspaceRecord(
            issue_id=issue_id, identifier=identifier, key=issue_id, path=self._world.folder
        )

    async def remove(self, record: WorkspaceRecord) -> Removal:
        await anyio.sleep(0.2)
        return Removal(removed=self._world.workspaces.pop(record.issue_id, None) is not None)


class _Backend:
    """Opens sessions that follow the scripts of the simulator (`kit.simulator.session`)."""

    capabilities = Capabilities(
        system_block_at_start=True, client_tools=True, absolute_usage=True, sandbox=True, resume=True
    )
    skill_roots = AgentSkillRoots()

    def __init__(self, daemon: _Daemon) -> None:
        self._daemon = daemon

    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator["_Session"]:
        """Start an agent; there must be no other one at work on its issue."""
        daemon, world = self._daemon, self._daemon.world
        issue_id = world.referee.books.live[request.run_id]
        script = world.planned[issue_id]
        await anyio.sleep(script.launch_ms / 1000)
        await request.briefing(cannot_list_skills)
        if script.launch_failure is not None:
            raise AgentError(script.launch_failure)
        process = _Process(issue_id, daemon.life, script)
        if any(each.is_alive and each.issue_id == issue_id for each in world.processes):
            words = "a second agent was started beside a live one"
            world.break_rule(world.referee.broken(AGENT, words, _now_ms(), issue_id))
        world.processes.append(process)
        world.starts += 1
        session = _Session(daemon, request, process)
        try:
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                await session.stop()


class _Session:
    """One conversation with an agent that does what its script says."""

    pid = 4_711

    def __init__(self, daemon: _Daemon, request: SessionRequest, process: _Process) -> None:
        self._daemon = daemon
        self._world = daemon.world
        self._request = request
        self._process = process
        self._turn = 0
        threads, wanted = self._world.threads, request.resume
        self.resume_refused: Failure | None = None
        if wanted is not None and wanted.thread_id in threads and not process.session.forgets:
            self.thread_id = wanted.thread_id
        else:
            self.thread_id = f"t-{len(threads) + 1}"
            threads[self.thread_id] = 0
            if wanted is not None:
                self.resume_refused = Failure(
                    category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message="no such thread"
                )

    async def run_turn(self, turn: base.Turn) -> AsyncIterator[AgentEvent]:
        """Live through the next turn of the script; the last one is repeated."""
        del turn
        turns = self._process.session.turns
        scripted = turns[min(self._turn, len(turns) - 1)]
        self._turn += 1
        name = f"{self.thread_id}-{self._turn}"
        yield SessionStarted(session_id=name, thread_id=self.thread_id, turn_id=str(self._turn))
        yield self._use(self._process.session.tokens)
        yield ItemStarted(kind="command", summary="work")
        async for event in self._work(scripted):
            yield event
        yield self._use(self._process.session.tokens // 2)
        yield self._end_of(scripted)

    async def _work(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        half_ms, rest_ms = turn.lasts_ms // 2, turn.lasts_ms
        moved = turn.moves_to is None
        while rest_ms > 0:
            part_ms = min(rest_ms, half_ms if not moved else rest_ms, turn.sign_every_ms)
            part_ms = max(part_ms, 1)
            await anyio.sleep(part_ms / 1000)
            rest_ms -= part_ms
            if not moved and rest_ms <= half_ms:
                moved = True
                await self._request.run_tool("memory_move", {"state": turn.moves_to})
            if not turn.silent:
                yield Activity(count=1)
        if turn.ending is Ending.HANGS:
            await anyio.sleep_forever()

    def _end_of(self, turn: Turn) -> AgentEvent:
        if turn.ending is Ending.ASKS:
            return InputRequired(reason="the agent asks", question="which one?")
        if turn.ending is Ending.COMPLETES:
            if self._process.session.progress:
                self._world.commits[self._process.issue_id] += 1
            return TurnEnd(status=TurnStatus.COMPLETED)
        failure = turn.failure or Failure(
            category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message="the turn took too long"
        )
        return TurnEnd(status=TurnStatus.FAILED, failure=failure)

    def _use(self, tokens: int) -> UsageUpdate:
        self._world.used[self._process.issue_id] += tokens
        total = self._world.threads[self.thread_id] = self._world.threads[self.thread_id] + tokens
        return UsageUpdate(absolute=True, tokens=Tokens(total, 0, total))

    async def stop(self) -> tuple[AgentEvent, ...]:
        """End, when the script pleases; an agent of a daemon that is dead is ended by the next one."""
        if self._daemon.is_alive and self._process.is_alive:
            await anyio.sleep(self._process.session.stop_ms / 1000)
        if self._daemon.is_alive:
            self._process.is_alive = False
        return ()

"""A library, an agent that learns in it, and points at which a process can be killed."""

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio import to_thread
from typing_extensions import override

from harness.binding import FakeTracker, StoryCore, make_context
from harness.chronicle import populated
from symphony.agents.base import AgentBackend, Capabilities, SessionRequest, Turn
from symphony.agents.events import AgentEvent, SessionStarted, TurnEnd, TurnStatus, UsageUpdate
from symphony.daemon.learning.learning_runs import SKILLS, Learner
from symphony.daemon.state_dir import library_key
from symphony.domain import Tokens
from symphony.library.model import Authorship, Rating, SkillText, StoredFeedback
from symphony.library.store import Library

if TYPE_CHECKING:
    from symphony.daemon.context import RuntimeContext
    from symphony.scheduler import State

__all__ = [
    "BETTER",
    "DONE",
    "STYLE",
    "Act",
    "Agent",
    "IdleError",
    "LearnerBench",
    "WatchedLibrary",
    "die_at_every_point",
    "improves",
]

DONE = TurnEnd(status=TurnStatus.COMPLETED)
STYLE = SkillText(name="style", description="Style.", when_to_use="Always.", content="Be brief.\n")
BETTER = STYLE.file().replace(b"Be brief.", b"Be brief. Run the tests.")
Act = Callable[[Path, Turn], AgentEvent]


class IdleError(BaseException):
    """Nothing waits any more."""


class WatchedLibrary(Library):
    """Calls `point` before and after each change, and ends the learner when nothing waits."""

    point: Callable[[], None] = staticmethod(lambda: None)

    @override
    def pending_feedback(self, workflow: str) -> tuple[StoredFeedback, ...]:
        found = super().pending_feedback(workflow)
        if not found:
            raise IdleError
        return found

    @override
    @contextmanager
    def _writing(self) -> Iterator[Any]:
        self.point()
        with super()._writing() as connection:
            yield connection
            self.point()
        self.point()


@dataclass
class Agent:
    """An agent whose turns are calls of `act` in the directory of its session."""

    act: Act
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(
            system_block_at_start=True, client_tools=True, absolute_usage=False, sandbox=True, resume=True
        )
    )
    requests: list[SessionRequest] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    thread_id: str | None = "thread-1"
    pid: int = 1
    resume_refused: None = None

    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator["Agent"]:
        self.requests.append(request)
        await anyio.lowlevel.checkpoint()
        yield self

    async def run_turn(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        self.turns.append(turn)
        yield SessionStarted(session_id=f"s-{turn.number}", thread_id="thread-1", turn_id=str(turn.number))
        yield UsageUpdate(tokens=Tokens(input_tokens=90, output_tokens=10, total_tokens=100), absolute=False)
        yield await to_thread.run_sync(self.act, self.requests[-1].cwd, turn)

    async def stop(self) -> tuple[AgentEvent, ...]:
        await anyio.lowlevel.checkpoint()
        return ()


def improves(cwd: Path, turn: Turn) -> AgentEvent:
    del turn
    (cwd / SKILLS / "style" / "SKILL.md").write_bytes(BETTER)
    (cwd / "work.py").write_text("this is discarded")
    return DONE


class LearnerBench:
    """A library with one skill, and an agent that learns."""

    def __init__(
        self, tmp_path: Path, act: Act = improves, *, budget: dict[str, Any] | None = None, **library: Any
    ) -> None:
        self.library = WatchedLibrary(tmp_path / "state" / "library.db")
        self.workflow = library_key(tmp_path / "state")
        if not self.library.path.exists():
            self.library.add(STYLE, Authorship(author="ada"))
        self.agent = Agent(act)
        more = json.dumps({"agent": {"library": library, **({"budget": budget} if budget else {})}})
        context = make_context(tmp_path, FakeTracker(), more=more)
        self.context: RuntimeContext = replace(context, agents={"codex": cast("AgentBackend", self.agent)})
        self.state: State = populated().state
        core = StoryCore(tmp_path, state=lambda: self.state, context=lambda: self.context)
        core.recovered.set()
        self.learner = Learner(core, self.library, look_s=0)

    def rate(self, identifier: str = "SYM-99", **changes: Any) -> StoredFeedback:
        rating = Rating(
            workflow=self.workflow,
            issue_id="99",
            issue_identifier=identifier,
            run_ids=("run-1",),
            stars=2,
            author="operator",
            **changes,
        )
        return Library.rate(self.library, rating)

    def found(self, identifier: str = "SYM-99") -> list[StoredFeedback]:
        return list(self.library.feedback(self.workflow, identifier))

    def learn(self, limit_s: float = 30) -> None:
        """Learn from all that waits; returns after the limit if the learner only waits."""

        async def run() -> None:
            with anyio.move_on_after(limit_s):
                await self.learner.run()

        with suppress(IdleError):
            anyio.run(run)


# --- in processes of their own ---


def rate_and_learn(home: Path, fatal: int) -> None:
    """Give feedback and learn from it; die at the point of this number."""
    passed = 0

    def point() -> None:
        nonlocal passed
        passed += 1
        if passed == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def act(cwd: Path, turn: Turn) -> AgentEvent:
        point()
        ended = improves(cwd, turn)
        point()
        return ended

    bench = LearnerBench(home, act)
    bench.library.point = point
    bench.rate()
    bench.learn()


def die_at_every_point(place: Path) -> list[tuple[int, int]]:
    """Give feedback and learn once for each point, die there, and let another process go on.

    Called in a process without threads, which forks. Returns the exit codes of both, below `place/<point>`.
    """
    codes: list[tuple[int, int]] = []
    while not codes or codes[-1][0] < 0:
        home = place / str(len(codes) + 1)
        died = _forked(partial(rate_and_learn, home, len(codes) + 1))
        codes.append((died, _forked(partial(_learn, home))))
    return codes


def _learn(home: Path) -> None:
    LearnerBench(home).learn()


def _forked(work: Callable[[], None]) -> int:
    """The exit code of a child that does this: 0, 1 if it raised, or minus the signal that killed it."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

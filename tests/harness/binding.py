"""Stand-ins for what a runtime context holds, and a mailbox that keeps what was posted."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import anyio
import anyio.lowlevel

from symphony.agents.base import AgentSkillRoots
from symphony.config import AGENT_SECTIONS, WorkflowFile, parse_workflow
from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import ActionRequest, Core
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Issue, Redaction, SymphonyError, ToolResult, ToolSpec
from symphony.scheduler import Event, State
from symphony.trackers.base import Comment
from symphony.workspaces import NUMSTAT, KeptWorkspace, Patch, Removal, WorkspaceRecord

if TYPE_CHECKING:
    from symphony.agents.base import AgentBackend
    from symphony.workspaces import WorkspaceManager

__all__ = [
    "SECRET",
    "CommentingTracker",
    "FakeTracker",
    "FakeWorkspaces",
    "Mailbox",
    "NoOwnSkills",
    "make_context",
    "nothing",
]


F = TypeVar("F")
SECRET = "correct-horse-battery"


async def nothing() -> None:
    """What a step does that has nothing to do."""


class NoOwnSkills:
    """The part of an agent that looks for no skills on its own."""

    skill_roots = AgentSkillRoots()


@dataclass
class FakeTracker:
    """Answers from `issues`, after `before_answer` (which may raise or wait); no comments."""

    issues: tuple[Issue, ...] = ()
    before_answer: Callable[[], Awaitable[None]] = nothing
    asked: list[object] = field(default_factory=list)

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[Issue]:
        self.asked.append(tuple(states))
        await self.before_answer()
        return list(self.issues)

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        self.asked.append(frozenset(ids))
        await self.before_answer()
        return [issue for issue in self.issues if issue.id in ids]

    def secret_environment_names(self) -> frozenset[str]:
        return frozenset()

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        return ()

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        raise AssertionError((name, arguments, issue))

    async def changes(self) -> AsyncIterator[None]:
        for _ in ():
            yield


@dataclass
class MovingTracker(FakeTracker):
    """As `FakeTracker`, with moves: `goes_to` is what they end in where that is not what was asked."""

    goes_to: str | None = None
    moved: list[tuple[str, str]] = field(default_factory=list)
    failure: Exception | None = None

    async def move_issue(self, issue_id: str, state: str) -> str:
        if self.failure is not None:
            raise self.failure
        self.moved.append((issue_id, state))
        after = self.goes_to or state
        self.issues = tuple(replace(one, state=after) if one.id == issue_id else one for one in self.issues)
        return after


@dataclass
class CommentingTracker(FakeTracker):
    """As `FakeTracker`, with comments that live in `comments`."""

    comments: dict[str, str] = field(default_factory=dict)
    puts: list[tuple[str, str]] = field(default_factory=list)

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        self.asked.append(issue_id)
        await self.before_answer()
        return [Comment(id=key, body=body, mine=True) for key, body in self.comments.items()]

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        self.puts.append((issue_id, key))
        name = comment_id or f"c{len(self.comments) + 1}"
        self.comments[name] = body
        return name


@dataclass
class FakeWorkspaces:
    """Removes at once, after `before_removal`; `removed` holds what it was asked for. Prepares nothing."""

    before_removal: Callable[[], Awaitable[None]] = nothing
    answer: Removal = field(default_factory=lambda: Removal(removed=True))
    removed: list[WorkspaceRecord] = field(default_factory=list)
    found_patch: Patch | SymphonyError | None = None
    compared: int = 0
    before_comparison: Callable[[], Awaitable[None]] = nothing

    async def prepare(self, issue: Issue, attempt: int | None, *, run_id: str) -> NoReturn:
        await anyio.lowlevel.checkpoint()
        raise AssertionError((issue, attempt, run_id))

    async def patch(self, identifier: str, *, max_bytes: int) -> Patch | None:
        del identifier
        if isinstance(self.found_patch, SymphonyError):
            raise self.found_patch
        found = self.found_patch
        return found and Patch(branch=found.branch, content=found.content[:max_bytes])

    async def working_patch(
        self, identifier: str, form: Sequence[str] = NUMSTAT, *, max_bytes: int
    ) -> Patch | None:
        del form
        self.compared += 1
        await self.before_comparison()
        return await self.patch(identifier, max_bytes=max_bytes)

    async def fetch_base(self, branch: str) -> str | None:
        await anyio.lowlevel.checkpoint()
        raise AssertionError(branch)

    async def delete_branch(self, branch: str, head: str) -> Removal:
        await anyio.lowlevel.checkpoint()
        raise AssertionError((branch, head))

    async def locate(self, issue_id: str, identifier: str) -> WorkspaceRecord:
        return WorkspaceRecord(
            issue_id=issue_id, identifier=identifier, key=identifier, path=Path("/workspaces") / identifier
        )

    def kept(self) -> tuple[KeptWorkspace, ...]:
        return ()

    async def remove(self, record: WorkspaceRecord) -> Removal:
        self.removed.append(record)
        await self.before_removal()
        return self.answer


@dataclass
class Mailbox:
    """What was posted, in order; `until` waits for a fact of a kind."""

    facts: list[Event] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)

    def post(self, item: Event | ActionRequest) -> None:
        self.facts.append(item.event if isinstance(item, ActionRequest) else item)
        self.changed.set()
        self.changed = anyio.Event()

    async def until(self, kind: type[F]) -> F:
        with anyio.fail_after(60):
            while True:
                for fact in self.facts:
                    if isinstance(fact, kind):
                        return fact
                await self.changed.wait()
        raise AssertionError("not reached")


def make_context(
    tmp_path: Path, tracker: FakeTracker, workspaces: FakeWorkspaces | None = None, *, more: str = "{}"
) -> RuntimeContext:
    """A context for `<tmp_path>/WORKFLOW.md`, with `more` settings in JSON; masks `SECRET`."""
    root = {"root": str(tmp_path / "root")}
    front = json.dumps({"tracker": {"kind": "markdown"}, "workspace": root, **json.loads(more)})
    data = f"---\n{front}\n---\nDo it.\n".encode()
    file = WorkflowFile(path=tmp_path / "WORKFLOW.md", data=data)
    workflow = parse_workflow(file, environment={}, tracker_kinds=("markdown",), agent_kinds=AGENT_SECTIONS)
    return RuntimeContext(
        workflow=workflow,
        active_states=("Todo", "In Progress"),
        terminal_states=("Done",),
        tracker=tracker,
        tools=tracker,
        workspaces=cast("WorkspaceManager", workspaces or FakeWorkspaces()),
        agents={"codex": cast("AgentBackend", None)},
        secret_names=frozenset(),
        redaction=Redaction([SECRET]),
    )


class StoryCore(Core):
    """A core whose state and context are those of a test at any time."""

    def __init__(
        self,
        place: Path = Path("/nowhere"),
        *,
        state: Callable[[], State | None] = lambda: None,
        context: Callable[[], RuntimeContext | None] = lambda: None,
        post: Callable[[Event | ActionRequest], None] = lambda _: None,
        now_ms: Callable[[], int] = lambda: 0,
        wall_ms: Callable[[], int] = lambda: 0,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._state, self._context = state, context
        super().__init__(
            state_dir=StateDirectory(place / "state"),
            environment=environment,
            post=post,
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    @property  # type: ignore[explicit-override]  # mypy does not see it where there is a setter
    def state(self) -> State | None:
        return self._state()

    @state.setter
    def state(self, _: State | None) -> None:
        pass

    @property  # type: ignore[explicit-override]  # mypy does not see it where there is a setter
    def context(self) -> RuntimeContext | None:
        return self._context()

    @context.setter
    def context(self, _: RuntimeContext | None) -> None:
        pass

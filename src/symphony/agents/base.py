"""The session interface that every agent backend implements (specification 10; AG22)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from symphony.agents.events import AgentEvent
from symphony.agents.isolation import Isolation
from symphony.domain.failures import Failure, SymphonyError
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.hosts.base import Host, Identity
from symphony.scheduler.inputs import Thread

__all__ = [
    "AgentBackend",
    "AgentError",
    "AgentSession",
    "Briefing",
    "Capabilities",
    "OwnSkillRoots",
    "Place",
    "Preflight",
    "SessionRequest",
    "Surroundings",
    "ToolRunner",
]

ToolRunner = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]


class AgentError(SymphonyError):
    """An agent could not be started, or broke its protocol; carries a `Failure` with blame `agent`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can do, so that nobody asks which backend it is.

    Attributes:
        system_block_at_start: the envelope becomes system-level text; else it stands before the first prompt.
        system_block_on_resume: a resumed thread is told the new envelope.
        client_tools: our tools are offered to the agent.
        absolute_usage: tokens are counted by totals of the thread; else per turn, or not at all.
        usage: tokens are counted.
        rate_limits: the agent tells how much of its allowance is used.
        sandbox: the agent confines its own commands as we ask it to.
        approvals: the agent asks before what its policy leaves open, and is answered.
        interrupt: a turn can be ended without ending the process.
        resume: a later process can go on with a thread.
    """

    system_block_at_start: bool
    client_tools: bool
    absolute_usage: bool
    sandbox: bool
    resume: bool
    system_block_on_resume: bool = False
    usage: bool = True
    rate_limits: bool = False
    approvals: bool = True
    interrupt: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every backend is made with.

    Attributes:
        host: where its processes run.
        environ: the daemon's variables, of which children get the allowed ones.
        secret_names: variables that no agent ever gets (AG20).
        homes: the directory in which each agent with `home: private` has one of its own, called by its name;
            made on demand, for this user alone, and never below the temp directory.
        isolation: what holds the processes of agents inside their workspaces; null for nothing of ours.
        grace_ms: bound of each step of the stop ladder.
    """

    host: Host
    environ: Mapping[str, str]
    secret_names: frozenset[str]
    homes: Path
    isolation: Isolation | None = None
    grace_ms: int = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSkillRoots:
    """Directories of skills that an agent lists to its model by itself; they need not exist.

    Attributes:
        workspace: relative to the session's workspace, with `/`.
        host: absolute, the same for every session. What the agent brings along itself is none of them.
    """

    workspace: tuple[str, ...] = ()
    host: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Briefing:
    """What a session is told and given at its start, besides its prompt.

    Attributes:
        envelope: the system-level text to add, or null when there is nothing to add.
        tools: client tools to advertise.
        own_skill_listing: the agent may list skills by itself, those that it brings along included.
    """

    envelope: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    own_skill_listing: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a session runs, as the disk showed it.

    Attributes:
        cwd: the workspace, absolute and without links; it is a directory.
        stderr_start: how much of the file for its stderr is of others, in bytes.
    """

    cwd: Path
    stderr_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """All that a session is bound to for its whole life (AG19).

    Attributes:
        run_id: travels to the child as `SYMPHONY_RUN_ID`, by which a successor finds it (DESIGN 10).
        cwd: the issue's workspace, checked by the caller to exist below the root.
        briefing: gives what the session is told and given; it may be in the making while the process starts,
            so ask for it as late as the agent's protocol allows, and once.
        run_tool: executes a tool of the briefing on our side.
        extra_env: variables to add to the allow-listed environment of the child.
        secret_names: variables that the child must never see, not even through a login profile (AG20).
        stderr_path: the file that receives the child's stderr.
        on_spawned: called with the child's identity as soon as it exists, before anything is sent to it.
        on_compacted: called when the agent has summed its conversation up, in order with the calls of tools:
            earlier than the event, which waits until somebody takes it.
        resume: the thread of an earlier session to go on with; for a backend that can. The envelope is told
            anew then: a thread remembers the one of its beginning.
        place: where it runs, as the caller has just seen it; null for the backend to look.
    """

    run_id: str
    cwd: Path
    briefing: Callable[[], Awaitable[Briefing]]
    run_tool: ToolRunner
    stderr_path: Path
    secret_names: frozenset[str] = frozenset()
    extra_env: Mapping[str, str] = field(default_factory=dict)
    on_spawned: Callable[[Identity], None] | None = None
    on_compacted: Callable[[], None] | None = None
    resume: Thread | None = None
    place: Place | None = None


class AgentSession(Protocol):
    """One live agent process with one thread; turns run on it one after the other."""

    @property
    def pid(self) -> int:
        """The agent's process id; 0 before the first turn of an agent that starts a process for each."""
        ...

    @property
    def resume_refused(self) -> Failure | None:
        """Why the thread asked for is not gone on with, which made the session a new one; else null."""
        ...

    def run_turn(self, prompt: str, *, title: str) -> AsyncIterator[AgentEvent]:
        """Run one turn and yield what happens; the last event is always `TurnEnded` or `InputRequired`.

        `title` is `<identifier>: <title>` of the issue.
        Reads no faster than the consumer takes events, which is the back-pressure on the agent.
        Safe to cancel at any await; call `stop` afterwards.

        Raises:
            AgentError: the session is unusable (process gone, silence, no answer to a request).
        """
        ...

    async def stop(self) -> tuple[AgentEvent, ...]:
        """The stop ladder: interrupt, close stdin, SIGTERM, SIGKILL, and a sweep of descendants (AG21).

        Returns what the agent had still written, so that final token totals are not lost. Idempotent; never
        raises; no process of the session is alive afterwards.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What was found before the first dispatch."""

    agent: str
    version: str
    notices: tuple[str, ...] = ()


class AgentBackend(Protocol):
    """Opens sessions of one agent kind with one configuration."""

    @property
    def capabilities(self) -> Capabilities:
        """What sessions of this backend can do."""
        ...

    @property
    def own_skill_roots(self) -> OwnSkillRoots:
        """Where sessions look for skills on their own; empty for an agent that knows none."""
        ...

    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Check binary, version, login and sandbox once before the first dispatch.

        `run_id` marks the processes of the check, as it marks those of a run.

        Raises:
            AgentError: category `codex_not_found`, `agent_auth` or `agent_preflight`, with a hint.
        """
        ...

    def open(self, request: SessionRequest) -> AbstractAsyncContextManager[AgentSession]:
        """Start the agent and its thread; leaving the context runs `stop`.

        Raises:
            AgentError: the agent did not start or did not answer in time.
        """
        ...

"""The session interface that every agent backend implements (specification 10; AG22)."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import anyio
from anyio import to_thread

from symphony.agents.events import AgentEvent, redact
from symphony.agents.isolation import Isolation
from symphony.config import AgentSection
from symphony.domain import Blame, Category, Failure, SymphonyError, ToolResult, ToolSpec
from symphony.processes.base import Host, Identity
from symphony.scheduler import Thread

ToolRunner = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
ListAgentSkills = Callable[[], Awaitable[frozenset[Path] | None]]
"""Asks an agent which SKILL.md files it lists to its model by itself; `None` where it does not say."""


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
class BackendContext:
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
class AgentSkillRoots:
    """Directories of skills that an agent lists to its model by itself; they need not exist.

    Attributes:
        workspace: relative to the session's workspace, with `/`.
        host: absolute, the same for every session. What the agent brings along itself is none of them.
    """

    workspace: tuple[str, ...] = ()
    host: tuple[Path, ...] = ()


async def cannot_list_skills() -> frozenset[Path] | None:
    """The `ListAgentSkills` of an agent that cannot be asked."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Briefing:
    """What a session is told and given at its start, besides its prompt.

    Attributes:
        envelope: the system-level text to add, or null when there is nothing to add.
        tools: client tools to advertise.
        agent_lists_skills: the agent may list skills by itself, those that it brings along included.
    """

    envelope: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    agent_lists_skills: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """All that a session is bound to for its whole life (AG19).

    Attributes:
        run_id: travels to the child as `SYMPHONY_RUN_ID`, by which a successor finds it (DESIGN 10).
        cwd: the issue's workspace, checked by the caller to exist below the root.
        briefing: gives what the session is told and given; it may be in the making while the process starts,
            so ask for it as late as the agent's protocol allows, and once. It may ask the agent which skills
            that lists by itself.
        run_tool: executes a tool of the briefing on our side.
        extra_env: variables to add to the allow-listed environment of the child.
        secret_names: variables that the child must never see, not even through a login profile (AG20).
        stderr_path: the file that receives the child's stderr.
        on_spawned: called with the child's identity as soon as it exists, before anything is sent to it.
        on_compacted: called when the agent has summed its conversation up, in order with the calls of tools:
            earlier than the event, which waits until somebody takes it.
        resume: the thread of an earlier session to go on with; for a backend that can. The envelope is told
            anew then: a thread remembers the one of its beginning.
    """

    run_id: str
    cwd: Path
    briefing: Callable[[ListAgentSkills], Awaitable[Briefing]]
    run_tool: ToolRunner
    stderr_path: Path
    secret_names: frozenset[str] = frozenset()
    extra_env: Mapping[str, str] = field(default_factory=dict)
    on_spawned: Callable[[Identity], None] | None = None
    on_compacted: Callable[[], None] | None = None
    resume: Thread | None = None


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

    @property
    def thread_id(self) -> str | None:
        """The conversation, known as soon as the session is open; `None` for an agent that remembers none."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingIssue:
    """One remark on one key: a phrase that follows the key's name, and what to do about it."""

    key: str
    problem: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingIssues:
    """What a person should know about the settings of an agent before anything runs.

    Attributes:
        errors: why no session could start.
        warnings: what the agent will probably refuse.
        no_sandbox: why nothing would confine sessions, or None.
    """

    errors: tuple[SettingIssue, ...] = ()
    warnings: tuple[SettingIssue, ...] = ()
    no_sandbox: SettingIssue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What an agent starts, and what is said when it is not there.

    Attributes:
        command: the shell command.
        key: where it is told, such as `codex.command`.
        missing: the category of its absence.
        hint: how to get it.
    """

    command: str
    key: str
    missing: Category
    hint: str


class AgentBackend(ABC):
    """Opens sessions of one agent kind with one configuration; an entry point leads to a subclass.

    Making one writes nothing to the disk. `agents.backend.ProcessBackend` is the base of agents that are
    programs.

    Attributes:
        settings_type: the model of the kind's section in WORKFLOW.md.
        client_tools: sessions are offered tools of ours, as `capabilities` says too.
        settings: of that type.
        context: host, environment and limits shared by all backends.
        name: what the workflow calls the agent.
    """

    settings_type: ClassVar[type[AgentSection]]
    client_tools: ClassVar[bool] = True

    def __init__(self, *, settings: Any, context: BackendContext, name: str) -> None:
        self.settings = settings
        self.context = context
        self.name = name

    @classmethod
    def check_settings(cls, settings: Any, *, isolated: bool) -> SettingIssues:
        """Judge settings that are well-formed; pure. `isolated`: `workspace.isolation` encloses sessions.

        Unless a subclass knows better, nothing but an isolation is between its sessions and this machine.
        """
        del settings
        problem = "runs without a sandbox of ours, as the user of the daemon"
        remark = SettingIssue(key="command", problem=problem, hint="set workspace.isolation: bwrap")
        return SettingIssues(no_sandbox=None if isolated else remark)

    @classmethod
    def program(cls, settings: Any, section: str) -> Program | None:
        """What would be started, for the section of that name; None where only the agent could tell."""
        del settings, section
        return None

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What sessions of this backend can do."""

    @property
    def skill_roots(self) -> AgentSkillRoots:
        """Where sessions look for skills on their own; empty for an agent that knows none."""
        return AgentSkillRoots()

    @abstractmethod
    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Check binary, version, login and sandbox once before the first dispatch.

        `run_id` marks the processes of the check, as it marks those of a run.

        Raises:
            AgentError: category `codex_not_found`, `agent_auth` or `agent_preflight`, with a hint.
        """

    @abstractmethod
    def open(self, request: SessionRequest) -> AbstractAsyncContextManager[AgentSession]:
        """Start the agent and its thread; leaving the context runs `stop`.

        Raises:
            AgentError: the agent did not start or did not answer in time.
        """


# The workspace of a session, judged before an agent is started in it (AG5).


async def resolve_workspace(cwd: Path) -> Path:
    """The workspace without links, checked to be a directory, since an agent may accept anything.

    Raises:
        AgentError: `invalid_workspace_cwd`.
    """
    return await to_thread.run_sync(_resolved, cwd)


def _resolved(cwd: Path) -> Path:
    try:
        resolved = cwd.resolve(strict=True)
        if cwd.is_absolute() and resolved.is_dir():
            return resolved
    except OSError as error:
        raise AgentError(_invalid_cwd(cwd)) from error
    raise AgentError(_invalid_cwd(cwd))


def _invalid_cwd(cwd: Path) -> Failure:
    return Failure(
        category=Category.INVALID_WORKSPACE_CWD,
        blame=Blame.WORKSPACE,
        message=redact(f"the workspace {cwd} is not an existing directory with an absolute path"),
    )


# How long an agent may be silent within a turn (AG9).


_OVERSLEPT_S = 10.0


@contextmanager
def silence_limit(limit_ms: int) -> Iterator[None]:
    """Bound one read of the agent's output: any output is a sign of life, so each read begins anew.

    A limit that is noticed far too late says that the machine slept, not that the agent was silent: the read
    is given up, and nothing is raised.

    Raises:
        AgentError: `turn_timeout`.
    """
    deadline = anyio.current_time() + limit_ms / 1000
    with anyio.move_on_at(deadline) as silence:
        yield
    if silence.cancelled_caught and anyio.current_time() - deadline < _OVERSLEPT_S:
        message = f"the agent has been silent for {limit_ms} ms"
        raise AgentError(Failure(category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message=message))


# The system-level text that we add to an agent's own (DESIGN 9): its optional parts, in their order.


def assemble(*, skills_block: str | None) -> str | None:
    """The envelope: the parts that exist, a blank line between two of them; null when there is none.

    Null means that nothing at all is sent, so that an agent without skills sees the same bytes as one whose
    skills are switched off.
    """
    parts = [part for part in (skills_block,) if part is not None and part.strip()]
    return "\n\n".join(parts) or None


def prepend_envelope(envelope: str | None, prompt: str) -> str:
    """The prompt with the envelope before it: the way that every agent takes, system-level text or not."""
    if envelope is None:
        return prompt
    return f"<system-context>\n{envelope}\n</system-context>\n\n{prompt}"

"""The session interface that every agent backend implements (specification section 10)."""

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import anyio
import msgspec
from msgspec import Struct

from symphony import to_thread
from symphony.agents.events import AgentEvent, redact
from symphony.agents.folders import AgentFolder
from symphony.agents.isolation import Isolation
from symphony.agents.secret_places import mode_of, named_secrets
from symphony.config import AgentSection
from symphony.domain import Blame, Category, Failure, SymphonyError, ToolResult, ToolSpec
from symphony.processes.base import MAX_OUTPUT_BYTES, Completed, Host, Identity
from symphony.scheduler import Thread

ToolRunner = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
ListAgentSkills = Callable[[], Awaitable[frozenset[Path] | None]]
"""Asks an agent which SKILL.md files it lists to its model by itself; `None` if it cannot tell."""

_SUSPEND_S = 10.0


class AgentError(SymphonyError):
    """An agent could not be started or broke its protocol; carries a `Failure`."""


class IsolationError(AgentError):
    """The isolation of an agent could not be made, so the agent has not begun; another try may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The abilities of a backend's sessions. Nothing else depends on the backend.

    Attributes:
        system_block_at_start: the envelope becomes system-level text; else it precedes the first prompt.
        system_block_on_resume: a resumed thread gets the new envelope.
        client_tools: the agent can call tools of the daemon.
        absolute_usage: token counts are totals of the thread; else they are per turn, or absent.
        usage: tokens are counted.
        rate_limits: the agent reports how much of its allowance is used.
        sandbox: the agent confines its own commands as configured.
        approvals: the agent asks before what its policy leaves open, and gets an answer.
        interrupt: a turn can be ended without ending the process.
        resume: a later process can continue a thread.
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


class BackendContext(Struct, frozen=True, kw_only=True):
    """The objects that all backends of a daemon share.

    Attributes:
        host: where their processes run.
        environ: the daemon's variables, of which children get the allowed ones.
        secret_names: variables that no agent ever gets.
        homes: the directory of private homes (`home: private`), one for each agent, named after it. Made on
            demand, for this user alone, and never below the temp directory.
        isolation: confines agents to their workspaces; None without `workspace.isolation`.
        grace_ms: limit of each step of the stop ladder.
    """

    host: Host
    environ: Mapping[str, str]
    secret_names: frozenset[str]
    homes: Path
    isolation: Isolation | None = None
    grace_ms: int = 3_000

    def readable_files(self, env: Mapping[str, str]) -> tuple[Path, ...]:
        """Return the files that variables of a child name for it, such as a cloud login; reads the disk."""
        given = {
            name: value for name, value in env.items() if name.removesuffix("_FILE") not in self.secret_names
        }
        return tuple(path for path in named_secrets(given) if stat.S_ISREG(mode_of(path)))


class AgentSkillRoots(Struct, frozen=True, kw_only=True):
    """Directories of skills that an agent lists to its model by itself; they need not exist.

    Attributes:
        workspace: relative to the session's workspace, with `/`.
        host: absolute, the same for every session. Skills that ship with the agent are not included.
    """

    workspace: tuple[str, ...] = ()
    host: tuple[Path, ...] = ()


async def cannot_list_skills() -> frozenset[Path] | None:
    """The `ListAgentSkills` of an agent that cannot be asked."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Briefing:
    """The texts and tools of a session at its start, besides its prompt.

    Attributes:
        envelope: the system-level text of the first turn, or None.
        tools: tools of the daemon to advertise.
        agent_lists_skills: the agent may list skills by itself, including those that it ships with.
    """

    envelope: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    agent_lists_skills: bool = True


class Envelope(Struct, frozen=True, kw_only=True):
    """The parts of the system-level text that Symphony adds, in their order.

    Attributes:
        phase: the phase of the work, or None.
        instructions: the composed instructions of the phase, or None.
        skills: the block that lists skills, or None.
    """

    phase: str | None = None
    instructions: str | None = None
    skills: str | None = None

    @property
    def text(self) -> str | None:
        """All parts, or None if there are none."""
        phase = None if self.phase is None else f"The phase of the work on this issue is {self.phase}."
        parts = (phase, self.instructions, self.skills)
        return "\n\n".join(part for part in parts if part) or None


class Turn(Struct, frozen=True, kw_only=True):
    """The input of an agent for one turn.

    Attributes:
        prompt: the task of the turn.
        title: `<identifier>: <title>` of the issue.
        number: 1 for the first turn of the session.
        envelope: the system-level text that holds from this turn on. A session has that of its briefing, and
            sends another one once, in the way in which its agent takes it. Without text nothing changes.
    """

    prompt: str
    title: str = ""
    number: int = 1
    envelope: Envelope = msgspec.field(default_factory=Envelope)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """The fixed parameters of a session.

    Attributes:
        run_id: passed to the child as `SYMPHONY_RUN_ID`, by which a later daemon finds it.
        cwd: the issue's workspace; the caller has checked that it is below the root.
        briefing: returns the briefing. It may be prepared while the process starts, so call it as late as
            the agent's protocol allows, and once.
        run_tool: executes a tool of the briefing in the daemon.
        stderr_path: the file that receives the child's stderr.
        secret_names: variables that the child must never see, not even through a login profile.
        extra_env: variables to add to the allow-listed environment of the child.
        on_spawned: called with the child's identity before anything is sent to it.
        on_compacted: called when the agent has summarised its conversation, in order with tool calls. The
            event comes later, when the consumer takes it.
        resume: the thread of an earlier session to continue, for a backend that can. It gets the envelope
            again: a thread remembers only the one of its beginning.
        decisions: by `InputRequired.request`, whether a person approved it. They precede `on_approval`.
        read_only: the session changes nothing in `cwd`, as far as the agent or an isolation can hold it to
            that.
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
    decisions: Mapping[str, bool] = field(default_factory=dict)
    read_only: bool = False


class AgentSession(Protocol):
    """A live agent process with one thread; turns run on it one after the other."""

    @property
    def pid(self) -> int:
        """The agent's process id; 0 before the first turn of an agent with one process per turn."""
        ...

    @property
    def resume_refused(self) -> Failure | None:
        """Why the session has a new thread instead of the requested one, or None."""
        ...

    @property
    def thread_id(self) -> str | None:
        """The thread, known once the session is open; None for an agent that has none."""
        ...

    def run_turn(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Run one turn and yield its events; the last one is `TurnEnd` or `InputRequired`.

        Reads no faster than the consumer takes events, which gives the agent back-pressure. Safe to cancel
        at any await; call `stop` afterwards.

        Raises:
            AgentError: the session is unusable: the process has ended, is silent, or does not answer.
        """
        ...

    async def stop(self) -> tuple[AgentEvent, ...]:
        """Run the stop ladder: interrupt, close stdin, SIGTERM, SIGKILL, sweep of descendants.

        Returns the agent's last events, to keep the final token totals. Idempotent; never
        raises; no process of the session is alive afterwards.
        """
        ...


@runtime_checkable
class WritesMessages(Protocol):
    """A session that knows its agent's message before it is complete."""

    @property
    def pending_message(self) -> str:
        """The message that the agent is writing, as far as it has come; empty if it writes none."""
        ...


@runtime_checkable
class RunsCommands(Protocol):
    """A backend that can run a shell command as a session would run it."""

    async def run_command(
        self,
        command: str,
        *,
        run_id: str,
        timeout_ms: int,
        cwd: Path | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        keep_end: bool = False,
    ) -> Completed:
        """Run it with the environment, the isolation and the limits of a session, and wait for it.

        Raises:
            AgentError: there is no environment for it.
            OSError: the shell cannot be started.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The result of the check before the first dispatch."""

    agent: str
    version: str
    notices: tuple[str, ...] = ()


class SettingIssue(Struct, frozen=True, kw_only=True):
    """An issue with one key: a phrase that follows the key's name, and what to do."""

    key: str
    problem: str
    hint: str


class SettingIssues(Struct, frozen=True, kw_only=True):
    """The result of the settings validation of an agent.

    Attributes:
        errors: why no session could start.
        warnings: what the agent will probably refuse.
        no_sandbox: why nothing would confine sessions, or None.
    """

    errors: tuple[SettingIssue, ...] = ()
    warnings: tuple[SettingIssue, ...] = ()
    no_sandbox: SettingIssue | None = None


class Program(Struct, frozen=True, kw_only=True):
    """The program that an agent needs.

    Attributes:
        command: the shell command that starts it.
        key: the key that names it, such as `codex.command`.
        category: the category of its absence.
        hint: how to install it.
    """

    command: str
    key: str
    category: Category
    hint: str


class AgentBackend(ABC):
    """Opens sessions of one agent kind with one configuration.

    An entry point of `symphony.agents` leads to a subclass. Making an instance writes nothing to the disk.
    `agents.backend.ProcessBackend` is the base of agents that are programs.

    Attributes:
        settings_type: the model of the kind's section in WORKFLOW.md.
        capabilities: those of the kind; an instance may have others, as its settings say.
        skill_roots: where sessions look for skills by themselves.
        settings: of type `settings_type`.
        context: shared with all backends.
        name: the name of the agent in the workflow.
        folders: what the agent keeps in the operator's home.
        home: the private home, which may not exist yet; None for the operator's.
        environ: the daemon's variables, of which children get the allowed ones. They lead to `home`.
    """

    settings_type: ClassVar[type[AgentSection]]
    capabilities: Capabilities
    skill_roots: AgentSkillRoots = AgentSkillRoots()
    folders: tuple[AgentFolder, ...] = ()
    home: Path | None = None

    def __init__(self, *, settings: Any, context: BackendContext, name: str) -> None:
        self.settings = settings
        self.context = context
        self.name = name
        self.environ = context.environ

    @classmethod
    def check_settings(cls, settings: Any, *, isolated: bool) -> SettingIssues:
        """Check well-formed settings; `isolated` says that `workspace.isolation` confines sessions.

        The default assumes that nothing but the isolation confines them.
        """
        del settings
        issue = SettingIssue(
            key="command",
            problem="runs without a sandbox of Symphony, as the user of the daemon",
            hint="set workspace.isolation: bwrap",
        )
        return SettingIssues(no_sandbox=None if isolated else issue)

    @classmethod
    def program(cls, settings: Any, section: str) -> Program | None:
        """Return the program that the settings name, for messages about this section; None if unknown."""
        del settings, section
        return None

    @classmethod
    def skill_places(cls, settings: Any) -> tuple[str, ...]:
        """Return the directories of a workspace, relative, whose skills the agent lists by itself."""
        del settings
        return ()

    @abstractmethod
    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Check program, version, login and sandbox once before the first dispatch.

        `run_id` marks the processes of the check.

        Raises:
            AgentError: category `codex_not_found`, `agent_not_found`, `agent_auth` or `agent_preflight`,
                with a hint.
        """

    @abstractmethod
    def open(self, request: SessionRequest) -> AbstractAsyncContextManager[AgentSession]:
        """Start the agent and its thread; leaving the context runs `stop`.

        Raises:
            AgentError: the agent did not start or did not answer in time; no process is left.
        """


async def resolve_workspace(cwd: Path) -> Path:
    """Return the workspace with links resolved. Agents themselves may accept any path.

    Raises:
        AgentError: `invalid_workspace_cwd`: it is not an existing directory with an absolute path.
    """

    def resolve() -> Path | None:
        try:
            resolved = cwd.resolve(strict=True)
        except OSError:
            return None
        return resolved if cwd.is_absolute() and resolved.is_dir() else None

    resolved = await to_thread.run_sync(resolve)
    if resolved is None:
        failure = Failure(
            category=Category.INVALID_WORKSPACE_CWD,
            blame=Blame.WORKSPACE,
            message=redact(f"the workspace {cwd} is not an existing directory with an absolute path"),
        )
        raise AgentError(failure)
    return resolved


async def resumed_elsewhere(told: str, cwd: Path) -> Failure | None:
    """Return why a resumed thread cannot be used, if the agent reports another directory than the workspace.

    Args:
        told: the directory that the agent reports; empty if it reports none.
        cwd: the workspace.
    """

    def is_elsewhere() -> bool:
        return os.path.realpath(told) != os.path.realpath(cwd)

    if not told or not await to_thread.run_sync(is_elsewhere):
        return None
    return Failure(
        category=Category.INVALID_WORKSPACE_CWD,
        blame=Blame.AGENT,
        message=redact(f"the resumed thread works in {told}, and the workspace is {cwd}"),
    )


@contextmanager
def silence_limit(limit_ms: int) -> Iterator[None]:
    """Limit one read of the agent's output. Any output ends the silence, so each read gets a new limit.

    If the limit is noticed far too late, this process was suspended, and the agent was not silent: the read
    is abandoned and nothing is raised.

    Raises:
        AgentError: `turn_timeout`.
    """
    deadline = anyio.current_time() + limit_ms / 1000
    with anyio.move_on_at(deadline) as scope:
        yield
    if scope.cancelled_caught and anyio.current_time() - deadline < _SUSPEND_S:
        message = f"the agent has been silent for {limit_ms} ms"
        raise AgentError(Failure(category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message=message))


def replacing_text(envelope: str) -> str:
    """Return an envelope for a conversation that holds an earlier one, which stays in it."""
    return f"The following text replaces your earlier instructions and skills.\n\n{envelope}"


def prepend_envelope(envelope: str | None, prompt: str) -> str:
    """Return the prompt behind the envelope, for agents without system-level text."""
    if envelope is None:
        return prompt
    return f"<system-context>\n{envelope}\n</system-context>\n\n{prompt}"

"""What agents that are programs have in common: command, variables, home, isolation, start (AG1, AG20)."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import anyio
from anyio import to_thread
from typing_extensions import override

from symphony.agents.base import AgentBackend, AgentError, BackendContext, Program, SessionRequest
from symphony.agents.environment import at_home, child_environment, foreign_keys, private_home
from symphony.agents.events import redact
from symphony.agents.process import AgentProcess, Launch, shell_argv
from symphony.config import AgentSection
from symphony.domain import Blame, Category, Failure
from symphony.processes.base import Completed, Identity

S = TypeVar("S", bound=AgentSection)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What differs from process to process of one agent.

    Attributes:
        run_id: travels to the child as `SYMPHONY_RUN_ID`.
        cwd: a directory that exists.
        stderr_path: the file that receives its stderr.
        arguments: what follows the command, a word each.
        variables: to add to the allow-listed ones.
        secret_names: variables that it never gets, besides those of the daemon and of other agents.
        on_spawned: called with its identity before anything is sent to it.
        writable: places of ours that an isolation must leave open for writing.
        readable: as `writable`, for reading.
    """

    run_id: str
    cwd: Path
    stderr_path: Path
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    secret_names: frozenset[str] = frozenset()
    on_spawned: Callable[[Identity], None] | None = None
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()

    @classmethod
    def for_session(cls, request: SessionRequest, cwd: Path) -> "LaunchOptions":
        """The start of a session."""
        return cls(
            run_id=request.run_id,
            cwd=cwd,
            stderr_path=request.stderr_path,
            variables=request.extra_env,
            secret_names=request.secret_names,
            on_spawned=request.on_spawned,
        )

    @classmethod
    def for_check(cls, run_id: str, place: Path) -> "LaunchOptions":
        """The start of a check in a directory of its own."""
        return cls(run_id=run_id, cwd=place, stderr_path=place / "stderr.log")


class ProcessBackend(AgentBackend, Generic[S]):
    """Starts `command` on one host with one environment; a kind fills in what is its own.

    Attributes:
        missing: the category of a program that is not there.
        command: the shell command.
        home: its private home, which may not exist yet; None for the operator's.
        environ: the daemon's variables, of which children get the allowed ones; they lead to `home`.

    Raises:
        AgentError: `invalid_workflow_config`: no session could start with these settings.
    """

    missing: ClassVar[Category] = Category.AGENT_NOT_FOUND
    settings: S

    def __init__(self, *, settings: S, context: BackendContext, name: str) -> None:
        command = self.command_of(settings)
        wrong = self.check_settings(settings, isolated=True).errors
        if wrong or command is None:
            told = "; ".join(f"{remark.key} {remark.problem}" for remark in wrong)
            raise AgentError(
                Failure(
                    category=Category.INVALID_WORKFLOW_CONFIG,
                    blame=Blame.CONFIG,
                    message=f"agent {name}: {told or 'command is required'}",
                    retryable=False,
                    hint="; ".join(remark.hint for remark in wrong) or None,
                )
            )
        super().__init__(settings=settings, context=context, name=name)
        self.command = command
        self.home = context.homes / name if settings.home == "private" else None
        self.environ = context.environ
        if self.home is not None:
            self.environ = {**at_home(context.environ, self.home), **self.home_variables(self.home)}

    # --- what a kind fills in -----------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def command_of(cls, settings: S) -> str | None:
        """The shell command; None where the settings lack one."""

    @classmethod
    @abstractmethod
    def install_hint_of(cls, settings: S) -> str:
        """What to do when the program is not there."""

    @property
    def variables(self) -> frozenset[str]:
        """Names of the daemon's variables that the agent needs, besides those that the settings name."""
        return frozenset()

    async def own_variables(self) -> frozenset[str]:
        """Names of all variables that are the agent's own; keys of other agents are none of them."""
        return self.variables | frozenset(self.settings.env)

    @property
    def fixed_variables(self) -> Mapping[str, str]:
        """Variables that every process of the agent is given."""
        return {}

    def home_variables(self, home: Path) -> Mapping[str, str]:
        """Variables that lead the agent to its private home, besides `HOME`."""
        del home
        return {}

    def make_home(self) -> None:
        """Make the private home with what belongs in it, where that is missing; blocking.

        Raises:
            AgentError: `state_directory`.
        """
        private_home(self.context, self.name)

    @property
    def state_paths(self) -> tuple[str, ...]:
        """Where the agent keeps its login and its sessions, below the operator's home."""
        return ()

    def written_places(self, environ: Mapping[str, str]) -> tuple[Path, ...]:
        """Where processes with these variables write to besides the workspace; they need not exist."""
        if self.home is not None:
            return (self.home,)
        operator = environ.get("HOME")
        return tuple(Path(operator, name) for name in self.state_paths) if operator else ()

    # --- what all of them do ------------------------------------------------------------------------------

    @override
    @classmethod
    def program(cls, settings: S, section: str) -> Program | None:
        command = cls.command_of(settings)
        if command is None:
            return None
        hint = cls.install_hint_of(settings)
        return Program(command=command, key=f"{section}.command", missing=cls.missing, hint=hint)

    @property
    def install_hint(self) -> str:
        """What to do when the program is not there."""
        return self.install_hint_of(self.settings)

    async def start(self, start: LaunchOptions) -> AgentProcess:
        """Start one process; makes the private home where there is one.

        Whether the shell finds the program, only its first words tell.

        Raises:
            AgentError: `missing`: not even the shell can be started; `state_directory`: there can be no home.
        """
        env, secrets = await self._environment(start)
        isolation = self.context.isolation
        if isolation is not None:
            writable = (*self.written_places(env), *start.writable)
            isolation = isolation.reaching(writable=writable, readable=start.readable)
        launch = Launch(
            command=self.command,
            arguments=start.arguments,
            cwd=start.cwd,
            env=env,
            stderr_path=start.stderr_path,
            secret_names=secrets,
            on_spawned=start.on_spawned,
            isolation=isolation,
        )
        try:
            return await AgentProcess.start(self.context.host, launch, grace_ms=self.context.grace_ms)
        except OSError as error:
            failure = Failure(
                category=self.missing,
                blame=Blame.CONFIG,
                message=redact(f"the agent could not be started: {error}"),
                hint=f"bash must be on PATH; {self.install_hint}",
            )
            raise AgentError(failure) from error

    @asynccontextmanager
    async def running(self, start: LaunchOptions) -> AsyncIterator[AgentProcess]:
        """A process that is ended with all its descendants when the context is left. Raises as `start`."""
        process = await self.start(start)
        try:
            yield process
        finally:
            with anyio.CancelScope(shield=True):
                await process.stop(lambda _: None)

    async def ask(
        self,
        command: str,
        *,
        run_id: str,
        timeout_ms: int,
        cwd: Path | None = None,
        arguments: tuple[str, ...] = (),
    ) -> Completed:
        """Run a short shell command, with the variables of a session and no isolation.

        Raises:
            AgentError: `state_directory`.
            OSError: the shell cannot be started.
        """
        where = Path() if cwd is None else cwd
        env, secrets = await self._environment(LaunchOptions.for_check(run_id, where))
        argv = shell_argv(command, secrets, search_path=env.get("PATH"), arguments=arguments)
        return await self.context.host.run(argv, cwd=cwd, env=env, timeout_ms=timeout_ms)

    async def _environment(self, start: LaunchOptions) -> tuple[dict[str, str], frozenset[str]]:
        """The variables of a process, and the names of those that it must never see."""
        moved: Mapping[str, str] = {}
        if self.home is not None:
            await to_thread.run_sync(self.make_home)
            moved = self.home_variables(self.home)
        own = await self.own_variables()
        secrets = self.context.secret_names | foreign_keys(own) | start.secret_names
        env = child_environment(
            self.environ,
            run_id=start.run_id,
            agent_names=own,
            extra={**self.fixed_variables, **moved, **start.variables},
            secret_names=secrets,
        )
        return env, secrets

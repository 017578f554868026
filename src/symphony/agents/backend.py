"""`ProcessBackend`: the common base of agents that are programs.

It has their command, variables, private home, isolation and start (specification section 10.1).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import anyio
from typing_extensions import override

from symphony import to_thread
from symphony.agents.base import AgentBackend, AgentError, BackendContext, Program, SessionRequest
from symphony.agents.environment import ALL_CREDENTIALS, child_environment, private_environment, private_home
from symphony.agents.events import redact
from symphony.agents.folders import located
from symphony.agents.isolation import TRIES, Isolation, has_failed
from symphony.agents.process import AgentProcess, Launch, shell_argv
from symphony.config import AgentSection
from symphony.domain import Blame, Category, Failure
from symphony.processes.base import MAX_OUTPUT_BYTES, Completed, Identity

S = TypeVar("S", bound=AgentSection)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The parameters of one process of an agent.

    Attributes:
        run_id: passed to the child as `SYMPHONY_RUN_ID`.
        cwd: an existing directory.
        stderr_path: the file that receives its stderr.
        arguments: follow the command, one word each.
        variables: added to the allow-listed ones.
        secret_names: variables that it never gets, besides those of the daemon and keys of other agents.
        on_spawned: called with its identity before anything is sent to it.
        writable: paths that an isolation must leave writable.
        readable: paths that an isolation must leave readable.
        keeps_threads: an isolation lets it write to the threads in the operator's home.
        read_only: an isolation keeps it from writing to `cwd`.
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
    keeps_threads: bool = True
    read_only: bool = False

    @classmethod
    def for_session(cls, request: SessionRequest, cwd: Path) -> "LaunchOptions":
        """Return the options of a session's process."""
        return cls(
            run_id=request.run_id,
            cwd=cwd,
            stderr_path=request.stderr_path,
            variables=request.extra_env,
            secret_names=request.secret_names,
            on_spawned=request.on_spawned,
            read_only=request.read_only,
        )

    @classmethod
    def for_check(cls, run_id: str, cwd: Path) -> "LaunchOptions":
        """Return the options of a preflight's process."""
        return cls(run_id=run_id, cwd=cwd, stderr_path=cwd / "stderr.log", keeps_threads=False)


class ProcessBackend(AgentBackend, Generic[S]):
    """Starts the command of the settings with one environment. A kind sets what differs.

    Attributes:
        not_found: the category of a missing program.
        install_hint: what to do when the program is missing.
        variables: names of the daemon's variables that the agent needs, besides those in the key `env`.
        fixed_variables: variables that every process of the agent gets.
        command: the shell command.

    Raises:
        AgentError: `invalid_workflow_config`: no session could start with these settings.
    """

    not_found: ClassVar[Category] = Category.AGENT_NOT_FOUND
    install_hint: str = "see that the command names a program that the daemon's login shell finds"
    variables: frozenset[str] = frozenset()
    fixed_variables: Mapping[str, str] = {}
    settings: S

    def __init__(self, *, settings: S, context: BackendContext, name: str) -> None:
        program = self.program(settings, name)
        errors = self.check_settings(settings, isolated=True).errors
        if errors or program is None:
            problems = "; ".join(f"{issue.key} {issue.problem}" for issue in errors)
            failure = Failure(
                category=Category.INVALID_WORKFLOW_CONFIG,
                blame=Blame.CONFIG,
                message=f"agent {name}: {problems or 'command is required'}",
                retryable=False,
                hint="; ".join(issue.hint for issue in errors) or None,
            )
            raise AgentError(failure)
        super().__init__(settings=settings, context=context, name=name)
        self.command = program.command
        self.install_hint = program.hint
        self.home = context.homes / name if settings.home == "private" else None
        if self.home is not None:
            self.environ = {
                **private_environment(context.environ, self.home),
                **self.home_variables(self.home),
            }

    @override
    @classmethod
    def program(cls, settings: S, section: str) -> Program | None:
        return cls._program(getattr(settings, "command", None), cls.install_hint, section)

    @classmethod
    def _program(cls, command: str | None, hint: str, section: str) -> Program | None:
        if command is None:
            return None
        return Program(command=command, key=f"{section}.command", category=cls.not_found, hint=hint)

    async def own_variables(self) -> frozenset[str]:
        """Return the names of the daemon's variables that the agent gets, keys included."""
        return self.variables | frozenset(self.settings.env)

    def home_variables(self, home: Path) -> Mapping[str, str]:
        """Return the variables that lead the agent to its private home, besides `HOME`."""
        del home
        return {}

    def make_home(self) -> None:
        """Make the private home and its missing files; blocking.

        Raises:
            AgentError: `state_directory`.
        """
        private_home(self.context, self.name)

    async def start(self, options: LaunchOptions) -> AgentProcess:
        """Start one process; make the private home first if there is one.

        The start succeeds even if the shell does not find the program: the end of its output shows that.

        Raises:
            AgentError: `not_found`: not even the shell can be started; `state_directory`: there is no home.
        """
        env, secrets = await self._environment(options)
        launch = Launch(
            command=self.command,
            arguments=options.arguments,
            cwd=options.cwd,
            env=env,
            stderr_path=options.stderr_path,
            secret_names=secrets,
            on_spawned=options.on_spawned,
            isolation=await self._isolation(env, options),
        )
        try:
            return await AgentProcess.start(self.context.host, launch, grace_ms=self.context.grace_ms)
        except OSError as error:
            failure = Failure(
                category=self.not_found,
                blame=Blame.CONFIG,
                message=redact(f"the agent could not be started: {error}"),
                hint=f"bash must be on PATH; {self.install_hint}",
            )
            raise AgentError(failure) from error

    @asynccontextmanager
    async def running(self, options: LaunchOptions) -> AsyncIterator[AgentProcess]:
        """A process that is ended with all its descendants when the context is left. Raises as `start`."""
        process = await self.start(options)
        try:
            yield process
        finally:
            with anyio.CancelScope(shield=True):
                await process.stop()

    async def run_command(
        self,
        command: str,
        *,
        run_id: str,
        timeout_ms: int,
        cwd: Path | None = None,
        arguments: tuple[str, ...] = (),
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        keep_end: bool = False,
    ) -> Completed:
        """Run a shell command as a session would run it: an agent can write to the profile of its home.

        Raises:
            AgentError: `state_directory`.
            OSError: the shell cannot be started.
        """
        options = LaunchOptions.for_check(run_id, cwd or Path("/"))
        env, secrets = await self._environment(options)
        argv = shell_argv(command, secrets, search_path=env.get("PATH"), arguments=arguments)
        run = partial(
            self.context.host.run,
            cwd=cwd,
            env=env,
            timeout_ms=timeout_ms,
            max_output_bytes=max_output_bytes,
            keep_end=keep_end,
        )
        if (isolation := await self._isolation(env, options)) is None:
            return await run(argv)
        return await _run_confined(run, partial(isolation.wrap, argv, cwd=options.cwd))

    async def _isolation(self, env: Mapping[str, str], options: LaunchOptions) -> Isolation | None:
        """Return what confines a process with these variables.

        In the operator's home an agent has a version of its folders for itself.
        """
        isolation = self.context.isolation
        if isolation is None:
            return None
        home = () if self.home is None else (self.home,)

        def allowing() -> Isolation:
            folders = () if home else located(self.folders, env, options.cwd)
            return replace(isolation, read_only=options.read_only).allowing(
                writable=(*home, *options.writable),
                folders=[each if options.keeps_threads else each.without_threads() for each in folders],
                readable=(*self.context.readable_files(env), *options.readable),
            )

        return await to_thread.run_sync(allowing)

    async def _environment(self, options: LaunchOptions) -> tuple[dict[str, str], frozenset[str]]:
        """Return the variables of a process, and the names of those that it must never see."""
        home_variables: Mapping[str, str] = {}
        if self.home is not None:
            await to_thread.run_sync(self.make_home)
            home_variables = self.home_variables(self.home)
        elif self.context.isolation is not None:
            home_variables = {name: value for each in self.folders for name, value in each.variables.items()}
        own = await self.own_variables()
        secrets = self.context.secret_names | (ALL_CREDENTIALS - own) | options.secret_names
        env = child_environment(
            self.environ,
            run_id=options.run_id,
            agent_names=own,
            extra={**self.fixed_variables, **home_variables, **options.variables},
            secret_names=secrets,
        )
        return env, secrets


_MAX_OUTPUT_BYTES = 64 * 1024


async def run_as_agent(
    backend: AgentBackend,
    command: str,
    *,
    run_id: str,
    cwd: Path,
    timeout_ms: int,
    variables: Mapping[str, str],
    repositories: tuple[Path, ...] = (),
) -> Completed:
    """Run a shell command with the environment, the home and the isolation of an agent.

    It gets what the key `env` of the agent names, and no key of a model unless that names it. The agent's
    folders in the operator's home stay closed: a command needs no login.

    Args:
        backend: the agent.
        command: the shell command.
        run_id: marks its processes.
        cwd: an existing directory, the only place besides a private home that it may write to.
        timeout_ms: how long it may take.
        variables: added to the environment.
        repositories: git directories that it may read.

    Raises:
        OSError: it cannot be started.
    """
    context, names = backend.context, frozenset(backend.settings.env)
    secrets = context.secret_names | (ALL_CREDENTIALS - names)
    env = child_environment(
        backend.environ, run_id=run_id, agent_names=names, extra=variables, secret_names=secrets
    )
    argv = shell_argv(command, secrets, search_path=env.get("PATH"))

    def confined() -> tuple[str, ...]:
        if context.isolation is None:
            return argv
        isolation = context.isolation.allowing(
            writable=() if backend.home is None else (backend.home,),
            readable=(*context.readable_files(env), *repositories),
            repositories=repositories,
        )
        return isolation.wrap(argv, cwd=cwd)

    run = partial(
        context.host.run, cwd=cwd, env=env, timeout_ms=timeout_ms, max_output_bytes=_MAX_OUTPUT_BYTES
    )
    return await _run_confined(run, confined)


async def _run_confined(
    run: Callable[[tuple[str, ...]], Awaitable[Completed]], confined: Callable[[], tuple[str, ...]]
) -> Completed:
    """Run a confined command, and confine it again if bubblewrap has failed."""
    for _ in range(TRIES - 1):
        done = await run(await to_thread.run_sync(confined))
        if not has_failed(done.exit_code, done.stderr.decode("utf-8", "replace")):
            return done
    return await run(await to_thread.run_sync(confined))

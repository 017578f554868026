"""Starts the processes of a one-shot agent: command, variables, private home, isolation (AG1, AG20)."""

from collections.abc import Collection, Mapping
from pathlib import Path

from anyio import to_thread

from symphony.agents.base import SessionRequest, Surroundings
from symphony.agents.command.placeholders import VARIABLES, filled
from symphony.agents.command.profiles import Profile
from symphony.agents.environment import child_environment
from symphony.agents.homes import at_home, private_home
from symphony.agents.isolation import Isolation
from symphony.agents.keys import foreign_keys
from symphony.agents.process import AgentProcess, Launch
from symphony.agents.program import start_program
from symphony.domain.failures import Category
from symphony.workflow.settings import CommandSettings

__all__ = ["Launcher"]


class Launcher:
    """Starts one agent, called `name` in the workflow, by one configuration."""

    def __init__(
        self, *, around: Surroundings, name: str, settings: CommandSettings, profile: Profile, command: str
    ) -> None:
        self.around = around
        self._name = name
        self._settings = settings
        self._profile = profile
        self._command = filled(command)
        self._own = profile.variables | frozenset(settings.env)

    @property
    def secrets(self) -> frozenset[str]:
        """What no process gets: the secrets of the daemon, and the keys of other agents."""
        return self.around.secret_names | foreign_keys(self._own)

    async def start(
        self, request: SessionRequest, *, cwd: Path, values: Mapping[str, str], papers: Path
    ) -> AgentProcess:
        """Start the process of a turn in `cwd`, which exists; `values` are those of the placeholders.

        Raises:
            AgentError: `agent_not_found`, when not even the shell can be started; `state_directory`, when
                there can be no private home.
        """
        around, home = self.around, await self.home()
        secrets = self.secrets | request.secret_names
        told = {VARIABLES[name]: value for name, value in values.items()}
        launch = Launch(
            command=self._command,
            cwd=cwd,
            env=self.environment(
                request.run_id, home, extra={**request.extra_env, **told}, secret_names=secrets
            ),
            stderr_path=request.stderr_path,
            secret_names=secrets,
            on_spawned=request.on_spawned,
            isolation=self._isolation(home, papers),
        )
        return await start_program(
            around.host,
            launch,
            grace_ms=around.grace_ms,
            missing=Category.AGENT_NOT_FOUND,
            install_hint=self._profile.install_hint,
        )

    async def home(self) -> Path | None:
        """The private home, made if need be; null for the operator's. Raises `AgentError`."""
        if self._settings.home != "private":
            return None
        return await to_thread.run_sync(private_home, self.around, self._name)

    def environment(
        self,
        run_id: str,
        home: Path | None,
        *,
        extra: Mapping[str, str] | None = None,
        secret_names: Collection[str] = (),
    ) -> dict[str, str]:
        """The variables of a process: the allowed ones, and those that the profile and the operator name."""
        around = self.around
        return child_environment(
            around.environ if home is None else at_home(around.environ, home),
            run_id=run_id,
            agent_names=self._own,
            extra=extra,
            secret_names=secret_names,
        )

    def _isolation(self, home: Path | None, papers: Path) -> Isolation | None:
        held = self.around.isolation
        if held is None:
            return None
        return held.reaching(writable=self._kept_at(home), readable=[papers])

    def _kept_at(self, home: Path | None) -> list[Path]:
        """Where the agent keeps what it keeps."""
        if home is not None:
            return [home]
        operator = self.around.environ.get("HOME")
        return [] if not operator else [Path(operator, name) for name in self._profile.state_paths]

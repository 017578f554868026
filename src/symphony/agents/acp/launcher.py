"""Starts agents of a profile: command, variables, private home, isolation (AG1, AG20)."""

from collections.abc import Callable, Mapping
from pathlib import Path

from anyio import to_thread

from symphony.agents.acp import params
from symphony.agents.acp.profiles import Profile
from symphony.agents.base import AgentError, Surroundings
from symphony.agents.environment import child_environment
from symphony.agents.homes import at_home, private_home
from symphony.agents.isolation import Isolation
from symphony.agents.keys import foreign_keys
from symphony.agents.process import AgentProcess, Launch
from symphony.agents.program import start_program
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure
from symphony.hosts.base import Identity
from symphony.workflow.settings import AcpSettings

__all__ = ["Launcher"]


class Launcher:
    """Starts one agent, called `name` in the workflow, by one configuration."""

    def __init__(
        self, *, around: Surroundings, name: str, settings: AcpSettings, profile: Profile, command: str
    ) -> None:
        self.around = around
        self.command = command
        self._name = name
        self._private = settings.home == "private"
        self._profile = profile

    async def start(
        self,
        *,
        run_id: str,
        cwd: Path,
        stderr_path: Path,
        envelope_file: Path | None = None,
        reachable: tuple[Path, ...] = (),
        extra_env: Mapping[str, str] | None = None,
        secret_names: frozenset[str] = frozenset(),
        on_spawned: Callable[[Identity], None] | None = None,
        stderr_start: int | None = None,
    ) -> AgentProcess:
        """Start one process in `cwd`, which exists; `reachable` are places of ours that it needs.

        Raises:
            AgentError: `agent_not_found`, when not even the shell can be started; `state_directory`, when
                there can be no private home.
        """
        around, names = self.around, self._profile.variables
        secrets = around.secret_names | secret_names | foreign_keys(names)
        home = await to_thread.run_sync(self._home) if self._private else None
        launch = Launch(
            command=self.command,
            cwd=cwd,
            env=child_environment(
                around.environ if home is None else at_home(around.environ, home),
                run_id=run_id,
                agent_names=names,
                extra={**self._values(cwd, home, envelope_file), **(extra_env or {})},
                secret_names=secrets,
            ),
            stderr_path=stderr_path,
            secret_names=secrets,
            on_spawned=on_spawned,
            stderr_start=stderr_start,
            isolation=self._isolation(home, reachable),
        )
        return await start_program(
            around.host,
            launch,
            grace_ms=around.grace_ms,
            missing=Category.AGENT_NOT_FOUND,
            install_hint=self._profile.install_hint,
        )

    def _home(self) -> Path:
        """The private home with what a profile wants to find in it; blocking."""
        home = private_home(self.around, self._name, outside_temp=self._profile.home_outside_temp)
        for name, text in self._profile.home_files.items():
            file = home / name
            try:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not file.exists():
                    file.write_text(text, "utf-8")
            except OSError as error:
                raise AgentError(self._no_home(file, error)) from error
        return home

    def _values(self, cwd: Path, home: Path | None, envelope_file: Path | None) -> dict[str, str]:
        profile = self._profile
        moved = {} if home is None else params.filled(profile.home_variables, "home", str(home))
        values = {**profile.env_values, **moved}
        if profile.config is not None:
            variable, template = profile.config
            told = (
                {} if envelope_file is None else params.filled(template, "envelope_file", str(envelope_file))
            )
            always = params.filled(profile.config_always, "workspace", str(cwd))
            given = profile.env_values.get(variable) or self.around.environ.get(variable)
            values[variable] = params.config_value(always, told, given=given)
        return values

    def _isolation(self, home: Path | None, reachable: tuple[Path, ...]) -> Isolation | None:
        held = self.around.isolation
        if held is None:
            return None
        return held.reaching(writable=(*self._kept_at(home), *reachable))

    def _kept_at(self, home: Path | None) -> tuple[Path, ...]:
        """Where the agent keeps its login and its sessions."""
        if home is not None:
            return (home,)
        operator = self.around.environ.get("HOME")
        if not operator:
            return ()
        places = (Path(operator) / name for name in self._profile.state_paths)
        return tuple(place for place in places if place.exists())

    def _no_home(self, file: Path, error: OSError) -> Failure:
        return Failure(
            category=Category.STATE_DIRECTORY,
            blame=Blame.HOST,
            message=redact(f"the agent's home cannot be furnished: {file}: {error.strerror}"),
            retryable=False,
            hint="make the state directory writable",
        )

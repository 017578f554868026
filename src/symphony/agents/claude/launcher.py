"""Starts Claude Code: its variables and its home, and what it means when it does not start (AG1, AG20)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from symphony.agents.base import Surroundings
from symphony.agents.claude.errors import INSTALL_HINT, login_hint
from symphony.agents.claude.home import CLAUDE_VARIABLES, FIXED, written_places
from symphony.agents.environment import child_environment
from symphony.agents.homes import at_home, private_home
from symphony.agents.keys import foreign_keys
from symphony.agents.process import AgentProcess, Launch
from symphony.agents.program import start_program
from symphony.domain.failures import Category
from symphony.hosts.base import Identity
from symphony.workflow.settings import ClaudeSettings

__all__ = ["Launcher", "Start"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What differs from process to process; `reachable` is what an isolation must leave open for writing."""

    run_id: str
    cwd: Path
    stderr_path: Path
    arguments: tuple[str, ...] = ()
    extra_env: Mapping[str, str] | None = None
    secret_names: frozenset[str] = frozenset()
    on_spawned: Callable[[Identity], None] | None = None
    stderr_start: int | None = None
    reachable: tuple[Path, ...] = ()


class Launcher:
    """Starts `claude.command` for the agent called `name`; `around` says where."""

    def __init__(self, settings: ClaudeSettings, around: Surroundings, name: str) -> None:
        self.around = around
        self._settings = settings
        self._name = name
        self._home = around.homes / name if settings.home == "private" else None
        self._own = CLAUDE_VARIABLES | frozenset(settings.env)

    @property
    def secret_names(self) -> frozenset[str]:
        """What no process of this agent gets: the secrets of the daemon, and the keys of other agents."""
        return self.around.secret_names | foreign_keys(self._own)

    @property
    def login_hint(self) -> str:
        """How a person logs the agent in, where it lives."""
        return login_hint(self._home)

    async def environment(
        self,
        run_id: str,
        *,
        extra: Mapping[str, str] | None = None,
        secret_names: Collection[str] = (),
    ) -> dict[str, str]:
        """The variables of a process (AG20); makes its private home where it has one.

        What `claude.env` names is the operator's, ours included.

        Raises:
            AgentError: `state_directory`: the home cannot be made.
        """
        environ = dict(self.around.environ)
        ours = {name: value for name, value in FIXED.items() if name not in self._settings.env}
        if self._home is not None:
            await to_thread.run_sync(private_home, self.around, self._name)
            environ = at_home(environ, self._home)
            ours["CLAUDE_CONFIG_DIR"] = str(self._home)
        if self.around.isolation is not None:
            ours["IS_SANDBOX"] = "1"  # else root may not bypass permissions, even where that is harmless
        return child_environment(
            environ,
            run_id=run_id,
            agent_names=self._own,
            extra={**ours, **(extra or {})},
            secret_names=self.secret_names | set(secret_names),
        )

    async def start(self, start: Start) -> AgentProcess:
        """Start one process in a directory that exists.

        Raises:
            AgentError: `agent_not_found`, when not even the shell can be started; `state_directory`.
        """
        env = await self.environment(start.run_id, extra=start.extra_env, secret_names=start.secret_names)
        isolation = self.around.isolation
        if isolation is not None:
            isolation = isolation.reaching(writable=(*written_places(env), *start.reachable))
        launch = Launch(
            command=self._settings.command,
            arguments=start.arguments,
            cwd=start.cwd,
            env=env,
            stderr_path=start.stderr_path,
            secret_names=self.secret_names | start.secret_names,
            on_spawned=start.on_spawned,
            stderr_start=start.stderr_start,
            isolation=isolation,
        )
        return await start_program(
            self.around.host,
            launch,
            grace_ms=self.around.grace_ms,
            missing=Category.AGENT_NOT_FOUND,
            install_hint=INSTALL_HINT,
        )

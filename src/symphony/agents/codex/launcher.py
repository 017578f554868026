"""Starts app-server processes: their variables, and what it means when they do not start (AG1, AG20)."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anyio import to_thread

from symphony.agents.base import Surroundings
from symphony.agents.codex.drift import SCHEMAS
from symphony.agents.codex.errors import INSTALL_HINT, LOGIN_HINT, login_hint
from symphony.agents.codex.home import (
    CODEX_VARIABLES,
    CREDENTIAL_VARIABLES,
    codex_home,
    provider_variables,
    settle,
)
from symphony.agents.environment import child_environment
from symphony.agents.homes import at_home
from symphony.agents.isolation import Isolation
from symphony.agents.keys import foreign_keys
from symphony.agents.process import AgentProcess, Launch, shell_argv
from symphony.agents.program import start_program
from symphony.domain.failures import Category
from symphony.hosts.base import Identity
from symphony.workflow.settings import CodexSettings

__all__ = ["Launcher"]

_CONFIG_TIMEOUT_MS = 5_000
_SCHEMAS_TIMEOUT_MS = 15_000


class Launcher:
    """Starts `codex.command` on one host with one environment.

    Attributes:
        host: where processes run.
        environ: the daemon's variables, of which children get the allowed ones; with `home: private` they
            lead to that home.
        secret_names: variables that no child ever gets.
        grace_ms: bound of each step of the stop ladder.
    """

    def __init__(self, *, settings: CodexSettings, around: Surroundings, name: str) -> None:
        self.host = around.host
        self.secret_names = around.secret_names
        self.grace_ms = around.grace_ms
        self.environ = around.environ
        self._private = settings.home == "private"
        if self._private:
            home = around.homes / name
            self.environ = {**at_home(around.environ, home), "CODEX_HOME": str(home)}
        self._around = around
        self._name = name
        self._command = settings.command
        self._asked = frozenset(settings.env)
        self._home_made = False
        self._provider_names: frozenset[str] | None = None

    @property
    def login_hint(self) -> str:
        """How a person logs the agent in, where it lives."""
        return login_hint(self.environ["CODEX_HOME"]) if self._private else LOGIN_HINT

    async def start(
        self,
        *,
        run_id: str,
        cwd: Path,
        stderr_path: Path,
        extra_env: Mapping[str, str] | None = None,
        secret_names: frozenset[str] = frozenset(),
        on_spawned: Callable[[Identity], None] | None = None,
        stderr_start: int | None = None,
    ) -> AgentProcess:
        """Start one process in `cwd`, which exists; for `stderr_start` see `Launch`.

        Raises:
            AgentError: `codex_not_found`, when not even the shell can be started; `state_directory`, when a
                private home cannot be made.
        """
        await self._settle()
        secrets = await self._secrets() | secret_names
        env = await self._environment(run_id, extra_env or {}, secrets)
        launch = Launch(
            command=self._command,
            cwd=cwd,
            env=env,
            stderr_path=stderr_path,
            secret_names=secrets,
            on_spawned=on_spawned,
            stderr_start=stderr_start,
            isolation=self._isolation(),
        )
        return await start_program(
            self.host,
            launch,
            grace_ms=self.grace_ms,
            missing=Category.CODEX_NOT_FOUND,
            install_hint=INSTALL_HINT,
        )

    async def schemas(self, place: Path, *, run_id: str) -> Mapping[str, Any] | None:
        """The protocol of the program that is there, by its own account; null where it gives none.

        `place` is a directory in which the account is written.
        """
        secrets = await self._secrets()
        argv = shell_argv(
            f"{self._command} generate-json-schema --experimental --out schemas",
            secrets,
            search_path=self.environ.get("PATH"),
        )
        env = await self._environment(run_id, {}, secrets)
        try:
            await self.host.run(argv, cwd=place, env=env, timeout_ms=_SCHEMAS_TIMEOUT_MS)
            return await to_thread.run_sync(_read_schemas, place / "schemas")
        except (OSError, ValueError):
            return None

    async def _environment(
        self, run_id: str, extra: Mapping[str, str], secrets: frozenset[str]
    ) -> dict[str, str]:
        names = await self._own()
        return child_environment(
            self.environ, run_id=run_id, agent_names=names, extra=extra, secret_names=secrets
        )

    async def _own(self) -> frozenset[str]:
        """The variables that this agent has besides those of all."""
        return CODEX_VARIABLES | self._asked | await self._providers()

    async def _secrets(self) -> frozenset[str]:
        """What no child gets: the secrets of the daemon, and the keys of other agents."""
        return self.secret_names | foreign_keys(await self._own())

    async def credentials(self) -> frozenset[str]:
        """Names of the variables that the app-server may read and its tool shells must not."""
        return CREDENTIAL_VARIABLES | await self._providers()

    async def _settle(self) -> None:
        """Make the private home, once, with a configuration that is a person's to edit."""
        if self._private and not self._home_made:
            await to_thread.run_sync(settle, self._around, self._name)
            self._home_made = True

    def _isolation(self) -> Isolation | None:
        """Codex writes to its home: threads, logs, and which workspaces it trusts."""
        isolation, home = self._around.isolation, codex_home(self.environ)
        return isolation if isolation is None or home is None else isolation.reaching(writable=[home])

    async def _providers(self) -> frozenset[str]:
        """Read once: a variable that is new in config.toml is not in our own environment before a restart."""
        if self._provider_names is None:
            self._provider_names = await self._read_providers()
        return self._provider_names

    async def _read_providers(self) -> frozenset[str]:
        home = codex_home(self.environ)
        if home is None:
            return frozenset()
        argv = ["cat", "--", str(home / "config.toml")]
        try:
            found = await self.host.run(
                argv, env=dict(self.environ), timeout_ms=_CONFIG_TIMEOUT_MS, tethered=False
            )
        except OSError:
            return frozenset()
        return provider_variables(found.stdout.decode("utf-8", "replace"))


def _read_schemas(folder: Path) -> Mapping[str, Any]:
    """Raises `OSError` and `ValueError`."""
    return {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in SCHEMAS}

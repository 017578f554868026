"""Starts app-server processes: their variables, and what it means when they do not start (AG1, AG20)."""

from collections.abc import Callable, Mapping
from pathlib import Path

from symphony.agents.base import AgentError
from symphony.agents.codex.errors import INSTALL_HINT
from symphony.agents.codex.home import CODEX_VARIABLES, CREDENTIAL_VARIABLES, codex_home, provider_variables
from symphony.agents.environment import child_environment
from symphony.agents.process import AgentProcess, Launch
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure
from symphony.hosts.base import Host, Identity

__all__ = ["Launcher"]

_CONFIG_TIMEOUT_MS = 5_000


class Launcher:
    """Starts `codex.command` on one host with one environment.

    Attributes:
        host: where processes run.
        environ: the daemon's variables, of which children get the allowed ones.
        secret_names: variables that no child ever gets.
        grace_ms: bound of each step of the stop ladder.
    """

    def __init__(
        self,
        *,
        host: Host,
        command: str,
        environ: Mapping[str, str],
        secret_names: frozenset[str],
        grace_ms: int,
    ) -> None:
        self.host = host
        self.environ = environ
        self.secret_names = secret_names
        self.grace_ms = grace_ms
        self._command = command
        self._provider_names: frozenset[str] | None = None

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
            AgentError: `codex_not_found`, when not even the shell can be started.
        """
        secrets = self.secret_names | secret_names
        env = child_environment(
            self.environ,
            run_id=run_id,
            agent_names=CODEX_VARIABLES | await self._providers(),
            extra=extra_env,
            secret_names=secrets,
        )
        launch = Launch(
            command=self._command,
            cwd=cwd,
            env=env,
            stderr_path=stderr_path,
            secret_names=secrets,
            on_spawned=on_spawned,
            stderr_start=stderr_start,
        )
        try:
            return await AgentProcess.start(self.host, launch, grace_ms=self.grace_ms)
        except OSError as error:
            raise AgentError(_not_started(error)) from error

    async def credentials(self) -> frozenset[str]:
        """Names of the variables that the app-server may read and its tool shells must not."""
        return CREDENTIAL_VARIABLES | await self._providers()

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
            found = await self.host.run(argv, env=dict(self.environ), timeout_ms=_CONFIG_TIMEOUT_MS)
        except OSError:
            return frozenset()
        return provider_variables(found.stdout.decode("utf-8", "replace"))


def _not_started(error: OSError) -> Failure:
    return Failure(
        category=Category.CODEX_NOT_FOUND,
        blame=Blame.CONFIG,
        message=redact(f"the agent could not be started: {error}"),
        hint=f"bash must be on PATH; {INSTALL_HINT}",
    )

"""The codex backend: opens sessions on `codex.command` with one configuration (AG22)."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from symphony.agents.base import Capabilities, OwnSkillRoots, Preflight, SessionRequest, Surroundings
from symphony.agents.codex.home import skill_roots
from symphony.agents.codex.launcher import Launcher
from symphony.agents.codex.preflight import check
from symphony.agents.codex.session import CodexSession
from symphony.agents.place import resolve_workspace
from symphony.workflow.settings import CodexSettings

__all__ = ["CodexBackend"]


class CodexBackend:
    """An `AgentBackend` for the app-server; `name` is what the workflow calls it."""

    def __init__(
        self,
        *,
        settings: CodexSettings,
        around: Surroundings,
        name: str = "codex",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._wall_clock = wall_clock
        self._checked_version: str | None = None
        self._launcher = Launcher(settings=settings, around=around, name=name)
        self._own_skill_roots = skill_roots(self._launcher.environ)

    @property
    def capabilities(self) -> Capabilities:
        """Everything that the interface knows."""
        return Capabilities(
            system_block_at_start=True,
            system_block_on_resume=True,
            client_tools=True,
            absolute_usage=True,
            rate_limits=True,
            sandbox=True,
            resume=True,
        )

    @property
    def own_skill_roots(self) -> OwnSkillRoots:
        """Two of the workspace, the user's, that of its home, and the administrator's."""
        return self._own_skill_roots

    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Check binary, version, login and sandbox; see `preflight.check`."""
        found = await check(self._launcher, self._settings, workspace_root, run_id=run_id)
        self._checked_version = found.version
        return found

    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator[CodexSession]:
        """Start the agent and its thread; leaving the context stops it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `codex_not_found`, `response_timeout`, `response_error` or
                `port_exit`; nothing of the agent is left running.
        """
        place = await resolve_workspace(request)
        credentials = await self._launcher.credentials()
        process = await self._launcher.start(
            run_id=request.run_id,
            cwd=place.cwd,
            stderr_path=request.stderr_path,
            extra_env=request.extra_env,
            secret_names=request.secret_names,
            on_spawned=request.on_spawned,
            stderr_start=place.stderr_start,
        )
        session = CodexSession(
            process,
            settings=self._settings,
            request=request,
            cwd=place.cwd,
            credentials=credentials - request.extra_env.keys(),
            wall_clock=self._wall_clock,
            checked_version=self._checked_version,
        )
        try:
            await session.start()
            yield session
        finally:
            await session.stop()

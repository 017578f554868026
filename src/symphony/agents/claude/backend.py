"""The claude backend: opens sessions on `claude.command` with one configuration (AG22)."""

import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from symphony.agents.base import (
    AgentError,
    Briefing,
    Capabilities,
    OwnSkillRoots,
    Preflight,
    SessionRequest,
    Surroundings,
)
from symphony.agents.claude.arguments import session_arguments
from symphony.agents.claude.home import ATTACHMENTS, config_directory
from symphony.agents.claude.launcher import Launcher, Start
from symphony.agents.claude.preflight import check
from symphony.agents.claude.session import ClaudeSession
from symphony.agents.mcp.bridge import Bridge, tool_bridge
from symphony.agents.place import resolve_workspace
from symphony.agents.queue import EventQueue
from symphony.domain.failures import Category, Failure
from symphony.workflow.settings import ClaudeSettings

__all__ = ["ClaudeBackend"]

_CANNOT_RESUME = frozenset({Category.TURN_FAILED, Category.PORT_EXIT, Category.RESPONSE_ERROR})


class ClaudeBackend:
    """An `AgentBackend` for Claude Code; `name` is what the workflow calls it."""

    def __init__(
        self,
        *,
        settings: ClaudeSettings,
        around: Surroundings,
        name: str = "claude",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._wall_clock = wall_clock
        self._launcher = Launcher(settings, around, name)

    @property
    def capabilities(self) -> Capabilities:
        """No sandbox of its own that we switch on, and nothing told of an allowance used up by a key."""
        return Capabilities(
            system_block_at_start=True,
            system_block_on_resume=True,
            client_tools=True,
            absolute_usage=False,
            sandbox=False,
            resume=True,
        )

    @property
    def own_skill_roots(self) -> OwnSkillRoots:
        """None, unless the workflow takes the switch over: attachments list skills as well as open files."""
        own = config_directory(self._launcher.around.environ)
        if own is None or ATTACHMENTS not in self._settings.env or self._settings.home == "private":
            return OwnSkillRoots()
        return OwnSkillRoots(host=(own / "skills",))

    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Check binary, version, control channel and login; see `preflight.check`."""
        return await check(self._launcher, self._settings, workspace_root, run_id=run_id)

    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator[ClaudeSession]:
        """Start the agent on its conversation; leaving the context stops it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `agent_not_found`, `state_directory`, `response_timeout`,
                `response_error` or `port_exit`; nothing of the agent is left running.
        """
        events = EventQueue()
        briefing = await request.briefing()
        if not briefing.tools:
            async with self._session(request, briefing, events, None) as session:
                yield session
            return
        async with (
            tool_bridge(request, briefing.tools, self._launcher.around, on_called=events.emit) as bridge,
            self._session(request, briefing, events, bridge) as session,
        ):
            yield session

    @asynccontextmanager
    async def _session(
        self, request: SessionRequest, briefing: Briefing, events: EventQueue, bridge: Bridge | None
    ) -> AsyncIterator[ClaudeSession]:
        session = await self._opened(request, briefing, events, bridge)
        try:
            yield session
        finally:
            await session.stop()

    async def _opened(
        self, request: SessionRequest, briefing: Briefing, events: EventQueue, bridge: Bridge | None
    ) -> ClaudeSession:
        """A session on the conversation asked for; where the agent cannot go on with it, on a new one."""
        refused = None
        if request.resume is not None:
            try:
                return await self._begun(request, briefing, events, bridge, resume=request.resume.thread_id)
            except AgentError as error:
                if error.failure.category not in _CANNOT_RESUME:
                    raise
                refused = error.failure
        return await self._begun(request, briefing, events, bridge, refused=refused)

    async def _begun(
        self,
        request: SessionRequest,
        briefing: Briefing,
        events: EventQueue,
        bridge: Bridge | None,
        *,
        resume: str | None = None,
        refused: Failure | None = None,
    ) -> ClaudeSession:
        thread_id = resume or str(uuid.uuid4())
        start = await self._start(request, briefing, bridge, thread_id, resumed=resume is not None)
        process = await self._launcher.start(start)
        session = ClaudeSession(
            process,
            settings=self._settings,
            request=request,
            thread_id=thread_id,
            resumed=resume is not None,
            events=events,
            on_stopping=None if bridge is None else bridge.end,
            refused=refused,
            wall_clock=self._wall_clock,
        )
        try:
            await session.start()
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(OSError):
                await process.stop(lambda _: None)  # the bridge lives on, for the process that comes next
            raise
        return session

    async def _start(
        self,
        request: SessionRequest,
        briefing: Briefing,
        bridge: Bridge | None,
        thread_id: str,
        *,
        resumed: bool,
    ) -> Start:
        place = await resolve_workspace(request)
        return Start(
            run_id=request.run_id,
            cwd=place.cwd,
            arguments=session_arguments(
                self._settings,
                cwd=place.cwd,
                thread_id=thread_id,
                resumed=resumed,
                envelope=briefing.envelope,
                server=None if bridge is None else bridge.argv,
                own_skill_listing=briefing.own_skill_listing,
            ),
            stderr_path=request.stderr_path,
            extra_env=request.extra_env,
            secret_names=request.secret_names,
            on_spawned=request.on_spawned if bridge is None else bridge.on_spawned,
            stderr_start=place.stderr_start,
            reachable=() if bridge is None else bridge.paths,
        )

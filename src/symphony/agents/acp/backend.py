"""The acp backend: opens sessions of one agent that speaks the Agent Client Protocol (AG22)."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from symphony.agents.acp.launcher import Launcher
from symphony.agents.acp.opening import Agent
from symphony.agents.acp.posture import problems
from symphony.agents.acp.preflight import check
from symphony.agents.acp.profiles import Profile, command_of, profile_of
from symphony.agents.acp.session import AcpSession
from symphony.agents.base import (
    AgentError,
    Briefing,
    Capabilities,
    OwnSkillRoots,
    Preflight,
    SessionRequest,
    Surroundings,
)
from symphony.agents.mcp.bridge import Bridge, tool_bridge
from symphony.agents.place import resolve_workspace
from symphony.agents.queue import EventQueue
from symphony.domain.failures import Blame, Category, Failure
from symphony.workflow.settings import AcpSettings

__all__ = ["AcpBackend"]


class AcpBackend:
    """An `AgentBackend` for one profile; `name` is what the workflow calls it."""

    def __init__(self, *, settings: AcpSettings, around: Surroundings, name: str = "acp") -> None:
        profile = profile_of(settings)
        command = None if profile is None else command_of(settings, profile)
        if profile is None or command is None:
            raise AgentError(_unusable(settings))
        if settings.home == "private":
            hint = f"it lives in HOME={around.homes / name}: {profile.login_hint}"
            profile = replace(profile, login_hint=hint)
        self._settings = settings
        self._profile = profile
        self._around = around
        self._name = name
        self._checked: Agent | None = None
        self._launcher = Launcher(
            around=around, name=name, settings=settings, profile=profile, command=command
        )

    @property
    def profile(self) -> Profile:
        """What is known of the agent, with what the workflow says over it."""
        return self._profile

    @property
    def capabilities(self) -> Capabilities:
        """As the profile tells."""
        profile = self._profile
        return Capabilities(
            system_block_at_start=profile.system_text != "prompt",
            system_block_on_resume=profile.load,
            client_tools=True,
            absolute_usage=False,
            usage=profile.usage != "none",
            sandbox=False,
            resume=profile.load,
        )

    @property
    def own_skill_roots(self) -> OwnSkillRoots:
        """As the profile tells; those at home are those of its private home, if it has one."""
        profile = self._profile
        home: Path | None = self._around.homes / self._name
        if self._settings.home != "private":
            named = self._around.environ.get("HOME")
            home = Path(named) if named else None
        host = () if home is None else tuple(home / name for name in profile.host_skills)
        return OwnSkillRoots(workspace=profile.workspace_skills, host=host)

    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Check program, protocol, login, mode and model; see `preflight.check`."""
        return await check(
            self._launcher, self._settings, self._profile, workspace_root, run_id=run_id, seen=self._saw
        )

    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator[AcpSession]:
        """Start the agent and its session; leaving the context stops it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `agent_not_found`, `agent_auth`, `response_timeout`,
                `response_error` or `port_exit`; nothing of the agent is left running.
        """
        place, briefing = await resolve_workspace(request), await request.briefing()
        async with AsyncExitStack() as stack:
            events = EventQueue()
            envelope_file = await self._envelope_file(stack, briefing.envelope)
            bridge = await self._bridge(stack, request, briefing, events)
            reachable = () if envelope_file is None else (envelope_file.parent,)
            process = await self._launcher.start(
                run_id=request.run_id,
                cwd=place.cwd,
                stderr_path=request.stderr_path,
                envelope_file=envelope_file,
                reachable=reachable if bridge is None else (*reachable, *bridge.paths),
                extra_env=request.extra_env,
                secret_names=request.secret_names,
                on_spawned=request.on_spawned if bridge is None else bridge.on_spawned,
                stderr_start=place.stderr_start,
            )
            session = AcpSession(
                process,
                settings=self._settings,
                profile=self._profile,
                request=request,
                briefing=briefing,
                cwd=place.cwd,
                events=events,
                bridge=bridge,
                expected=self._checked,
            )
            stack.push_async_callback(session.stop)
            await session.start()
            yield session

    def _saw(self, agent: Agent) -> None:
        self._checked = agent

    async def _bridge(
        self, stack: AsyncExitStack, request: SessionRequest, briefing: Briefing, events: EventQueue
    ) -> Bridge | None:
        """Our tools for the agent; null where there are none to offer."""
        if not briefing.tools:
            return None
        bridge = tool_bridge(request, briefing.tools, self._around, on_called=events.emit)
        return await stack.enter_async_context(bridge)

    async def _envelope_file(self, stack: AsyncExitStack, envelope: str | None) -> Path | None:
        """The envelope in a file for this user alone, where the profile's configuration names one."""
        if envelope is None or self._profile.system_text != "config":
            return None
        place: TemporaryDirectory[str] = await to_thread.run_sync(
            lambda: TemporaryDirectory(prefix="symphony-envelope-", ignore_cleanup_errors=True)
        )
        stack.push_async_callback(to_thread.run_sync, place.cleanup)
        file = Path(place.name) / "envelope.md"
        await to_thread.run_sync(lambda: file.write_text(f"{envelope}\n", "utf-8"))
        return file


def _unusable(settings: AcpSettings) -> Failure:
    """What the review of the workflow tells before; here for whoever makes a backend without one."""
    told = "; ".join(f"acp.{remark.key} {remark.problem}" for remark in problems(settings))
    hint = "; ".join(remark.hint for remark in problems(settings))
    return Failure(
        category=Category.INVALID_WORKFLOW_CONFIG,
        blame=Blame.CONFIG,
        message=told,
        retryable=False,
        hint=hint,
    )

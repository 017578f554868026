"""The claude backend: opens sessions on `claude.command` with one configuration (AG22).

Its own directory, the variables it reads and those by which it stays what it was started as, and what a
person should know about its settings.
"""

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
from typing_extensions import override

from symphony.agents.backend import ProcessBackend, Start
from symphony.agents.base import (
    AgentError,
    Briefing,
    Capabilities,
    OwnSkillRoots,
    Preflight,
    Remark,
    Remarks,
    SessionRequest,
    Surroundings,
    cannot_tell,
)
from symphony.agents.claude.arguments import EFFORTS, session_arguments
from symphony.agents.claude.errors import INSTALL_HINT, login_hint
from symphony.agents.claude.preflight import check
from symphony.agents.claude.session import ClaudeSession
from symphony.agents.mcp.bridge import Bridge, tool_bridge
from symphony.agents.place import resolve_workspace
from symphony.agents.queue import EventQueue
from symphony.config.settings import ClaudeSettings
from symphony.domain.failures import Category, Failure

__all__ = ["ATTACHMENTS", "ClaudeBackend", "config_directory", "doubtful", "unguarded", "written_places"]

CLAUDE_VARIABLES = frozenset(
    {
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_BETAS"),
        *("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"),
        *(f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU")),
        *("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
        *("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "MAX_THINKING_TOKENS", "API_TIMEOUT_MS"),
    }
)
"""What passes from the daemon's own variables; whatever else a provider needs, `claude.env` names."""

ATTACHMENTS = "CLAUDE_CODE_DISABLE_ATTACHMENTS"

FIXED: Mapping[str, str] = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # The default tries for minutes, also with a wrong key; the scheduler knows better how long to wait.
    "CLAUDE_CODE_MAX_RETRIES": "4",
    # Else a command in the background begins a turn of its own when it ends, between two of ours.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # Else `@path` in the text of an issue puts any file of this machine before the model, unasked.
    ATTACHMENTS: "1",
    # CLAUDE.md of the workspace, whose settings are not read.
    "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1",
}

_CANNOT_RESUME = frozenset({Category.TURN_FAILED, Category.PORT_EXIT, Category.RESPONSE_ERROR})
_BYPASSES = ("--dangerously-skip-permissions", "bypassPermissions")
_HINT = (
    "acceptEdits with on_approval: decline lets sessions edit files and commit; or set workspace.isolation"
)


class ClaudeBackend(ProcessBackend[ClaudeSettings]):
    """An `AgentBackend` for Claude Code; `name` is what the workflow calls it."""

    settings_type = ClaudeSettings

    def __init__(
        self,
        *,
        settings: ClaudeSettings,
        around: Surroundings,
        name: str = "claude",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings=settings, around=around, name=name)
        self._wall_clock = wall_clock

    @override
    @classmethod
    def judge(cls, settings: ClaudeSettings, *, isolated: bool) -> Remarks:
        return Remarks(unguarded=None if isolated else unguarded(settings), doubtful=doubtful(settings))

    @override
    @classmethod
    def command_of(cls, settings: ClaudeSettings) -> str:
        return settings.command

    @override
    @classmethod
    def install_hint_of(cls, settings: ClaudeSettings) -> str:
        return INSTALL_HINT

    @property
    @override
    def variables(self) -> frozenset[str]:
        return CLAUDE_VARIABLES

    @property
    @override
    def fixed_variables(self) -> Mapping[str, str]:
        """What `claude.env` names is the operator's, ours included."""
        ours = {name: value for name, value in FIXED.items() if name not in self.settings.env}
        if self.around.isolation is not None:
            ours["IS_SANDBOX"] = "1"  # else root may not bypass permissions, even where that is harmless
        return ours

    @override
    def home_variables(self, home: Path) -> Mapping[str, str]:
        return {"CLAUDE_CONFIG_DIR": str(home)}

    @override
    def written_places(self, environ: Mapping[str, str]) -> tuple[Path, ...]:
        return written_places(environ)

    @property
    @override
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
    @override
    def own_skill_roots(self) -> OwnSkillRoots:
        """None, unless the workflow takes the switch over: attachments list skills as well as open files."""
        own = config_directory(self.around.environ)
        if own is None or ATTACHMENTS not in self.settings.env or self.home is not None:
            return OwnSkillRoots()
        return OwnSkillRoots(host=(own / "skills",))

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Check binary, version, control channel and login; see `preflight.check`."""
        return await check(
            self, self.settings, workspace_root, run_id=run_id, login_hint=login_hint(self.home)
        )

    @override
    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator[ClaudeSession]:
        """Start the agent on its conversation; leaving the context stops it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `agent_not_found`, `state_directory`, `response_timeout`,
                `response_error` or `port_exit`; nothing of the agent is left running.
        """
        events = EventQueue()
        briefing = await request.briefing(cannot_tell)
        if not briefing.tools:
            async with self._session(request, briefing, events, None) as session:
                yield session
            return
        async with (
            tool_bridge(request, briefing.tools, self.around, on_called=events.emit) as bridge,
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
        start = await self._start_of(request, briefing, bridge, thread_id, resumed=resume is not None)
        process = await self.start(start)
        session = ClaudeSession(
            process,
            settings=self.settings,
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

    async def _start_of(
        self,
        request: SessionRequest,
        briefing: Briefing,
        bridge: Bridge | None,
        thread_id: str,
        *,
        resumed: bool,
    ) -> Start:
        cwd = await resolve_workspace(request.cwd)
        arguments = session_arguments(
            self.settings,
            cwd=cwd,
            thread_id=thread_id,
            resumed=resumed,
            envelope=briefing.envelope,
            server=None if bridge is None else bridge.argv,
            own_skill_listing=briefing.own_skill_listing,
        )
        start = replace(Start.of(request, cwd), arguments=arguments)
        if bridge is None:
            return start
        return replace(start, on_spawned=bridge.on_spawned, writable=bridge.paths)


# --- its home --------------------------------------------------------------------------------------------


def config_directory(env: Mapping[str, str]) -> Path | None:
    """`$CLAUDE_CONFIG_DIR`, else `~/.claude`; null without a home."""
    if env.get("CLAUDE_CONFIG_DIR"):
        return Path(env["CLAUDE_CONFIG_DIR"])
    return Path(env["HOME"]) / ".claude" if env.get("HOME") else None


def written_places(env: Mapping[str, str]) -> tuple[Path, ...]:
    """What a session writes to besides its workspace: its directory, and a file beside that of the user."""
    own = config_directory(env)
    beside = (Path(env["HOME"]) / ".claude.json",) if env.get("HOME") else ()
    return (*(() if own is None else (own,)), *(() if env.get("CLAUDE_CONFIG_DIR") else beside))


# --- what a person should know about its settings ---------------------------------------------------------


def unguarded(settings: ClaudeSettings) -> Remark | None:
    """Why nothing would hold sessions inside their workspace; null where something does (CL5).

    Claude Code has no sandbox that we switch on: its permissions are all there is, unless
    `workspace.isolation` puts one around it, which whoever asks has to look at.
    """
    for bypass in _BYPASSES:
        if bypass in settings.command:
            return Remark(key="command", problem=f"holds {bypass}, which takes the guards away", hint=_HINT)
    if settings.permission_mode == "bypassPermissions":
        problem = "is bypassPermissions: sessions run whatever they like"
        return Remark(key="permission_mode", problem=problem, hint=_HINT)
    if settings.on_approval == "accept":
        problem = "is accept: sessions run whatever they ask for"
        return Remark(key="on_approval", problem=problem, hint=_HINT)
    return None


def doubtful(settings: ClaudeSettings) -> Remark | None:
    """An effort that Claude Code 2.1 does not know and ignores."""
    if settings.effort is None or settings.effort in EFFORTS:
        return None
    problem = f"{settings.effort[:60]!r} is unknown to Claude Code 2.1, which then uses its default"
    return Remark(key="effort", problem=problem, hint=f"write one of {', '.join(EFFORTS)}")

"""The backend of kind `claude`: starts `claude.command`, checks its settings, and opens sessions."""

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from typing_extensions import override

from symphony.agents import base
from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.claude.preflight import check
from symphony.agents.claude.protocol import EFFORTS, INSTALL_HINT, session_arguments
from symphony.agents.claude.session import ClaudeSession
from symphony.agents.event_queue import EventQueue
from symphony.agents.folders import CLAUDE_FOLDERS
from symphony.agents.mcp.server import ToolServer, tool_server
from symphony.agents.process import AgentProcess
from symphony.config import ClaudeSettings
from symphony.domain import Category, Failure

CLAUDE_VARIABLES: Final = frozenset(
    {
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_BETAS"),
        *("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"),
        *(f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU")),
        *("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
        *("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "MAX_THINKING_TOKENS", "API_TIMEOUT_MS"),
    }
)
"""The daemon's variables that Claude gets; the key `claude.env` names what else a provider needs."""

ATTACHMENTS: Final = "CLAUDE_CODE_DISABLE_ATTACHMENTS"

FIXED_VARIABLES: Final[Mapping[str, str]] = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # The default retries for minutes, even with a wrong key; the scheduler knows better how long to wait.
    "CLAUDE_CODE_MAX_RETRIES": "4",
    # Otherwise the end of a background command starts an extra turn between two turns of the session.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # Otherwise `@path` in the text of an issue shows any file of this machine to the model.
    ATTACHMENTS: "1",
    # Read CLAUDE.md of the workspace, although its settings are not read.
    "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1",
}

_CANNOT_RESUME: Final = frozenset({Category.TURN_FAILED, Category.PORT_EXIT, Category.RESPONSE_ERROR})
_BYPASSES: Final = ("--dangerously-skip-permissions", "bypassPermissions")
_HINT: Final = (
    "acceptEdits with on_approval: decline lets sessions edit files and commit; or set workspace.isolation"
)


class ClaudeBackend(ProcessBackend[ClaudeSettings]):
    """Opens sessions of Claude Code."""

    settings_type = ClaudeSettings
    install_hint = INSTALL_HINT
    variables = CLAUDE_VARIABLES
    folders = CLAUDE_FOLDERS
    capabilities = base.Capabilities(
        system_block_at_start=True,
        system_block_on_resume=True,
        client_tools=True,
        absolute_usage=False,
        sandbox=False,
        resume=True,
    )

    def __init__(
        self, *, settings: ClaudeSettings, context: base.BackendContext, name: str = "claude"
    ) -> None:
        super().__init__(settings=settings, context=context, name=name)
        variables = {name: value for name, value in FIXED_VARIABLES.items() if name not in settings.env}
        if context.isolation is not None:
            variables["IS_SANDBOX"] = "1"  # otherwise root may not bypass permissions, even confined
        self.fixed_variables = variables
        directory = config_directory(context.environ)
        if directory is not None and ATTACHMENTS in settings.env and self.home is None:
            # Attachments list skills too.
            self.skill_roots = base.AgentSkillRoots(host=(directory / "skills",))

    @override
    @classmethod
    def check_settings(cls, settings: ClaudeSettings, *, isolated: bool) -> base.SettingIssues:
        return base.SettingIssues(
            warnings=_effort_warnings(settings), no_sandbox=None if isolated else _missing_sandbox(settings)
        )

    @override
    def home_variables(self, home: Path) -> Mapping[str, str]:
        return {"CLAUDE_CONFIG_DIR": str(home)}

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> base.Preflight:
        """Check program, version, control channel and login; see `preflight.check`."""
        return await check(self, workspace_root, run_id=run_id)

    @override
    @asynccontextmanager
    async def open(self, request: base.SessionRequest) -> AsyncIterator[ClaudeSession]:
        """Start the agent on its conversation; leaving the context stops it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `agent_not_found`, `state_directory`, `response_timeout`,
                `response_error` or `port_exit`; no process is left.
        """
        cwd, briefing = (
            await base.resolve_workspace(request.cwd),
            await request.briefing(base.cannot_list_skills),
        )
        events = EventQueue()
        async with AsyncExitStack() as stack:
            server: ToolServer | None = None
            if briefing.tools:
                served = tool_server(request, briefing.tools, self.context, on_called=events.emit)
                server = await stack.enter_async_context(served)
            session = await self._resume_or_start(request, briefing, cwd, events, server)
            stack.push_async_callback(session.stop)
            yield session

    async def _resume_or_start(
        self,
        request: base.SessionRequest,
        briefing: base.Briefing,
        cwd: Path,
        events: EventQueue,
        server: ToolServer | None,
    ) -> ClaudeSession:
        """Start the agent on the requested conversation, or on a new one if it cannot continue that."""

        async def launch(thread_id: str, envelope: str | None, *, resumed: bool = True) -> AgentProcess:
            options = replace(
                LaunchOptions.for_session(request, cwd),
                arguments=session_arguments(
                    self.settings,
                    cwd=cwd,
                    thread_id=thread_id,
                    resumed=resumed,
                    envelope=envelope,
                    server=None if server is None else server.argv,
                    agent_lists_skills=briefing.agent_lists_skills,
                    read_only=request.read_only,
                ),
            )
            if server is not None:
                options = replace(options, on_spawned=server.on_spawned, writable=server.paths)
            return await self.start(options)

        async def start(thread_id: str, *, resumed: bool, refused: Failure | None = None) -> ClaudeSession:
            process = await launch(thread_id, briefing.envelope, resumed=resumed)
            session = ClaudeSession(
                process,
                settings=self.settings,
                request=request,
                thread_id=thread_id,
                resumed=resumed,
                envelope=briefing.envelope,
                relaunch=partial(launch, thread_id),
                events=events,
                on_stopping=None if server is None else server.stop,
                resume_refused=refused,
            )
            try:
                await session.start()
            except BaseException:
                # Not `session.stop`, which would stop the tool server for the process that comes next.
                with anyio.CancelScope(shield=True), suppress(OSError):
                    await process.stop()
                raise
            return session

        refused = None
        if request.resume is not None:
            try:
                return await start(request.resume.thread_id, resumed=True)
            except base.AgentError as error:
                if isinstance(error, base.IsolationError) or error.failure.category not in _CANNOT_RESUME:
                    raise
                refused = error.failure
        return await start(str(uuid.uuid4()), resumed=False, refused=refused)


def config_directory(env: Mapping[str, str]) -> Path | None:
    """Return `$CLAUDE_CONFIG_DIR`, else `~/.claude`, else None."""
    if env.get("CLAUDE_CONFIG_DIR"):
        return Path(env["CLAUDE_CONFIG_DIR"])
    return Path(env["HOME"]) / ".claude" if env.get("HOME") else None


def _missing_sandbox(settings: ClaudeSettings) -> base.SettingIssue | None:
    """Return why nothing would confine sessions, or None: permissions are all that Claude Code has."""
    for bypass in _BYPASSES:
        if bypass in settings.command:
            problem = f"holds {bypass}, which takes the guards away"
            return base.SettingIssue(key="command", problem=problem, hint=_HINT)
    if settings.permission_mode == "bypassPermissions":
        problem = "is bypassPermissions: sessions run any command"
        return base.SettingIssue(key="permission_mode", problem=problem, hint=_HINT)
    if settings.on_approval == "accept":
        problem = "is accept: sessions run every command that they ask for"
        return base.SettingIssue(key="on_approval", problem=problem, hint=_HINT)
    return None


def _effort_warnings(settings: ClaudeSettings) -> tuple[base.SettingIssue, ...]:
    """Warn of an effort that Claude Code 2.1 does not know and ignores."""
    if settings.effort is None or settings.effort in EFFORTS:
        return ()
    problem = f"{settings.effort[:60]!r} is unknown to Claude Code 2.1, which then uses its default"
    return (base.SettingIssue(key="effort", problem=problem, hint=f"write one of {', '.join(EFFORTS)}"),)

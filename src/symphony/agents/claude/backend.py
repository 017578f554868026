"""The claude backend: opens sessions on `claude.command` with one configuration (AG22).

Its own directory, the variables it reads and those by which it stays what it was started as, and what a
person should know about its settings.
"""

import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import override

from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.base import (
    AgentError,
    AgentSkillRoots,
    BackendContext,
    Briefing,
    Capabilities,
    Preflight,
    SessionRequest,
    SettingIssue,
    SettingIssues,
    cannot_list_skills,
    resolve_workspace,
)
from symphony.agents.claude.protocol import (
    EFFORTS,
    INSTALL_HINT,
    Message,
    Question,
    login_hint,
    session_arguments,
)
from symphony.agents.claude.session import Channel, ClaudeSession
from symphony.agents.events import EventQueue, redact
from symphony.agents.mcp.server import Bridge, tool_bridge
from symphony.agents.preflight import preflight_failure, scratch
from symphony.config import ClaudeSettings
from symphony.domain import Blame, Category, Failure

# The check before the first dispatch: binary, version, control channel, login (DESIGN 9).
#
# The agent is started as a session would start it and asked to open its control channel, whose answer also
# says how it is logged in. No model is asked, so a wrong one shows in the first turn, which it fails for
# good.


_OLDEST = (2, 1, 0)
_TRIED = (2, 1, 197)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_NOT_FOUND_EXIT = 127
_ROOT_REFUSED = "cannot be used with root"
_ROOT_HINT = "run the daemon as another user, or set workspace.isolation: bwrap, or another permission_mode"


async def check(
    backend: ProcessBackend[ClaudeSettings],
    settings: ClaudeSettings,
    workspace_root: Path,
    *,
    run_id: str,
    login_hint: str,
) -> Preflight:
    """Start the agent once as a session would and see that it can work.

    Raises:
        AgentError: `agent_not_found`, `agent_auth`, `agent_preflight` or `state_directory`, with a hint.
    """
    context = backend.context
    async with scratch(context.host, context.environ, workspace_root) as place:
        version = await _version(backend, settings, run_id)
        greeting = await _greeting(backend, settings, place, run_id)
    _check_login(greeting, hint=login_hint)
    shown = ".".join(map(str, version)) if version else "unknown"
    return Preflight(agent="claude", version=shown, notices=_version_notices(version, shown))


async def _version(
    backend: ProcessBackend[ClaudeSettings], settings: ClaudeSettings, run_id: str
) -> tuple[int, ...] | None:
    try:
        done = await backend.ask(
            settings.command, run_id=run_id, timeout_ms=settings.read_timeout_ms, arguments=("--version",)
        )
    except OSError as error:
        raise AgentError(_missing(f"the agent could not be started: {error}")) from error
    told = done.stderr.decode("utf-8", "replace").strip()
    if done.exit_code == _NOT_FOUND_EXIT:
        last = told.splitlines()[-1:] or ["claude.command gave exit code 127"]
        raise AgentError(_missing(f"the agent's program was not found: {last[0]}"))
    found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    version = None if found is None else tuple(map(int, found.groups()))
    if version is not None and version < _OLDEST:
        shown, oldest = ".".join(map(str, version)), ".".join(map(str, _OLDEST))
        text = f"Claude Code {shown} is too old: {oldest} is the oldest that can work"
        raise preflight_failure(text, hint=INSTALL_HINT)
    return version


async def _greeting(
    backend: ProcessBackend[ClaudeSettings], settings: ClaudeSettings, place: Path, run_id: str
) -> Mapping[str, Any]:
    arguments = session_arguments(
        settings,
        cwd=place,
        thread_id=str(uuid.uuid4()),
        resumed=False,
        envelope=None,
        server=None,
        agent_lists_skills=True,
    )
    start = replace(LaunchOptions.for_check(run_id, place), arguments=arguments)
    async with backend.running(start) as process:
        channel = Channel(process, read_timeout_ms=settings.read_timeout_ms)

        async def other(message: Message) -> None:
            if isinstance(message, Question):
                await channel.refuse(message, "only a check is running")

        try:
            return await channel.call("initialize", other, hooks={})
        except AgentError as error:
            raise _no_greeting(error.failure) from error


def _no_greeting(failure: Failure) -> AgentError:
    if failure.category is Category.AGENT_NOT_FOUND:
        return AgentError(failure)
    text = f"claude.command does not open the control channel of Claude Code: {failure.message}"
    refused = _ROOT_REFUSED in failure.message
    return preflight_failure(text, hint=_ROOT_HINT if refused else f"try the command by hand; {INSTALL_HINT}")


def _check_login(greeting: Mapping[str, Any], *, hint: str) -> None:
    """Nobody is logged in where the vendor's own service is used and neither a token nor a key was found."""
    account = greeting.get("account")
    if not isinstance(account, dict) or account.get("apiProvider") != "firstParty":
        return
    sources = (account.get("tokenSource"), account.get("apiKeySource"))
    if all(source in {None, "none"} for source in sources) and not account.get("email"):
        failure = Failure(
            category=Category.AGENT_AUTH,
            blame=Blame.CONFIG,
            message="Claude Code is not logged in",
            retryable=False,
            hint=hint,
        )
        raise AgentError(failure)


def _version_notices(version: tuple[int, ...] | None, shown: str) -> tuple[str, ...]:
    if version is None:
        return ("the agent did not tell its version",)
    tried = ".".join(map(str, _TRIED))
    return () if version == _TRIED else (f"Claude Code {shown} was not tried with this version; {tried} was",)


def _missing(message: str) -> Failure:
    return Failure(
        category=Category.AGENT_NOT_FOUND,
        blame=Blame.CONFIG,
        message=redact(message),
        retryable=False,
        hint=INSTALL_HINT,
    )


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
        context: BackendContext,
        name: str = "claude",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings=settings, context=context, name=name)
        self._wall_clock = wall_clock

    @override
    @classmethod
    def check_settings(cls, settings: ClaudeSettings, *, isolated: bool) -> SettingIssues:
        return SettingIssues(
            no_sandbox=None if isolated else missing_sandbox(settings), warnings=setting_warnings(settings)
        )

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
        if self.context.isolation is not None:
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
    def skill_roots(self) -> AgentSkillRoots:
        """None, unless the workflow takes the switch over: attachments list skills as well as open files."""
        own = config_directory(self.context.environ)
        if own is None or ATTACHMENTS not in self.settings.env or self.home is not None:
            return AgentSkillRoots()
        return AgentSkillRoots(host=(own / "skills",))

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
        briefing = await request.briefing(cannot_list_skills)
        if not briefing.tools:
            async with self._session(request, briefing, events, None) as session:
                yield session
            return
        async with (
            tool_bridge(request, briefing.tools, self.context, on_called=events.emit) as bridge,
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
    ) -> LaunchOptions:
        cwd = await resolve_workspace(request.cwd)
        arguments = session_arguments(
            self.settings,
            cwd=cwd,
            thread_id=thread_id,
            resumed=resumed,
            envelope=briefing.envelope,
            server=None if bridge is None else bridge.argv,
            agent_lists_skills=briefing.agent_lists_skills,
        )
        start = replace(LaunchOptions.for_session(request, cwd), arguments=arguments)
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


def missing_sandbox(settings: ClaudeSettings) -> SettingIssue | None:
    """Why nothing would hold sessions inside their workspace; null where something does (CL5).

    Claude Code has no sandbox that we switch on: its permissions are all there is, unless
    `workspace.isolation` puts one around it, which whoever asks has to look at.
    """
    for bypass in _BYPASSES:
        if bypass in settings.command:
            return SettingIssue(
                key="command", problem=f"holds {bypass}, which takes the guards away", hint=_HINT
            )
    if settings.permission_mode == "bypassPermissions":
        problem = "is bypassPermissions: sessions run whatever they like"
        return SettingIssue(key="permission_mode", problem=problem, hint=_HINT)
    if settings.on_approval == "accept":
        problem = "is accept: sessions run whatever they ask for"
        return SettingIssue(key="on_approval", problem=problem, hint=_HINT)
    return None


def setting_warnings(settings: ClaudeSettings) -> tuple[SettingIssue, ...]:
    """An effort that Claude Code 2.1 does not know and ignores."""
    if settings.effort is None or settings.effort in EFFORTS:
        return ()
    problem = f"{settings.effort[:60]!r} is unknown to Claude Code 2.1, which then uses its default"
    issue = SettingIssue(key="effort", problem=problem, hint=f"write one of {', '.join(EFFORTS)}")
    return (issue,)

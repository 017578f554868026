"""The backend of kind `acp`: starts an agent by its profile, checks its settings, and opens sessions."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from typing_extensions import override

from symphony import to_thread
from symphony.agents import base
from symphony.agents.acp import protocol
from symphony.agents.acp.profiles import PROFILES, AcpProfile, command_of, profile_of
from symphony.agents.acp.session import AcpAgent, AcpSession, initialize, open_session, select
from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.environment import private_home, write_home_file
from symphony.agents.event_queue import EventQueue
from symphony.agents.events import redact
from symphony.agents.json_fields import Json
from symphony.agents.mcp.server import ToolServer, tool_server
from symphony.agents.preflight import preflight_failure, scratch_directory
from symphony.agents.wire import Connection, Message, ServerRequest
from symphony.config import AcpSettings
from symphony.domain import Blame, Category

_BYPASSES: Final = ("--yolo", "-y", "--dangerously-skip-permissions", "--approval-mode=yolo")
_HINT: Final = "set workspace.isolation: bwrap"


class AcpBackend(ProcessBackend[AcpSettings]):
    """Opens sessions of an agent that speaks the Agent Client Protocol.

    Attributes:
        profile: the profile of the agent with the settings applied to it.
    """

    settings_type = AcpSettings
    capabilities = base.Capabilities(
        system_block_at_start=False, client_tools=True, absolute_usage=False, sandbox=False, resume=True
    )

    def __init__(self, *, settings: AcpSettings, context: base.BackendContext, name: str = "acp") -> None:
        self.profile = profile_of(settings) or AcpProfile()
        super().__init__(settings=settings, context=context, name=name)
        if self.home is not None:
            hint = f"it lives in HOME={self.home}: {self.profile.login_hint}"
            self.profile = replace(self.profile, login_hint=hint)
        profile = self.profile
        self.variables = profile.variables
        self.fixed_variables = profile.env_values
        self.folders = profile.folders
        self.capabilities = replace(
            self.capabilities,
            system_block_at_start=profile.system_text != "prompt",
            system_block_on_resume=profile.load,
            usage=profile.usage != "none",
            resume=profile.load,
        )
        home = self.environ.get("HOME")
        self.skill_roots = base.AgentSkillRoots(
            workspace=self.skill_places(settings),
            host=tuple(Path(home) / path for path in profile.host_skills) if home else (),
        )
        self._checked: AcpAgent | None = None

    @override
    @classmethod
    def skill_places(cls, settings: AcpSettings) -> tuple[str, ...]:
        return (profile_of(settings) or AcpProfile()).workspace_skills

    @override
    @classmethod
    def program(cls, settings: AcpSettings, section: str) -> base.Program | None:
        profile = profile_of(settings)
        if profile is None:
            return None
        return cls._program(command_of(settings, profile), profile.install_hint, section)

    @override
    @classmethod
    def check_settings(cls, settings: AcpSettings, *, isolated: bool) -> base.SettingIssues:
        profile = profile_of(settings)
        if profile is None:
            near = get_close_matches(settings.profile, PROFILES, n=1)
            known = f"known profiles: {', '.join(sorted(PROFILES))}"
            issue = base.SettingIssue(
                key="profile",
                problem=f"is {redact(repr(settings.profile), 60)}, which is not known",
                hint=f"did you mean {near[0]}? {known}" if near else known,
            )
            return base.SettingIssues(errors=(issue,))
        errors: tuple[base.SettingIssue, ...] = ()
        if command_of(settings, profile) is None:
            problem = f"is needed where the profile is {settings.profile}"
            errors = (base.SettingIssue(key="command", problem=problem, hint=profile.install_hint),)
        return base.SettingIssues(
            errors=errors, no_sandbox=None if isolated else _missing_sandbox(settings, profile)
        )

    @override
    def home_variables(self, home: Path) -> Mapping[str, str]:
        filled: Mapping[str, str] = protocol.fill(self.profile.home_variables, "home", str(home))
        return filled

    @override
    def make_home(self) -> None:
        home = private_home(self.context, self.name, outside_temp=self.profile.home_outside_temp)
        for name, text in self.profile.home_files.items():
            write_home_file(home, name, text)

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> base.Preflight:
        """Check program, protocol, login, mode and model; see `preflight.check`."""
        context = self.context
        async with scratch_directory(context.host, context.environ, workspace_root) as scratch:
            options = replace(
                LaunchOptions.for_check(run_id, scratch), variables=self._config_variables(scratch, None)
            )
            found, self._checked = await check(self, self.profile, options)
        return found

    @override
    @asynccontextmanager
    async def open(self, request: base.SessionRequest) -> AsyncIterator[AcpSession]:
        """Start the agent and its session; leaving the context stops it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `agent_not_found`, `agent_auth`, `response_timeout`,
                `response_error` or `port_exit`; no process is left.
        """
        cwd, briefing = (
            await base.resolve_workspace(request.cwd),
            await request.briefing(base.cannot_list_skills),
        )
        events = EventQueue()
        async with AsyncExitStack() as stack:
            writable: tuple[Path, ...] = ()
            envelope_file: Path | None = None
            if briefing.envelope is not None and self.profile.system_text == "config":
                envelope_file = await _write_envelope(stack, briefing.envelope)
                writable = (envelope_file.parent,)
            server: ToolServer | None = None
            if briefing.tools:
                served = tool_server(request, briefing.tools, self.context, on_called=events.emit)
                server = await stack.enter_async_context(served)
                writable = (*writable, *server.paths)
            options = LaunchOptions.for_session(request, cwd)
            options = replace(
                options,
                variables={**self._config_variables(cwd, envelope_file), **options.variables},
                on_spawned=options.on_spawned if server is None else server.on_spawned,
                writable=writable,
            )
            session = AcpSession(
                await self.start(options),
                settings=self.settings,
                profile=self.profile,
                request=request,
                briefing=briefing,
                cwd=cwd,
                events=events,
                server=server,
                checked=self._checked,
            )
            stack.push_async_callback(session.stop)
            await session.start()
            yield session

    def _config_variables(self, cwd: Path, envelope_file: Path | None) -> Mapping[str, str]:
        """Return the variable that holds the agent's configuration, if the profile has one."""
        profile = self.profile
        if profile.config is None:
            return {}
        variable, template = profile.config
        envelope = (
            {} if envelope_file is None else protocol.fill(template, "envelope_file", str(envelope_file))
        )
        always = protocol.fill(profile.config_always, "workspace", str(cwd))
        given = profile.env_values.get(variable) or self.context.environ.get(variable)
        return {variable: protocol.config_value(always, envelope, given=given)}


async def _write_envelope(stack: AsyncExitStack, envelope: str) -> Path:
    """Write the envelope to a file for this user alone, which the stack removes."""
    directory: TemporaryDirectory[str] = await to_thread.run_sync(
        lambda: TemporaryDirectory(prefix="symphony-envelope-", ignore_cleanup_errors=True)
    )
    stack.push_async_callback(to_thread.run_sync, directory.cleanup)
    file = Path(directory.name) / "envelope.md"
    await to_thread.run_sync(lambda: file.write_text(f"{envelope}\n", "utf-8"))
    return file


def _missing_sandbox(settings: AcpSettings, profile: AcpProfile) -> base.SettingIssue | None:
    """Return why nothing would confine sessions, or None.

    The protocol has no sandbox to ask for. What remains is that the agent asks before it acts, and is
    declined.
    """
    if settings.on_approval == "accept":
        problem = "accept lets sessions do everything that they ask for, and no sandbox confines them"
        return base.SettingIssue(
            key="on_approval", problem=problem, hint=f"decline is the default; or {_HINT}"
        )
    for bypass in _BYPASSES:
        if settings.command is not None and bypass in settings.command.split():
            problem = f"holds {bypass}: sessions do not ask, and no sandbox holds them"
            return base.SettingIssue(key="command", problem=problem, hint=f"leave it out; or {_HINT}")
    if settings.mode in profile.open_modes:
        problem = f"{settings.mode} lets sessions act without asking, and no sandbox confines them"
        return base.SettingIssue(key="mode", problem=problem, hint=f"leave it out; or {_HINT}")
    if not profile.asks:
        problem = f"{settings.profile} does not say whether the agent asks first, and no sandbox confines it"
        return base.SettingIssue(key="profile", problem=problem, hint=_HINT)
    return None


async def check(
    backend: ProcessBackend[AcpSettings], profile: AcpProfile, options: LaunchOptions
) -> tuple[base.Preflight, AcpAgent]:
    """Open a session as a run would, in `options.cwd`; also return the agent that answered.

    Raises:
        AgentError: `agent_not_found`, `agent_auth` or `agent_preflight`, with a hint.
    """
    settings = backend.settings
    async with backend.running(options) as process:
        connection = Connection(
            process, read_timeout_ms=settings.read_timeout_ms, dialect=protocol.dialect(profile)
        )
        try:
            agent = await _open(connection, settings, profile, options.cwd)
        except base.AgentError as error:
            failure = error.failure
            if failure.category in {Category.AGENT_NOT_FOUND, Category.AGENT_AUTH}:
                raise
            hint = failure.hint or f"try the command by hand; {profile.install_hint}"
            raise preflight_failure(failure.message, hint=hint, blame=Blame.CONFIG) from error
    notices: tuple[str, ...] = ()
    if profile.load and agent.resume_method is None:
        notices = (f"{agent.name} cannot continue earlier sessions: every run starts a new one",)
    return base.Preflight(agent=agent.name, version=agent.version, notices=notices), agent


async def _open(connection: Connection, settings: AcpSettings, profile: AcpProfile, cwd: Path) -> AcpAgent:
    limit_ms = max(profile.start_timeout_ms, settings.read_timeout_ms)

    async def handle(message: Message) -> None:
        if isinstance(message, ServerRequest):
            await connection.refuse(message, "only a check is running")

    async def call(method: str, params: Json) -> dict[str, Any]:
        return await connection.call(method, params, handle, timeout_ms=limit_ms)

    agent = await initialize(call)
    opened = await open_session(call, params=lambda _: protocol.session(cwd=cwd))
    await select(call, settings, opened, model_in_command=bool(profile.model_argument))
    return agent

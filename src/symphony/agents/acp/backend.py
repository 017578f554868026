"""The acp backend: opens sessions of one agent that speaks the Agent Client Protocol (AG22).

Also what a person should know about its settings before anything runs.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anyio import to_thread
from typing_extensions import override

from symphony.agents.acp import protocol
from symphony.agents.acp.profiles import PROFILES, Profile, command_of, profile_of
from symphony.agents.acp.protocol import manner
from symphony.agents.acp.session import METHOD_NOT_FOUND, AcpSession, Agent, choose, greet, open_session
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
from symphony.agents.environment import private_home
from symphony.agents.events import EventQueue, redact
from symphony.agents.mcp.server import Bridge, tool_bridge
from symphony.agents.preflight import preflight_failure, scratch
from symphony.agents.wire import Connection, Message, ServerRequest
from symphony.config import AcpSettings
from symphony.domain import Blame, Category, Failure

# The check before the first dispatch: program, protocol, login, a session, its mode and model (DESIGN 9).
#
# No prompt is sent, so no model is asked. What an agent tells only when it has been prompted (a key that is
# wrong, a model that it lets anybody name) ends the first turn, by its class.


_KEPT = frozenset({Category.AGENT_NOT_FOUND, Category.AGENT_AUTH})


async def check(
    backend: ProcessBackend[AcpSettings],
    settings: AcpSettings,
    profile: Profile,
    workspace_root: Path,
    *,
    start: Callable[[Path], LaunchOptions],
) -> tuple[Preflight, Agent]:
    """Open a session as a run would, in a directory of its own; `start` tells how. Returns who answered, too.

    Raises:
        AgentError: `agent_not_found`, `agent_auth` or `agent_preflight`, with a hint.
    """
    context = backend.context
    async with (
        scratch(context.host, context.environ, workspace_root) as place,
        backend.running(start(place)) as process,
    ):
        connection = Connection(process, read_timeout_ms=settings.read_timeout_ms, manner=manner(profile))
        try:
            agent, notices = await _ask(connection, settings, profile, place)
        except AgentError as error:
            raise _failed(error, profile) from error
    return Preflight(agent=agent.name, version=agent.version, notices=notices), agent


async def _ask(
    connection: Connection, settings: AcpSettings, profile: Profile, place: Path
) -> tuple[Agent, tuple[str, ...]]:
    limit_ms = max(profile.start_timeout_ms, settings.read_timeout_ms)

    async def other(message: Message) -> None:
        if isinstance(message, ServerRequest):
            await connection.refuse(message, METHOD_NOT_FOUND, "only a check is running")

    async def call(method: str, asked: protocol.Params) -> dict[str, Any]:
        return await connection.call(method, asked, other, timeout_ms=limit_ms)

    agent = await greet(call)
    opened = await open_session(
        call,
        resume=None,
        asked=lambda session: protocol.session(cwd=place, servers=(), extra={}, session_id=session),
        refused=None,
    )
    await choose(call, settings, opened, model_in_command=bool(profile.model_argument))
    return agent, _notices(agent, profile)


def _notices(agent: Agent, profile: Profile) -> tuple[str, ...]:
    if profile.load and agent.resume_by is None:
        return (f"{agent.name} cannot go on with earlier sessions: every run starts anew",)
    return ()


def _failed(error: AgentError, profile: Profile) -> AgentError:
    failure = error.failure
    if failure.category in _KEPT:
        return error
    hint = failure.hint or f"try the command by hand; {profile.install_hint}"
    return preflight_failure(failure.message, hint=hint, blame=Blame.CONFIG)


_BYPASSES = ("--yolo", "-y", "--dangerously-skip-permissions", "--approval-mode=yolo")
_HINT = "set workspace.isolation: bwrap"


class AcpBackend(ProcessBackend[AcpSettings]):
    """An `AgentBackend` for one profile; `name` is what the workflow calls it.

    Attributes:
        profile: what is known of the agent, with what the workflow says over it.
    """

    settings_type = AcpSettings

    def __init__(self, *, settings: AcpSettings, context: BackendContext, name: str = "acp") -> None:
        self.profile = profile_of(settings) or Profile()
        super().__init__(settings=settings, context=context, name=name)
        if self.home is not None:
            hint = f"it lives in HOME={self.home}: {self.profile.login_hint}"
            self.profile = replace(self.profile, login_hint=hint)
        self._checked: Agent | None = None

    @override
    @classmethod
    def check_settings(cls, settings: AcpSettings, *, isolated: bool) -> SettingIssues:
        return SettingIssues(
            errors=setting_errors(settings), no_sandbox=missing_sandbox(settings, isolated=isolated)
        )

    @override
    @classmethod
    def command_of(cls, settings: AcpSettings) -> str | None:
        profile = profile_of(settings)
        return None if profile is None else command_of(settings, profile)

    @override
    @classmethod
    def install_hint_of(cls, settings: AcpSettings) -> str:
        return (profile_of(settings) or Profile()).install_hint

    @property
    @override
    def variables(self) -> frozenset[str]:
        return self.profile.variables

    @property
    @override
    def fixed_variables(self) -> Mapping[str, str]:
        return self.profile.env_values

    @override
    def home_variables(self, home: Path) -> Mapping[str, str]:
        moved: Mapping[str, str] = protocol.filled(self.profile.home_variables, "home", str(home))
        return moved

    @override
    def make_home(self) -> None:
        """The private home with what a profile wants to find in it."""
        home = private_home(self.context, self.name, outside_temp=self.profile.home_outside_temp)
        for name, text in self.profile.home_files.items():
            file = home / name
            try:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not file.exists():
                    file.write_text(text, "utf-8")
            except OSError as error:
                raise AgentError(_no_home(file, error)) from error

    @property
    @override
    def state_paths(self) -> tuple[str, ...]:
        return self.profile.state_paths

    @property
    @override
    def capabilities(self) -> Capabilities:
        """As the profile tells."""
        profile = self.profile
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
    @override
    def skill_roots(self) -> AgentSkillRoots:
        """As the profile tells; those at home are those of its private home, if it has one."""
        profile = self.profile
        named = self.environ.get("HOME")
        home = Path(named) if named else None
        host = () if home is None else tuple(home / name for name in profile.host_skills)
        return AgentSkillRoots(workspace=profile.workspace_skills, host=host)

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Check program, protocol, login, mode and model; see `preflight.check`."""

        def start(place: Path) -> LaunchOptions:
            return replace(LaunchOptions.for_check(run_id, place), variables=self._config(place, None))

        found, self._checked = await check(self, self.settings, self.profile, workspace_root, start=start)
        return found

    @override
    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator[AcpSession]:
        """Start the agent and its session; leaving the context stops it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `agent_not_found`, `agent_auth`, `response_timeout`,
                `response_error` or `port_exit`; nothing of the agent is left running.
        """
        cwd, briefing = await resolve_workspace(request.cwd), await request.briefing(cannot_list_skills)
        async with AsyncExitStack() as stack:
            events = EventQueue()
            envelope_file = await self._envelope_file(stack, briefing.envelope)
            bridge = await self._bridge(stack, request, briefing, events)
            start = LaunchOptions.for_session(request, cwd)
            start = replace(
                start,
                variables={**self._config(cwd, envelope_file), **start.variables},
                on_spawned=start.on_spawned if bridge is None else bridge.on_spawned,
                writable=(
                    *(() if envelope_file is None else (envelope_file.parent,)),
                    *(() if bridge is None else bridge.paths),
                ),
            )
            session = AcpSession(
                await self.start(start),
                settings=self.settings,
                profile=self.profile,
                request=request,
                briefing=briefing,
                cwd=cwd,
                events=events,
                bridge=bridge,
                expected=self._checked,
            )
            stack.push_async_callback(session.stop)
            await session.start()
            yield session

    def _config(self, cwd: Path, envelope_file: Path | None) -> Mapping[str, str]:
        """The variable that holds a configuration, for an agent that is told so."""
        profile = self.profile
        if profile.config is None:
            return {}
        variable, template = profile.config
        told = {} if envelope_file is None else protocol.filled(template, "envelope_file", str(envelope_file))
        always = protocol.filled(profile.config_always, "workspace", str(cwd))
        given = profile.env_values.get(variable) or self.context.environ.get(variable)
        return {variable: protocol.config_value(always, told, given=given)}

    async def _bridge(
        self, stack: AsyncExitStack, request: SessionRequest, briefing: Briefing, events: EventQueue
    ) -> Bridge | None:
        """Our tools for the agent; null where there are none to offer."""
        if not briefing.tools:
            return None
        bridge = tool_bridge(request, briefing.tools, self.context, on_called=events.emit)
        return await stack.enter_async_context(bridge)

    async def _envelope_file(self, stack: AsyncExitStack, envelope: str | None) -> Path | None:
        """The envelope in a file for this user alone, where the profile's configuration names one."""
        if envelope is None or self.profile.system_text != "config":
            return None
        place: TemporaryDirectory[str] = await to_thread.run_sync(
            lambda: TemporaryDirectory(prefix="symphony-envelope-", ignore_cleanup_errors=True)
        )
        stack.push_async_callback(to_thread.run_sync, place.cleanup)
        file = Path(place.name) / "envelope.md"
        await to_thread.run_sync(lambda: file.write_text(f"{envelope}\n", "utf-8"))
        return file


def _no_home(file: Path, error: OSError) -> Failure:
    return Failure(
        category=Category.STATE_DIRECTORY,
        blame=Blame.HOST,
        message=redact(f"the agent's home cannot be furnished: {file}: {error.strerror}"),
        retryable=False,
        hint="make the state directory writable",
    )


# --- what a person should know about its settings ---------------------------------------------------------


def setting_errors(settings: AcpSettings) -> tuple[SettingIssue, ...]:
    """Why no session could start with these settings; empty where one could be tried."""
    profile = profile_of(settings)
    if profile is None:
        near = get_close_matches(settings.profile, PROFILES, n=1)
        known = f"known profiles: {', '.join(sorted(PROFILES))}"
        problem = f"is {redact(repr(settings.profile), 60)}, which is not known"
        return (
            SettingIssue(
                key="profile", problem=problem, hint=f"did you mean {near[0]}? {known}" if near else known
            ),
        )
    if command_of(settings, profile) is None:
        problem = f"is needed where the profile is {settings.profile}"
        return (SettingIssue(key="command", problem=problem, hint=profile.install_hint),)
    return ()


def missing_sandbox(settings: AcpSettings, *, isolated: bool) -> SettingIssue | None:
    """Why sessions would have nothing between them and this machine; null where there is something (CL5).

    An agent of this protocol has no sandbox that we could ask for. What is left is that it asks before it
    acts and is told no, or that its processes are isolated.
    """
    profile = profile_of(settings)
    if isolated or profile is None:
        return None
    if settings.on_approval == "accept":
        problem = "accept lets sessions do whatever they ask for, and no sandbox holds them"
        return SettingIssue(key="on_approval", problem=problem, hint=f"decline is the default; or {_HINT}")
    for bypass in _BYPASSES:
        if settings.command is not None and bypass in settings.command.split():
            problem = f"holds {bypass}: sessions do not ask, and no sandbox holds them"
            return SettingIssue(key="command", problem=problem, hint=f"leave it out; or {_HINT}")
    if settings.mode in profile.open_modes:
        problem = f"{settings.mode} lets sessions act without asking, and no sandbox holds them"
        return SettingIssue(key="mode", problem=problem, hint=f"leave it out; or {_HINT}")
    if not profile.asks:
        problem = f"{settings.profile} cannot tell whether the agent asks first, and no sandbox holds it"
        return SettingIssue(key="profile", problem=problem, hint=_HINT)
    return None

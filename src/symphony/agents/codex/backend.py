"""The codex backend: opens sessions on `codex.command` with one configuration (AG22).

Its home directory, the variables that it asks for, and what a person should know about its settings.
"""

import time
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.base import (
    AgentError,
    AgentSkillRoots,
    BackendContext,
    Capabilities,
    Preflight,
    SessionRequest,
    SettingIssue,
    SettingIssues,
    resolve_workspace,
)
from symphony.agents.codex import protocol
from symphony.agents.codex.preflight import check
from symphony.agents.codex.protocol import INSTALL_HINT, LOGIN_HINT, login_hint
from symphony.agents.codex.session import CodexSession
from symphony.agents.environment import private_home
from symphony.config import CodexSettings
from symphony.domain import Blame, Category, Failure

CREDENTIAL_VARIABLES = frozenset({"OPENAI_API_KEY", "CODEX_API_KEY"})
CODEX_VARIABLES = CREDENTIAL_VARIABLES | {
    "CODEX_HOME",
    "OPENAI_BASE_URL",
    "OPENAI_ORGANIZATION",
    "OPENAI_PROJECT",
}
_OPEN = frozenset(name.lower() for name in protocol.OPEN_SANDBOXES)
_ACCEPTED_POLICIES = ("never", "on-request", "untrusted")
_BYPASSES = ("--dangerously-bypass-approvals-and-sandbox", "--yolo", "danger-full-access")
_CONFIG_TIMEOUT_MS = 5_000
_FIRST_CONFIG = """\
# Codex, as the daemon runs it here, reads this file and no other of yours. It was written once and is
# yours to edit: a model provider, an MCP server that agents may use. Codex adds the workspaces it trusts.
"""


class CodexBackend(ProcessBackend[CodexSettings]):
    """An `AgentBackend` for the app-server; `name` is what the workflow calls it."""

    settings_type = CodexSettings
    missing: ClassVar[Category] = Category.CODEX_NOT_FOUND

    def __init__(
        self,
        *,
        settings: CodexSettings,
        context: BackendContext,
        name: str = "codex",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings=settings, context=context, name=name)
        self._wall_clock = wall_clock
        self._checked_version: str | None = None
        self._provider_names: frozenset[str] | None = None

    @override
    @classmethod
    def check_settings(cls, settings: CodexSettings, *, isolated: bool) -> SettingIssues:
        return SettingIssues(
            no_sandbox=None if isolated else missing_sandbox(settings), warnings=setting_warnings(settings)
        )

    @override
    @classmethod
    def command_of(cls, settings: CodexSettings) -> str:
        return settings.command

    @override
    @classmethod
    def install_hint_of(cls, settings: CodexSettings) -> str:
        return INSTALL_HINT

    @property
    @override
    def variables(self) -> frozenset[str]:
        return CODEX_VARIABLES

    @override
    async def own_variables(self) -> frozenset[str]:
        """Those of the model providers in the operator's own config.toml cannot be done without."""
        return await super().own_variables() | await self._providers()

    @override
    def home_variables(self, home: Path) -> Mapping[str, str]:
        return {"CODEX_HOME": str(home)}

    @override
    def make_home(self) -> None:
        """Below the temp directory Codex makes no helper programs, and patches then fail in silence."""
        home = private_home(self.context, self.name, outside_temp=True)
        try:
            with (home / "config.toml").open("x", encoding="utf-8") as stream:
                stream.write(_FIRST_CONFIG)
        except FileExistsError:
            pass
        except OSError as error:
            message = f"the agent's home {home} cannot be written to: {error.strerror}"
            failure = Failure(category=Category.STATE_DIRECTORY, blame=Blame.HOST, message=message)
            raise AgentError(failure) from error

    @override
    def written_places(self, environ: Mapping[str, str]) -> tuple[Path, ...]:
        """Codex writes threads, logs, and which workspaces it trusts."""
        home = codex_home(environ)
        return () if home is None else (home,)

    @property
    @override
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
    @override
    def skill_roots(self) -> AgentSkillRoots:
        """Two of the workspace, the user's, that of its home, and the administrator's."""
        return skill_roots(self.environ)

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Check binary, version, login and sandbox; see `preflight.check`."""
        hint = LOGIN_HINT if self.home is None else login_hint(str(self.home))
        found = await check(self, self.settings, workspace_root, run_id=run_id, login_hint=hint)
        self._checked_version = found.version
        return found

    @override
    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator[CodexSession]:
        """Start the agent and its thread; leaving the context stops it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `codex_not_found`, `response_timeout`, `response_error` or
                `port_exit`; nothing of the agent is left running.
        """
        cwd = await resolve_workspace(request.cwd)
        credentials = CREDENTIAL_VARIABLES | await self._providers()
        process = await self.start(LaunchOptions.for_session(request, cwd))
        session = CodexSession(
            process,
            settings=self.settings,
            request=request,
            cwd=cwd,
            credentials=credentials - request.extra_env.keys(),
            wall_clock=self._wall_clock,
            checked_version=self._checked_version,
        )
        try:
            await session.start()
            yield session
        finally:
            await session.stop()

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
            found = await self.context.host.run(
                argv, env=dict(self.environ), timeout_ms=_CONFIG_TIMEOUT_MS, supervised=False
            )
        except OSError:
            return frozenset()
        return provider_variables(found.stdout.decode("utf-8", "replace"))


# --- its home --------------------------------------------------------------------------------------------


def codex_home(env: Mapping[str, str]) -> Path | None:
    """`$CODEX_HOME`, else `~/.codex`; null without a home."""
    if env.get("CODEX_HOME"):
        return Path(env["CODEX_HOME"])
    return Path(env["HOME"]) / ".codex" if env.get("HOME") else None


def skill_roots(env: Mapping[str, str]) -> AgentSkillRoots:
    """The directories that Codex scans: up to six levels deep, through links to directories.

    Those that ship with it lie below a hidden directory of the last but one.
    """
    own = codex_home(env)
    host = [Path(env["HOME"]) / ".agents/skills"] if env.get("HOME") else []
    host += [] if own is None else [own / "skills"]
    return AgentSkillRoots(
        workspace=(".agents/skills", ".codex/skills"), host=(*host, Path("/etc/codex/skills"))
    )


def provider_variables(config: str) -> frozenset[str]:
    """Names of the variables that the model providers of a config.toml read: `env_key`, `env_http_headers`.

    The operator named them for Codex, and a provider cannot work without them. A file that cannot be read
    names none; Codex itself complains about it.
    """
    try:
        providers = tomllib.loads(config).get("model_providers")
    except tomllib.TOMLDecodeError:
        return frozenset()
    tables = providers.values() if isinstance(providers, dict) else ()
    return frozenset(name for table in tables if isinstance(table, dict) for name in _names(table))


def _names(table: Mapping[str, Any]) -> list[str]:
    headers = table.get("env_http_headers")
    named = [table.get("env_key"), *(headers.values() if isinstance(headers, dict) else ())]
    return [name for name in named if isinstance(name, str) and name]


# --- what a person should know about its settings ---------------------------------------------------------


def missing_sandbox(settings: CodexSettings) -> SettingIssue | None:
    """Why sessions would run without a sandbox of ours; null where they are guarded (CL5).

    An agent that may ask to leave the sandbox and is always told yes has none.
    """
    hint = "leave the key out to keep the sandbox"
    for bypass in _BYPASSES:
        if bypass in settings.command.split() or f"={bypass}" in settings.command.replace('"', ""):
            return SettingIssue(
                key="command", problem=f"holds {bypass}, which takes the guards away", hint=hint
            )
    sandbox = protocol.turn_sandbox(settings, Path("/"))
    kind = str((sandbox or {}).get("type", ""))
    if kind.replace("-", "").replace("_", "").lower() in _OPEN:
        key = "thread_sandbox" if settings.turn_sandbox_policy is None else "turn_sandbox_policy"
        return SettingIssue(key=key, problem="lets sessions run without a sandbox", hint=hint)
    if settings.on_approval == "accept" and settings.approval_policy != "never":
        problem = "accept lets sessions leave the sandbox whenever they ask for it"
        return SettingIssue(key="on_approval", problem=problem, hint="decline is the default")
    return None


def setting_warnings(settings: CodexSettings) -> tuple[SettingIssue, ...]:
    """An approval policy that Codex 0.169 answers with an error; it is passed on all the same (AG14)."""
    policy = settings.approval_policy
    if isinstance(policy, str):
        known, shown = policy in _ACCEPTED_POLICIES, policy[:60]
    else:
        known, shown = set(policy) == {"granular"}, "{" + ", ".join(sorted(map(str, policy)))[:60] + ": …}"
    if known:
        return ()
    names = ", ".join(_ACCEPTED_POLICIES)
    issue = SettingIssue(
        key="approval_policy",
        problem=f"{shown!r} is refused by Codex 0.169, and then no session starts",
        hint=f"write {names} or {{granular: …}}; `never` declines what an unattended session would ask for",
    )
    return (issue,)

"""The backend of kind `codex`: starts `codex.command`, checks its settings, and opens sessions."""

import os
import stat
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

from typing_extensions import override

from symphony import to_thread
from symphony.agents import base
from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.codex import protocol
from symphony.agents.codex.preflight import check
from symphony.agents.codex.session import CodexSession
from symphony.agents.environment import private_home, write_home_file
from symphony.agents.event_queue import EventQueue
from symphony.agents.folders import CODEX_FOLDERS
from symphony.agents.json_fields import object_in, text_in
from symphony.config import CodexSettings
from symphony.domain import Category

_SKILL_PLACES: Final = (".agents/skills", ".codex/skills")
CREDENTIAL_VARIABLES: Final = frozenset({"OPENAI_API_KEY", "CODEX_API_KEY"})
CODEX_VARIABLES: Final = CREDENTIAL_VARIABLES | {
    "CODEX_HOME",
    "OPENAI_BASE_URL",
    "OPENAI_ORGANIZATION",
    "OPENAI_PROJECT",
}
_ACCEPTED_POLICIES: Final = ("never", "on-request", "untrusted")
_ACCEPTED_SANDBOXES: Final = ("workspace-write", "read-only", "danger-full-access")
_ACCEPTED_TYPES: Final = ("workspaceWrite", "readOnly", "dangerFullAccess", "externalSandbox")
_BYPASSES: Final = ("--dangerously-bypass-approvals-and-sandbox", "--yolo", "danger-full-access")
_MAX_CONFIG_BYTES: Final = 1_048_576
_FIRST_CONFIG: Final = """\
# Codex, as the daemon runs it here, reads this file and no other of yours. It was written once and is
# yours to edit: a model provider, an MCP server that agents may use. Codex adds the workspaces it trusts.
"""


class CodexBackend(ProcessBackend[CodexSettings]):
    """Opens sessions on the app-server of Codex."""

    settings_type = CodexSettings
    not_found: ClassVar[Category] = Category.CODEX_NOT_FOUND
    install_hint = protocol.INSTALL_HINT
    variables = CODEX_VARIABLES
    folders = CODEX_FOLDERS
    capabilities = base.Capabilities(
        system_block_at_start=True,
        system_block_on_resume=True,
        client_tools=True,
        absolute_usage=True,
        rate_limits=True,
        sandbox=True,
        resume=True,
    )

    def __init__(self, *, settings: CodexSettings, context: base.BackendContext, name: str = "codex") -> None:
        super().__init__(settings=settings, context=context, name=name)
        self.skill_roots = codex_skill_roots(self.environ)
        self._checked_version: str | None = None
        self._provider_variables: frozenset[str] | None = None

    @override
    @classmethod
    def skill_places(cls, settings: CodexSettings) -> tuple[str, ...]:
        del settings
        return _SKILL_PLACES

    @override
    @classmethod
    def check_settings(cls, settings: CodexSettings, *, isolated: bool) -> base.SettingIssues:
        return base.SettingIssues(
            warnings=(*_policy_warnings(settings), *_sandbox_warnings(settings)),
            no_sandbox=None if isolated else _missing_sandbox(settings),
        )

    @override
    async def own_variables(self) -> frozenset[str]:
        """Add the variables that model providers in the operator's config.toml need."""
        return await super().own_variables() | await self._read_providers()

    @override
    def home_variables(self, home: Path) -> Mapping[str, str]:
        return {"CODEX_HOME": str(home)}

    @override
    def make_home(self) -> None:
        """Below the temp directory Codex makes no helper programs, and patches then fail silently."""
        home = private_home(self.context, self.name, outside_temp=True)
        write_home_file(home, "config.toml", _FIRST_CONFIG)

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> base.Preflight:
        """Check version, login, home, model and sandbox; see `preflight.check`."""
        found = await check(self, workspace_root, run_id=run_id)
        self._checked_version = found.version
        return found

    @override
    @asynccontextmanager
    async def open(self, request: base.SessionRequest) -> AsyncIterator[CodexSession]:
        """Start the agent and its thread; leaving the context stops it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `codex_not_found`, `response_timeout`, `response_error` or
                `port_exit`; no process is left.
        """
        cwd = await base.resolve_workspace(request.cwd)
        credentials = CREDENTIAL_VARIABLES | await self._read_providers()
        session = CodexSession(
            await self.start(LaunchOptions.for_session(request, cwd)),
            settings=protocol.without_writing(self.settings) if request.read_only else self.settings,
            request=request,
            cwd=cwd,
            events=EventQueue(),
            credentials=credentials - request.extra_env.keys(),
            checked_version=self._checked_version,
        )
        try:
            await session.start()
            yield session
        finally:
            await session.stop()

    async def _read_providers(self) -> frozenset[str]:
        """Read config.toml once: the daemon's environment gets new variables only at a restart."""
        if self._provider_variables is None:
            home = codex_home(self.environ)
            text = "" if home is None else await to_thread.run_sync(_read_config, home / "config.toml")
            self._provider_variables = provider_variables(text)
        return self._provider_variables


def codex_home(env: Mapping[str, str]) -> Path | None:
    """Return `$CODEX_HOME`, else `~/.codex`, else None."""
    if env.get("CODEX_HOME"):
        return Path(env["CODEX_HOME"])
    return Path(env["HOME"]) / ".codex" if env.get("HOME") else None


def codex_skill_roots(env: Mapping[str, str]) -> base.AgentSkillRoots:
    """Return the directories that Codex scans, up to six levels deep, following links to directories.

    Skills that ship with Codex lie in a hidden directory of its home.
    """
    home = codex_home(env)
    user = (Path(env["HOME"]) / ".agents/skills",) if env.get("HOME") else ()
    own = () if home is None else (home / "skills",)
    return base.AgentSkillRoots(workspace=_SKILL_PLACES, host=(*user, *own, Path("/etc/codex/skills")))


def _read_config(file: Path) -> str:
    """Return the text of a file, empty if it cannot be read; blocking.

    Agents can write to their home, so it may be a pipe or of any size.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read(_MAX_CONFIG_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    except OSError:
        return ""


def provider_variables(config: str) -> frozenset[str]:
    """Return the variables that the model providers of a config.toml read: `env_key`, `env_http_headers`.

    A file that cannot be parsed names none; Codex itself complains about it.
    """
    try:
        providers = object_in(tomllib.loads(config), "model_providers")
    except tomllib.TOMLDecodeError:
        return frozenset()
    names: list[object] = []
    for name in providers:
        table = object_in(providers, name)
        names += [text_in(table, "env_key"), *object_in(table, "env_http_headers").values()]
    return frozenset(name for name in names if isinstance(name, str) and name)


def _missing_sandbox(settings: CodexSettings) -> base.SettingIssue | None:
    """Return why sessions would run without a sandbox, or None.

    An agent that may ask to leave the sandbox, and always gets permission, has none.
    """
    hint = "leave the key out to keep the sandbox"
    for bypass in _BYPASSES:
        if bypass in settings.command.split() or f"={bypass}" in settings.command.replace('"', ""):
            problem = f"holds {bypass}, which takes the guards away"
            return base.SettingIssue(key="command", problem=problem, hint=hint)
    policy = protocol.turn_sandbox(settings, Path("/")) or {}
    mode = text_in(policy, "type").replace("-", "").replace("_", "").lower()
    if mode in {name.lower() for name in protocol.OPEN_SANDBOXES}:
        key = "thread_sandbox" if settings.turn_sandbox_policy is None else "turn_sandbox_policy"
        return base.SettingIssue(key=key, problem="lets sessions run without a sandbox", hint=hint)
    if settings.on_approval == "accept" and settings.approval_policy != "never":
        problem = "accept lets sessions leave the sandbox if they ask"
        return base.SettingIssue(key="on_approval", problem=problem, hint="decline is the default")
    return None


def _policy_warnings(settings: CodexSettings) -> tuple[base.SettingIssue, ...]:
    """Warn of an approval policy that Codex 0.169 answers with an error; it is passed on all the same."""
    policy = settings.approval_policy
    if isinstance(policy, str):
        known, shown = policy in _ACCEPTED_POLICIES, policy[:60]
    else:
        known, shown = set(policy) == {"granular"}, "{" + ", ".join(sorted(map(str, policy)))[:60] + ": …}"
    if known:
        return ()
    names = ", ".join(_ACCEPTED_POLICIES)
    issue = base.SettingIssue(
        key="approval_policy",
        problem=f"{shown!r} is refused by Codex 0.169, and then no session starts",
        hint=f"write {names} or {{granular: …}}; `never` declines what an unattended session would ask for",
    )
    return (issue,)


def _sandbox_warnings(settings: CodexSettings) -> Iterator[base.SettingIssue]:
    """Warn of sandboxes that Codex 0.169 answers with an error; they are passed on all the same."""
    refused = "is refused by Codex 0.169, and then no session starts"
    mode, policy = settings.thread_sandbox, settings.turn_sandbox_policy
    if mode not in _ACCEPTED_SANDBOXES:
        hint = f"write {', '.join(_ACCEPTED_SANDBOXES)}, or leave it out for workspace-write"
        yield base.SettingIssue(key="thread_sandbox", problem=f"{mode[:60]!r} {refused}", hint=hint)
    if policy is not None and policy.get("type") not in _ACCEPTED_TYPES:
        given = text_in(policy, "type")
        problem = f"has the type {given[:60]!r}, which {refused}" if given else f"has no type, and {refused}"
        hint = f"write type: {', '.join(_ACCEPTED_TYPES)}, or leave the key out: then commits work"
        yield base.SettingIssue(key="turn_sandbox_policy", problem=problem, hint=hint)

"""The check of Codex before the first dispatch: version, login, home, model, and one sandboxed command.

Each of these faults lets turns "complete" without doing anything. They are found once, before any issue is
claimed, by asking the app-server in the way that sessions will use it. What another agent that speaks the
protocol does not know is noted and tolerated.

An installed Codex of another version than `TRIED_VERSION` is compared with this module by its own JSON
schemas: the names of methods and params, and which params are required. What Symphony sends is taken from the
functions that make it, with every setting set, so that there is no second list to maintain.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from symphony import to_thread
from symphony.agents import wire
from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.base import AgentError, Preflight
from symphony.agents.codex import protocol
from symphony.agents.codex.session import ANSWERED, REFUSED
from symphony.agents.environment import temp_directory
from symphony.agents.events import LogNotice, redact
from symphony.agents.json_fields import Json, objects_in, text_in
from symphony.agents.preflight import preflight_failure, scratch_directory
from symphony.agents.process import AgentProcess
from symphony.config import CodexSettings
from symphony.domain import Blame, Category, Failure, ToolSpec

_COMMAND_TIMEOUT_MS: Final = 15_000
_SCHEMAS_TIMEOUT_MS: Final = 15_000
_MARKER: Final = "symphony-preflight-ok"
_NO_NAMESPACES: Final = ("new namespace failed", "user namespace", "uid map", "unshare")
# -32601, or the code that Codex uses for everything together with one of these phrases.
_UNKNOWN_METHOD: Final = (
    *("unknown variant", "unknown method", "method not found", "not supported", "unsupported"),
)

_NAMESPACE_HINT: Final = (
    "enable unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0), or set codex.thread_sandbox: danger-full-access "
    "where a container is the sandbox"
)
_HOME_HINT: Final = (
    "set CODEX_HOME (or HOME) outside the temp directory, or TMPDIR to another place than the one above it"
)
_SANDBOX_HINT: Final = "see the message; codex.thread_sandbox: danger-full-access is for containers only"


async def check(backend: ProcessBackend[CodexSettings], workspace_root: Path, *, run_id: str) -> Preflight:
    """Start the agent once as a session would and try what sessions rely on.

    Raises:
        AgentError: `codex_not_found`, `agent_auth` or `agent_preflight`, with a hint.
    """
    async with (
        scratch_directory(backend.context.host, backend.environ, workspace_root) as scratch,
        backend.running(LaunchOptions.for_check(run_id, scratch)) as process,
    ):
        found = await _Check(backend, process, scratch).run()
        if found.agent != "codex" or found.version == TRIED_VERSION:
            return found
        notices = await _compare_version(backend, found.version, scratch, run_id=run_id)
        return replace(found, notices=(*found.notices, *notices))


class _Check:
    """The steps of the check, in an order in which the first failure is the one to repair first."""

    def __init__(self, backend: ProcessBackend[CodexSettings], process: AgentProcess, scratch: Path) -> None:
        self._backend = backend
        self._settings = backend.settings
        self._scratch = scratch
        self._sandbox = protocol.turn_sandbox(self._settings, scratch)
        self._connection = wire.Connection(
            process, read_timeout_ms=self._settings.read_timeout_ms, dialect=protocol.DIALECT
        )
        self._notices: list[str] = []

    async def run(self) -> Preflight:
        greeting = await self._initialize()
        agent, version = protocol.parse_user_agent(text_in(greeting, "userAgent"))
        if agent is None:
            self._notices.append("the agent did not tell its name and version")
        if agent == "codex":
            self._check_home(text_in(greeting, "codexHome"))
        await self._check_login()
        await self._check_model()
        await self._check_sandbox()
        return Preflight(
            agent=agent or "unknown",
            version=version or "unknown",
            notices=tuple(dict.fromkeys(self._notices)),
        )

    async def _initialize(self) -> dict[str, Any]:
        try:
            greeting = await self._connection.call("initialize", protocol.initialize(), self._handle)
            await self._connection.notify("initialized")
        except AgentError as error:
            if error.failure.category is Category.CODEX_NOT_FOUND:
                raise
            text = f"codex.command does not answer as an app-server: {error.failure.message}"
            hint = f"try the command by hand; {protocol.INSTALL_HINT}"
            raise preflight_failure(text, hint=hint) from error
        return greeting

    def _check_home(self, home: str) -> None:
        """Below the temp directory Codex makes no helper programs, and patches then fail silently."""
        temp = temp_directory(self._backend.environ)
        if home and not self._is_open() and Path(home).resolve().is_relative_to(temp.resolve()):
            text = f"CODEX_HOME {home} lies below the temp directory {temp}"
            raise preflight_failure(text, hint=_HOME_HINT)

    async def _check_login(self) -> None:
        answer = await self._ask("account/read", {"refreshToken": False})
        if answer is None:
            self._notices.append("the agent does not answer account/read: its login was not checked")
        elif answer.get("requiresOpenaiAuth") is True and answer.get("account") is None:
            failure = Failure(
                category=Category.AGENT_AUTH,
                blame=Blame.CONFIG,
                message="Codex is not logged in",
                retryable=False,
                hint=protocol.login_hint(self._backend.home),
            )
            raise AgentError(failure)

    async def _check_model(self) -> None:
        """Note an unknown model or effort. It is tried anyway, because providers have their own models."""
        model, effort = self._settings.model, self._settings.effort
        if model is None and effort is None:
            return
        models = objects_in(await self._ask("model/list", {}) or {}, "data")
        if not models:
            return
        if model is None:
            chosen = [entry for entry in models if entry.get("isDefault")]
        else:
            chosen = [entry for entry in models if entry.get("model") == model]
            if not chosen:
                names = ", ".join(text_in(entry, "model") for entry in models)
                self._notices.append(redact(f"codex.model {model} is none that this Codex knows: {names}"))
        efforts = [
            text_in(one, "reasoningEffort")
            for entry in chosen
            for one in objects_in(entry, "supportedReasoningEfforts")
        ]
        if effort is not None and efforts and effort not in efforts:
            text = f"codex.effort {effort} is none of this model: {', '.join(efforts)}"
            self._notices.append(redact(text))

    async def _check_sandbox(self) -> None:
        """Run a command in the sandbox. With the default policy it tries the writes that a commit needs."""
        script = f"echo {_MARKER}"
        default = self._settings.turn_sandbox_policy is None and not self._is_open()
        if default and self._settings.thread_sandbox == "workspace-write":
            script = f": > made && : > .git/made && {script}"
        params = {
            "command": ["/bin/sh", "-c", script],
            "cwd": str(self._scratch),
            "timeoutMs": _COMMAND_TIMEOUT_MS,
            **({} if self._sandbox is None else {"sandboxPolicy": self._sandbox}),
        }
        answer = await self._ask("command/exec", params, timeout_ms=_COMMAND_TIMEOUT_MS + 5_000)
        if answer is None:
            self._notices.append("the agent does not answer command/exec: its sandbox was not tried")
        elif answer.get("exitCode") != 0 or _MARKER not in text_in(answer, "stdout"):
            lines = [line for line in text_in(answer, "stderr").splitlines() if line.strip()]
            output = redact(" ".join(lines), 300) or "it printed nothing"
            code = answer.get("exitCode")
            text = f"a command in the agent's sandbox failed with exit code {code}: {output}"
            namespaces = any(phrase in output.lower() for phrase in _NO_NAMESPACES)
            raise preflight_failure(text, hint=_NAMESPACE_HINT if namespaces else _SANDBOX_HINT)

    def _is_open(self) -> bool:
        return self._sandbox is not None and self._sandbox.get("type") in protocol.OPEN_SANDBOXES

    async def _ask(
        self, method: str, params: Json, *, timeout_ms: int | None = None
    ) -> dict[str, Any] | None:
        """Return the answer; None from an agent that does not know the method."""
        try:
            return await self._connection.call(method, params, self._handle, timeout_ms=timeout_ms)
        except AgentError as error:
            message = error.failure.message
            if isinstance(error, wire.RpcError) and (
                error.code == wire.METHOD_NOT_FOUND
                or any(phrase in message.lower() for phrase in _UNKNOWN_METHOD)
            ):
                return None
            raise preflight_failure(message, hint=_SANDBOX_HINT) from error

    async def _handle(self, message: wire.Message) -> None:
        if isinstance(message, wire.ServerRequest):
            await self._connection.refuse(message, "only a check is running")
        elif isinstance(message, wire.ServerNotification):
            notices = [event for event in protocol.translate(message).events if isinstance(event, LogNotice)]
            self._notices.extend(notice.message for notice in notices if notice.level != "info")


# --- another version than the one tried --------------------------------------------------------------------

TRIED_VERSION: Final = "0.169.0"
SCHEMAS: Final = ("ClientRequest", "ServerRequest", "ServerNotification")
"""The files of `codex app-server generate-json-schema` that are compared."""

_REQUIRED: Final = frozenset({"initialize", "thread/start", "turn/start", "turn/interrupt"})
# These are not in the schemas of `TRIED_VERSION` any more.
_REMOVED: Final = frozenset({"turn/failed", "turn/cancelled"})
_SETTINGS: Final = CodexSettings(model="m", effort="high")
_CWD: Final = Path("/workspace")
_TOOL: Final = ToolSpec(name="t", description="d", input_schema={"type": "object"})

SENT: Final[Mapping[str, Json]] = {
    "initialize": protocol.initialize(),
    "thread/start": protocol.thread_start(
        _SETTINGS, cwd=_CWD, envelope="e", tools=[_TOOL], credentials=["K"], agent_lists_skills=False
    ),
    "thread/resume": protocol.thread_resume(
        _SETTINGS, thread_id="t", cwd=_CWD, credentials=["K"], agent_lists_skills=False
    ),
    "turn/start": protocol.turn_start(_SETTINGS, thread_id="t", cwd=_CWD, prompt="p", envelope="e"),
    "turn/interrupt": {"threadId": "t", "turnId": "u"},
    "thread/name/set": {"threadId": "t", "name": "n"},
    "account/read": {"refreshToken": False},
    "model/list": {},
    "command/exec": {"command": ["true"], "cwd": "/", "timeoutMs": 1, "sandboxPolicy": {}},
}
"""Every request that may be sent, with every param that it may carry."""


class Drift(Struct, frozen=True, kw_only=True):
    """The differences of a version; `fatal` if no session could run."""

    fatal: bool
    findings: tuple[str, ...]


def drift(schemas: Mapping[str, Json]) -> Drift:
    """Compare the schemas, by the names of `SCHEMAS`, with what Symphony sends, answers and translates."""
    known = _methods(schemas["ClientRequest"])
    missing = [method for method in SENT if method not in known]
    findings = [f"it does not know {method}" for method in missing]
    for method, params in SENT.items():
        if method in known:
            findings += _differences(method, params, known[method])
    requests = _methods(schemas["ServerRequest"]).keys() - ANSWERED - REFUSED
    findings += [f"it may ask {method}, which is refused" for method in sorted(requests)]
    silent = protocol.TRANSLATED - _REMOVED - _methods(schemas["ServerNotification"]).keys()
    findings += [f"it does not tell {method}" for method in sorted(silent)]
    return Drift(fatal=not _REQUIRED.isdisjoint(missing), findings=tuple(findings))


def _differences(method: str, params: Json, schema: Json) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required", ())
    if isinstance(properties, dict):
        yield from (f"{method} does not take {name}" for name in sorted(params.keys() - properties.keys()))
    yield from (f"{method} wants {name}" for name in required if name not in params)


def _methods(schema: Json) -> dict[str, Json]:
    """Return the schema of the params of each method that a file describes."""
    definitions = schema.get("definitions", {})
    found: dict[str, Json] = {}
    for entry in schema.get("oneOf", ()):
        properties = entry.get("properties", {})
        params = properties.get("params", {})
        name = str(params.get("$ref", "")).removeprefix("#/definitions/")
        for method in properties.get("method", {}).get("enum", ()):
            found[method] = definitions.get(name, params)
    return found


async def _compare_version(
    backend: ProcessBackend[CodexSettings], version: str, scratch: Path, *, run_id: str
) -> tuple[str, ...]:
    """Return notices about a version that was not tried; its schemas are written below `scratch`.

    Raises:
        AgentError: `agent_preflight`: it lacks what every session needs.
    """
    intro = f"Codex {version} is another version than {TRIED_VERSION}, with which this was tried"
    command = f"{backend.command} generate-json-schema --experimental --out schemas"

    def read_schemas() -> dict[str, Json]:
        texts = {name: (scratch / "schemas" / f"{name}.json").read_text("utf-8") for name in SCHEMAS}
        return {name: json.loads(text) for name, text in texts.items()}

    try:
        await backend.run_command(command, run_id=run_id, timeout_ms=_SCHEMAS_TIMEOUT_MS, cwd=scratch)
        drifted = drift(await to_thread.run_sync(read_schemas))
    except (OSError, ValueError):
        return (f"{intro}; it does not tell its protocol",)
    if not drifted.findings:
        return (redact(f"{intro}; its protocol is the same where it matters"),)
    text = f"{intro}: {'; '.join(drifted.findings)}"
    if drifted.fatal:
        raise preflight_failure(text, hint=f"install version {TRIED_VERSION} of @openai/codex")
    return (redact(text),)

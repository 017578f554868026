"""The check before the first dispatch: binary, version, login, homes, one sandboxed command (DESIGN 9).

Each of these faults lets turns "complete" without doing anything, which is why they are looked for once,
loudly, and before any issue is claimed. The app-server itself is asked, in the way sessions will use it; what
another speaker of the protocol does not know is noted and tolerated.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.base import AgentError, Preflight
from symphony.agents.codex import protocol
from symphony.agents.codex.protocol import HEARD, INSTALL_HINT, translate
from symphony.agents.codex.session import ANSWERED, MANNER, METHOD_NOT_FOUND, REFUSED, who
from symphony.agents.events import Notice, redact
from symphony.agents.preflight import preflight_failure, scratch
from symphony.agents.process import AgentProcess
from symphony.agents.wire import Connection, Message, Notification, RefusedError, ServerRequest
from symphony.config import CodexSettings
from symphony.domain import Blame, Category, Failure, ToolSpec

# Where the protocol of an installed Codex has drifted from what we speak, by its own schemas. Pure.
#
# What we send is taken from the functions that make it, with every setting set, so that no second list can
# lag behind. Compared are names and what must be there: a change of meaning is not seen.


TRIED: Final = "0.169.0"
"""The version that all of this was tried with."""

SCHEMAS: Final = ("ClientRequest", "ServerRequest", "ServerNotification")
"""The files of `codex app-server generate-json-schema` that are compared."""

ESSENTIAL: Final = frozenset({"initialize", "thread/start", "turn/start", "turn/interrupt"})
"""Requests without which there is no session."""

# No longer in the schemas of the version tried, and heard of others.
_OLDER: Final = frozenset({"turn/failed", "turn/cancelled"})
_SETTINGS: Final = CodexSettings(model="m", effort="high")
_PLACE: Final = Path("/workspace")
_TOOL: Final = ToolSpec(name="t", description="d", input_schema={"type": "object"})

SENT: Final[Mapping[str, protocol.Params]] = {
    "initialize": protocol.initialize(),
    "thread/start": protocol.thread_start(
        _SETTINGS, cwd=_PLACE, envelope="e", tools=[_TOOL], credentials=["K"], agent_lists_skills=False
    ),
    "thread/resume": protocol.thread_resume(
        _SETTINGS, thread_id="t", cwd=_PLACE, credentials=["K"], agent_lists_skills=False
    ),
    "turn/start": protocol.turn_start(_SETTINGS, thread_id="t", cwd=_PLACE, prompt="p", envelope="e"),
    "turn/interrupt": {"threadId": "t", "turnId": "u"},
    "thread/name/set": {"threadId": "t", "name": "n"},
    "account/read": {"refreshToken": False},
    "model/list": {},
    "command/exec": {"command": ["true"], "cwd": "/", "timeoutMs": 1, "sandboxPolicy": {}},
}
"""Every request that we may send, with every parameter that it may carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What no longer fits, a phrase each; `fatal` where no session could be run."""

    fatal: bool
    findings: tuple[str, ...]


def drift(schemas: Mapping[str, Mapping[str, Any]]) -> Drift:
    """Compare the schemas (by the names of `SCHEMAS`) with what we send, answer and hear."""
    known = _methods(schemas["ClientRequest"])
    missing = [method for method in SENT if method not in known]
    findings = [f"it does not know {method}" for method in missing]
    for method, asked in SENT.items():
        if method in known:
            findings += _differences(method, asked, known[method])
    asks = _methods(schemas["ServerRequest"]).keys() - ANSWERED - REFUSED
    findings += [f"it may ask {method}, which is refused" for method in sorted(asks)]
    silent = HEARD - _OLDER - _methods(schemas["ServerNotification"]).keys()
    findings += [f"it does not tell {method}" for method in sorted(silent)]
    return Drift(fatal=not ESSENTIAL.isdisjoint(missing), findings=tuple(findings))


def _differences(method: str, asked: protocol.Params, schema: Mapping[str, Any]) -> Iterator[str]:
    takes, wants = schema.get("properties"), schema.get("required", ())
    if isinstance(takes, dict):
        yield from (f"{method} does not take {name}" for name in sorted(asked.keys() - takes.keys()))
    yield from (f"{method} wants {name}" for name in wants if name not in asked)


def _methods(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The schema of the params of each method that a file tells of."""
    definitions = schema.get("definitions", {})
    found: dict[str, Mapping[str, Any]] = {}
    for entry in schema.get("oneOf", ()):
        properties = entry.get("properties", {})
        asked = properties.get("params", {})
        name = str(asked.get("$ref", "")).removeprefix("#/definitions/")
        for method in properties.get("method", {}).get("enum", ()):
            found[method] = definitions.get(name, asked)
    return found


_COMMAND_TIMEOUT_MS = 15_000
_SCHEMAS_TIMEOUT_MS = 15_000
_MARKER = "symphony-preflight-ok"
_NO_NAMESPACES = ("new namespace failed", "user namespace", "uid map", "unshare")

_NAMESPACE_HINT = (
    "enable unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0), or set codex.thread_sandbox: danger-full-access "
    "where a container is the sandbox"
)
_HOME_HINT = (
    "set CODEX_HOME (or HOME) outside the temp directory, or TMPDIR to another place than the one above it"
)
_SANDBOX_HINT = "see the message; codex.thread_sandbox: danger-full-access is for containers only"


async def check(
    backend: ProcessBackend[CodexSettings],
    settings: CodexSettings,
    workspace_root: Path,
    *,
    run_id: str,
    login_hint: str,
) -> Preflight:
    """Start the agent once as a session would and try what sessions rely on.

    Works in a directory of its own below `<workspace_root>/.symphony`, a name that no workspace has.

    Raises:
        AgentError: `codex_not_found`, `agent_auth` or `agent_preflight`, with a hint.
    """
    context = backend.context
    async with (
        scratch(context.host, backend.environ, workspace_root) as place,
        backend.running(LaunchOptions.for_check(run_id, place)) as process,
    ):
        temp = Path(backend.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - where Codex looks, nothing is made
        found = await _Check(settings, place, process, temp=temp, login_hint=login_hint).run()
        notices = await _drifted(backend, found, place, run_id=run_id)
        return replace(found, notices=(*found.notices, *notices))


class _Check:
    """The questions, in an order in which the first failure is the one to repair first."""

    def __init__(
        self, settings: CodexSettings, place: Path, process: AgentProcess, *, temp: Path, login_hint: str
    ) -> None:
        self._settings = settings
        self._temp = temp
        self._login_hint = login_hint
        self._scratch = place
        self._sandbox = protocol.turn_sandbox(settings, place)
        self._connection = Connection(process, read_timeout_ms=settings.read_timeout_ms, manner=MANNER)
        self._notices: list[str] = []

    async def run(self) -> Preflight:
        greeting = await self._greet()
        agent, version = who(str(greeting.get("userAgent", "")))
        if agent is None:
            self._notices.append("the agent did not tell its name and version")
        if agent == "codex":
            self._check_home(greeting.get("codexHome"))
        await self._check_login()
        await self._check_model()
        await self._check_sandbox()
        return Preflight(
            agent=agent or "unknown",
            version=version or "unknown",
            notices=tuple(dict.fromkeys(self._notices)),
        )

    async def _greet(self) -> dict[str, Any]:
        try:
            greeting = await self._connection.call("initialize", protocol.initialize(), self._other)
            await self._connection.tell("initialized")
        except AgentError as error:
            if error.failure.category is Category.CODEX_NOT_FOUND:
                raise
            text = f"codex.command does not answer as an app-server: {error.failure.message}"
            raise preflight_failure(text, hint=f"try the command by hand; {INSTALL_HINT}") from error
        return greeting

    def _check_home(self, home: object) -> None:
        """Below the temp directory Codex makes no helper programs, and patches then fail in silence."""
        if not isinstance(home, str) or self._is_open():
            return
        if Path(home).resolve().is_relative_to(self._temp.resolve()):
            text = f"CODEX_HOME {home} lies below the temp directory {self._temp}"
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
                hint=self._login_hint,
            )
            raise AgentError(failure)

    async def _check_model(self) -> None:
        """A model out of nowhere is tried all the same, with guesses about it: providers have their own."""
        name, effort = self._settings.model, self._settings.effort
        answer = None if name is None and effort is None else await self._ask("model/list", {})
        listed = answer.get("data") if answer is not None else None
        models = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        if not models:
            return
        names = ", ".join(str(entry.get("model")) for entry in models)
        found = [
            entry
            for entry in models
            if entry.get("model") == name or (name is None and entry.get("isDefault"))
        ]
        if name is not None and not found:
            self._notices.append(redact(f"codex.model {name} is none that this Codex knows: {names}"))
        efforts = [
            str(one.get("reasoningEffort"))
            for entry in found
            for one in entry.get("supportedReasoningEfforts", ())
        ]
        if effort is not None and efforts and effort not in efforts:
            text = f"codex.effort {effort} is none of this model: {', '.join(efforts)}"
            self._notices.append(redact(text))

    async def _check_sandbox(self) -> None:
        asked = {
            "command": ["/bin/sh", "-c", self._script()],
            "cwd": str(self._scratch),
            "timeoutMs": _COMMAND_TIMEOUT_MS,
            **({} if self._sandbox is None else {"sandboxPolicy": self._sandbox}),
        }
        answer = await self._ask("command/exec", asked, timeout_ms=_COMMAND_TIMEOUT_MS + 5_000)
        if answer is None:
            self._notices.append("the agent does not answer command/exec: its sandbox was not tried")
        elif answer.get("exitCode") != 0 or _MARKER not in str(answer.get("stdout")):
            raise _sandbox_refusal(answer)

    def _script(self) -> str:
        """Where our own recipe holds, what a commit needs: files can be made beside and inside `.git`."""
        ours = self._settings.turn_sandbox_policy is None and not self._is_open()
        writes = ours and self._settings.thread_sandbox == "workspace-write"
        return f": > made && : > .git/made && echo {_MARKER}" if writes else f"echo {_MARKER}"

    def _is_open(self) -> bool:
        return self._sandbox is not None and self._sandbox.get("type") in protocol.OPEN_SANDBOXES

    async def _ask(
        self, method: str, asked: protocol.Params, *, timeout_ms: int | None = None
    ) -> dict[str, Any] | None:
        """The answer, or null from an agent that does not know the method."""
        try:
            return await self._connection.call(method, asked, self._other, timeout_ms=timeout_ms)
        except RefusedError as error:
            if _unknown_method(error):
                return None
            raise preflight_failure(error.failure.message, hint=_SANDBOX_HINT) from error
        except AgentError as error:
            raise preflight_failure(error.failure.message, hint=_SANDBOX_HINT) from error

    async def _other(self, message: Message) -> None:
        if isinstance(message, ServerRequest):
            await self._connection.refuse(message, METHOD_NOT_FOUND, "only a check is running")
        elif isinstance(message, Notification):
            notices = [event for event in translate(message).events if isinstance(event, Notice)]
            self._notices.extend(notice.message for notice in notices if notice.level != "info")


async def _drifted(
    backend: ProcessBackend[CodexSettings], found: Preflight, place: Path, *, run_id: str
) -> tuple[str, ...]:
    """What to know about a version that this was not tried with.

    Raises:
        AgentError: `agent_preflight`, when it lacks what every session needs.
    """
    if found.agent != "codex" or found.version == TRIED:
        return ()
    told = f"Codex {found.version} is another version than {TRIED}, with which this was tried"
    schemas = await _schemas(backend, place, run_id=run_id)
    if schemas is None:
        return (f"{told}; it does not tell its protocol",)
    drifted = drift(schemas)
    more = [] if not drifted.findings else [f"{told}: {'; '.join(drifted.findings)}"]
    if drifted.fatal:
        raise preflight_failure(more[0], hint=f"install version {TRIED} of @openai/codex")
    return tuple(redact(text) for text in more or [f"{told}; its protocol is the same where it matters"])


async def _schemas(
    backend: ProcessBackend[CodexSettings], place: Path, *, run_id: str
) -> Mapping[str, Any] | None:
    """The protocol of the program that is there, by its own account; None where it gives none.

    `place` is a directory in which the account is written.
    """
    command = f"{backend.command} generate-json-schema --experimental --out schemas"
    try:
        await backend.ask(command, run_id=run_id, timeout_ms=_SCHEMAS_TIMEOUT_MS, cwd=place)
        return await to_thread.run_sync(_read_schemas, place / "schemas")
    except (OSError, ValueError):
        return None


def _read_schemas(folder: Path) -> Mapping[str, Any]:
    """Raises `OSError` and `ValueError`."""
    return {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in SCHEMAS}


def _unknown_method(error: RefusedError) -> bool:
    """-32601, or the code that Codex uses for everything together with its words for it."""
    words = ("unknown variant", "unknown method", "method not found", "not supported", "unsupported")
    return error.code == METHOD_NOT_FOUND or any(word in error.failure.message.lower() for word in words)


def _sandbox_refusal(answer: dict[str, Any]) -> AgentError:
    told = [line for line in str(answer.get("stderr") or "").splitlines() if line.strip()]
    said = redact(" ".join(told), 300) or "it printed nothing"
    text = f"a command in the agent's sandbox failed with exit code {answer.get('exitCode')}: {said}"
    namespaces = any(word in said.lower() for word in _NO_NAMESPACES)
    return preflight_failure(text, hint=_NAMESPACE_HINT if namespaces else _SANDBOX_HINT)

"""How a session comes to be: handshake, the session to go on with or a new one, its mode and model (AG4).

The preflight takes the same way, so that what it finds is what a session would meet.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from symphony.agents.acp import params
from symphony.agents.base import AgentError
from symphony.agents.border import MAX_ID_CHARS
from symphony.agents.redaction import redact
from symphony.agents.wire.connection import RefusedError
from symphony.config.settings import AcpSettings
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["Agent", "Call", "Opened", "choose", "greet", "open_session"]

Json = Mapping[str, Any]
Call = Callable[[str, Json], Awaitable[dict[str, Any]]]
"""Sends a request and gives its result; raises `RefusedError` where the agent says no."""

_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Who answered: name and version as it tells them, and how a session of it is gone on with, or null."""

    name: str
    version: str
    resume_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A session; `facts` is what the agent said of it, `refused` why it is not the one that was asked for."""

    session_id: str
    facts: Json
    resumed: bool = False
    refused: Failure | None = None


async def greet(call: Call) -> Agent:
    """The handshake.

    Raises:
        AgentError: see `Connection.call`; also `response_error` for another version of the protocol.
    """
    answer = await call("initialize", params.initialize())
    version = answer.get("protocolVersion")
    if version != params.PROTOCOL_VERSION:
        raise AgentError(
            Failure(
                category=Category.RESPONSE_ERROR,
                blame=Blame.CONFIG,
                message=f"the agent speaks version {redact(repr(version), 40)} of the protocol, "
                f"and this daemon version {params.PROTOCOL_VERSION}",
                retryable=False,
                hint="install a version of the agent that speaks the other, or a newer Symphony",
            )
        )
    info = _map(answer, "agentInfo")
    return Agent(
        name=redact(str(info.get("name") or "unknown"), 100),
        version=redact(str(info.get("version") or "unknown"), 100),
        resume_by=_resume_by(_map(answer, "agentCapabilities")),
    )


def _resume_by(capabilities: Json) -> str | None:
    """`session/resume` says nothing of what was said before; `session/load` tells all of it again."""
    if isinstance(_map(capabilities, "sessionCapabilities").get("resume"), dict):
        return "session/resume"
    return "session/load" if capabilities.get("loadSession") is True else None


async def open_session(
    call: Call,
    *,
    resume: tuple[str, str] | None,
    asked: Callable[[str | None], Json],
    refused: Failure | None,
) -> Opened:
    """Go on with the session `resume` (method, id), or start one; what is refused is answered by a new one.

    `asked` makes the params for a session id, or for a new session. `refused` is why nothing is resumed
    although it was wanted, which is known before anybody is asked.

    Raises:
        AgentError: see `Connection.call`; also when the answer names no session.
    """
    if resume is not None:
        method, session_id = resume
        try:
            facts = await call(method, asked(session_id))
        except RefusedError as error:
            refused = error.failure
        else:
            return Opened(session_id=session_id, facts=facts, resumed=True)
    facts = await call("session/new", asked(None))
    session_id = facts.get("sessionId", "")
    if not isinstance(session_id, str) or not 0 < len(session_id) <= MAX_ID_CHARS:
        text = "the answer of the agent names no session"
        raise AgentError(Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=text))
    return Opened(session_id=session_id, facts=facts, refused=refused)


async def choose(call: Call, settings: AcpSettings, opened: Opened, *, model_in_command: bool) -> None:
    """Set mode and model where the settings name them.

    Raises:
        AgentError: the agent has no such mode or model, which it would only tell by silence later.
    """
    if settings.mode is not None:
        await _set(call, opened, _modes(opened.facts), "mode", settings.mode)
    if settings.model is not None:
        offered = _models(opened.facts)
        if not (model_in_command and (offered is None or offered.current in {settings.model, None})):
            await _set(call, opened, offered, "model", settings.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offered:
    """What may be chosen from, and the request that chooses."""

    values: Sequence[str]
    current: str | None
    method: str
    key: str
    more: Json


async def _set(call: Call, opened: Opened, offered: _Offered | None, what: str, wanted: str) -> None:
    if offered is None:
        raise _not_offered(what, wanted, ())
    if offered.current == wanted:
        return
    if wanted not in offered.values:
        raise _not_offered(what, wanted, offered.values)
    await call(offered.method, {"sessionId": opened.session_id, **offered.more, offered.key: wanted})


def _not_offered(what: str, wanted: str, values: Sequence[str]) -> AgentError:
    near = get_close_matches(wanted, values, n=1)
    shown = ", ".join(values[:_SHOWN]) + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")
    hint = f"it offers {shown}" if values else f"leave acp.{what} out: this agent lets nobody choose"
    failure = Failure(
        category=Category.RESPONSE_ERROR,
        blame=Blame.CONFIG,
        message=redact(f"the agent offers no {what} {wanted!r}"),
        retryable=False,
        hint=redact(f"did you mean {near[0]}? {hint}" if near else hint),
    )
    return AgentError(failure)


def _modes(facts: Json) -> _Offered | None:
    state = _map(facts, "modes")
    values = _values(state.get("availableModes"), "id")
    if not values:
        return _config_option(facts, "mode")
    current = _text(state.get("currentModeId"))
    return _Offered(values=values, current=current, method="session/set_mode", key="modeId", more={})


def _models(facts: Json) -> _Offered | None:
    found = _config_option(facts, "model")
    if found is not None:
        return found
    state = _map(facts, "models")
    values = _values(state.get("availableModels"), "modelId")
    if not values:
        return None
    current = _text(state.get("currentModelId"))
    return _Offered(values=values, current=current, method="session/set_model", key="modelId", more={})


def _config_option(facts: Json, category: str) -> _Offered | None:
    listed = facts.get("configOptions")
    options = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    for option in options:
        if category in (option.get("category"), option.get("id")):
            return _Offered(
                values=_values(option.get("options"), "value"),
                current=_text(option.get("currentValue")),
                method="session/set_config_option",
                key="value",
                more={"configId": option.get("id")},
            )
    return None


def _values(listed: object, key: str) -> tuple[str, ...]:
    """The values of a list of choices, of which some may be groups of choices."""
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    found: list[str] = []
    for entry in entries:
        value = entry.get(key)
        found += [value] if isinstance(value, str) else _values(entry.get("options"), key)
    return tuple(found)


def _map(node: Json, key: str) -> Json:
    value = node.get(key)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

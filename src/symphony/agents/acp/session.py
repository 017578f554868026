"""A session over the Agent Client Protocol: a process, a conversation, and turns; and its answers.

The answer to a prompt is the end of its turn, however late it comes; only silence is limited.
"""

import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from msgspec import Struct
from typing_extensions import override

from symphony.agents import events as agent_events
from symphony.agents import wire
from symphony.agents.acp import protocol
from symphony.agents.acp.profiles import AcpProfile
from symphony.agents.acp.protocol import Updates
from symphony.agents.base import AgentError, Briefing, SessionRequest, Turn, prepend_envelope
from symphony.agents.commands import shown_command
from symphony.agents.event_queue import EventQueue
from symphony.agents.json_fields import MAX_ID_CHARS, Json, decode_object, object_in, objects_in, text_in
from symphony.agents.mcp.server import SERVER_NAME, ToolServer
from symphony.agents.process import AgentProcess
from symphony.agents.session import (
    NO_DECISIONS,
    OnApproval,
    StreamSession,
    answer_to,
    approval_required,
    question_asked,
    request_key,
)
from symphony.config import AcpSettings
from symphony.domain import Blame, Category, Failure, session_id


class AcpSession(StreamSession[wire.Message]):
    """An `AgentSession` over the Agent Client Protocol, for one task: cancel its turn before `stop`."""

    def __init__(
        self,
        process: AgentProcess,
        *,
        settings: AcpSettings,
        profile: AcpProfile,
        request: SessionRequest,
        briefing: Briefing,
        events: EventQueue,
        server: ToolServer | None = None,
        checked: "AcpAgent | None" = None,
    ) -> None:
        self._connection = wire.Connection(
            process, read_timeout_ms=settings.read_timeout_ms, dialect=protocol.dialect(profile)
        )
        super().__init__(
            process, self._connection, request=request, events=events, silence_ms=settings.turn_timeout_ms
        )
        self._settings = settings
        self._profile = profile
        self._briefing = briefing
        self._envelope = briefing.envelope
        self._server = server
        self._checked = checked
        self._start_ms = max(profile.start_timeout_ms, settings.read_timeout_ms)
        self._updates = Updates()
        self._open = False
        self._prompt_id: int | None = None

    async def start(self) -> None:
        """Do the handshake, resume the requested session or start one, and set mode and model.

        Raises:
            AgentError: see `Connection.call`, `initialize`, `open_session` and `select`.
        """
        agent = await initialize(self._call)
        checked = self._checked
        if checked is not None and (checked.name, checked.version) != (agent.name, agent.version):
            text = f"the agent is {agent.name} {agent.version} now; "
            text += f"{checked.name} {checked.version} was checked"
            self._events.emit(agent_events.LogNotice(level="warning", message=text))
        opened = await self._open_session(agent)
        await select(self._call, self._settings, opened, model_in_command=bool(self._profile.model_argument))
        by_protocol = self._profile.system_text != "prompt"
        if by_protocol and (self._profile.envelope_on_resume or not opened.resumed):
            self._delivered = self._briefing.envelope
        self.thread_id, self.resume_refused = opened.session_id, opened.refused
        self._open = True
        self._updates.forget()

    async def _open_session(self, agent: "AcpAgent") -> "OpenedSession":
        envelope, profile = self._briefing.envelope, self._profile
        extra: Json = {}
        if envelope is not None and profile.system_text == "meta":
            extra = protocol.fill(profile.system_meta, "envelope", envelope)
        servers = () if self._server is None else ((self._server.name, self._server.argv),)
        thread, resume, refused = self._request.resume, None, None
        if thread is not None and profile.load and agent.resume_method is not None:
            resume = (agent.resume_method, thread.thread_id)
        elif thread is not None:
            text = f"{agent.name} {agent.version} cannot go on with an earlier session"
            refused = Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=text)
        return await open_session(
            self._call,
            resume=resume,
            params=lambda session: protocol.session(
                cwd=self._request.cwd, servers=servers, extra=extra, session_id=session
            ),
            refused=refused,
        )

    async def _call(self, method: str, params: Json) -> dict[str, Any]:
        return await self._connection.call(method, params, self._handle, timeout_ms=self._start_ms)

    @override
    async def _begin(self, turn: Turn) -> agent_events.SessionStarted:
        """Start a turn; the protocol knows no titles."""
        thread_id, turn_id = self.thread_id, uuid.uuid4().hex[:12]
        if thread_id is None:
            raise RuntimeError("run_turn before start")
        self._events.new_turn()
        params = protocol.prompt(thread_id, prepend_envelope(self._deliver(turn), turn.prompt))
        self._prompt_id = await self._connection.request("session/prompt", params)
        return agent_events.SessionStarted(
            session_id=session_id(thread_id, turn_id), thread_id=thread_id, turn_id=turn_id
        )

    @override
    async def _handle(self, message: wire.Message) -> None:
        if isinstance(message, wire.ServerRequest):
            await self._answer(message)
        else:
            self._absorb(message)

    @override
    def _absorb(self, message: wire.Message) -> None:
        match message:
            case wire.ServerNotification(method="session/update"):
                self._update(message)
            case wire.Response() | wire.ErrorResponse() if message.id == self._prompt_id:
                self._prompt_id = None
                self._end_turn(message)
            case wire.PlainLine() | wire.MalformedLine():
                self._emit(wire.line_event(message))
            case wire.ServerRequest():
                pass
            case _:
                self._events.count()

    def _update(self, message: wire.ServerNotification) -> None:
        """Report an update. One that comes before the session is open replays an earlier process."""
        try:
            params = decode_object(message.params)
        except ValueError as error:
            self._emit(agent_events.Malformed(excerpt=agent_events.redact(f"session/update: {error}")))
            return
        own = self._open and params.get("sessionId", self.thread_id) == self.thread_id
        events = self._updates.translate(object_in(params, "update")) if own else []
        if not events:
            self._events.count()
        for event in events:
            self._emit(event)

    def _end_turn(self, answer: wire.Response | wire.ErrorResponse) -> None:
        """Report the answer to the prompt: the last message, the tokens, and how the turn ended."""
        message = self._updates.pending_message
        for event in self._updates.flush():
            self._emit(event)
        if isinstance(answer, wire.ErrorResponse):
            failure = protocol.refusal_failure(answer, self._profile)
            self._emit(agent_events.TurnEnd(status=agent_events.TurnStatus.FAILED, failure=failure))
            return
        try:
            result = decode_object(answer.result)
        except ValueError:
            result = {}
        usage = None
        if self._profile.usage != "none":
            usage = protocol.usage_in(result, self._profile.usage_path)
        if usage is not None:
            self._emit(usage)
        if result.get("stopReason") == "max_turn_requests":
            text = "the agent paused after its limit of requests for a turn"
            self._emit(agent_events.LogNotice(level="warning", message=text))
        ended = protocol.turn_end(result.get("stopReason"))
        unused = usage is None or usage.tokens.total_tokens == 0
        if self._profile.errors_as_messages and unused and ended.status is agent_events.TurnStatus.COMPLETED:
            failure = protocol.message_failure(agent_events.redact(message), self._profile)
            ended = agent_events.TurnEnd(status=agent_events.TurnStatus.FAILED, failure=failure)
        self._emit(ended)

    async def _answer(self, request: wire.ServerRequest) -> None:
        own_tool = request.method == "session/request_permission" and self._report_call(request)
        answer = decide(
            request,
            "accept" if own_tool else self._settings.on_approval,
            self._request.decisions,
            stopping=self._stopping,
        )
        if isinstance(answer.event, agent_events.InputRequired) and self._turn_is_running:
            await self._send_interrupt()  # before the answer, or the agent goes on without the person
        await self._connection.answer(request, answer)
        if answer.event is not None:
            self._emit(answer.event)

    def _report_call(self, request: wire.ServerRequest) -> bool:
        """Report the tool call that needs permission; return whether it is one of the daemon's tools."""
        try:
            call = object_in(decode_object(request.params), "toolCall")
        except ValueError:
            return False
        events, title = self._updates.permission(call)
        for event in events:
            self._emit(event)
        return is_own_tool(title, {spec.name for spec in self._briefing.tools})

    @property
    @override
    def pending_message(self) -> str:
        return self._updates.pending_message

    @override
    def _emit_pending(self) -> None:
        for event in self._updates.flush():
            self._events.emit(
                replace(event, interrupted=True) if isinstance(event, agent_events.Text) else event
            )

    @property
    @override
    def _turn_is_running(self) -> bool:
        return self._prompt_id is not None

    @override
    async def _send_interrupt(self) -> None:
        await self._connection.notify("session/cancel", {"sessionId": self.thread_id})

    @override
    async def _end(self) -> None:
        if self._server is not None:
            self._server.stop()
        await super()._end()


# --- opening a session, as the preflight does too ----------------------------------------------------------

Call = Callable[[str, Json], Awaitable[dict[str, Any]]]
"""Sends a request and returns its result; raises `RpcError` if the agent refuses it."""

_MAX_SHOWN: Final = 8


class AcpAgent(Struct, frozen=True, kw_only=True):
    """The agent's own name and version, and the method that resumes a session, or None."""

    name: str
    version: str
    resume_method: str | None


class OpenedSession(Struct, frozen=True, kw_only=True):
    """A session.

    Attributes:
        session_id: its id.
        details: the answer to the request that opened it.
        resumed: it is the requested one.
        refused: why it is not, or None.
    """

    session_id: str
    details: Json
    resumed: bool = False
    refused: Failure | None = None


async def initialize(call: Call) -> AcpAgent:
    """Do the handshake.

    Raises:
        AgentError: see `Connection.call`; also `response_error` for another version of the protocol.
    """
    answer = await call("initialize", protocol.initialize())
    version = answer.get("protocolVersion")
    if version != protocol.PROTOCOL_VERSION:
        failure = Failure(
            category=Category.RESPONSE_ERROR,
            blame=Blame.CONFIG,
            message=f"the agent speaks version {agent_events.redact(repr(version), 40)} of the protocol, "
            f"and this daemon version {protocol.PROTOCOL_VERSION}",
            retryable=False,
            hint="install a version of the agent that speaks the other, or a newer Symphony",
        )
        raise AgentError(failure)
    info, capabilities = object_in(answer, "agentInfo"), object_in(answer, "agentCapabilities")
    resume_method = "session/load" if capabilities.get("loadSession") is True else None
    if isinstance(object_in(capabilities, "sessionCapabilities").get("resume"), dict):
        resume_method = "session/resume"  # does not replay the conversation, as session/load does
    return AcpAgent(
        name=agent_events.redact(str(info.get("name") or "unknown"), 100),
        version=agent_events.redact(str(info.get("version") or "unknown"), 100),
        resume_method=resume_method,
    )


async def open_session(
    call: Call,
    *,
    resume: tuple[str, str] | None = None,
    params: Callable[[str | None], Json],
    refused: Failure | None = None,
) -> OpenedSession:
    """Resume a session or start one. If the agent refuses to resume, start a new one.

    Args:
        call: sends a request.
        resume: method and id of the session to resume, or None.
        params: makes the params for a session id, or for a new session.
        refused: why a requested session is not even tried, or None.

    Raises:
        AgentError: see `Connection.call`; also when the answer names no session.
    """
    if resume is not None:
        method, session = resume
        try:
            return OpenedSession(
                session_id=session, details=await call(method, params(session)), resumed=True
            )
        except wire.RpcError as error:
            refused = error.failure
    details = await call("session/new", params(None))
    session = text_in(details, "sessionId")
    if not 0 < len(session) <= MAX_ID_CHARS:
        raise wire.response_error("the answer of the agent names no session")
    return OpenedSession(session_id=session, details=details, refused=refused)


async def select(call: Call, settings: AcpSettings, opened: OpenedSession, *, model_in_command: bool) -> None:
    """Set mode and model where the settings name them.

    Raises:
        AgentError: the agent offers no such mode or model.
    """
    details = opened.details
    if settings.mode is not None:
        modes = _state(
            details, "modes", "availableModes", "id", "currentModeId", "session/set_mode", "modeId"
        )
        await _select(call, opened, modes or _config_option(details, "mode"), "mode", settings.mode)
    if settings.model is not None:
        models = _config_option(details, "model") or _state(
            details, "models", "availableModels", "modelId", "currentModelId", "session/set_model", "modelId"
        )
        if not (model_in_command and (models is None or models.current in {settings.model, None})):
            await _select(call, opened, models, "model", settings.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The values that an agent offers, and the request that selects one."""

    values: Sequence[str]
    current: str | None
    method: str
    key: str
    more: Json


async def _select(call: Call, opened: OpenedSession, choice: _Choice | None, what: str, wanted: str) -> None:
    if choice is not None and choice.current == wanted:
        return
    values = () if choice is None else choice.values
    if choice is not None and wanted in values:
        await call(choice.method, {"sessionId": opened.session_id, **choice.more, choice.key: wanted})
        return
    more = len(values) - _MAX_SHOWN
    shown = ", ".join(values[:_MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")
    hint = f"it offers {shown}" if values else f"leave acp.{what} out: this agent offers no choice"
    near = get_close_matches(wanted, values, n=1)
    failure = Failure(
        category=Category.RESPONSE_ERROR,
        blame=Blame.CONFIG,
        message=agent_events.redact(f"the agent offers no {what} {wanted!r}"),
        retryable=False,
        hint=agent_events.redact(f"did you mean {near[0]}? {hint}" if near else hint),
    )
    raise AgentError(failure)


def _state(
    details: Json, key: str, list_key: str, value_key: str, current_key: str, method: str, param: str
) -> _Choice | None:
    """Return the choice in the older form, which has one object for modes and one for models."""
    state = object_in(details, key)
    values = _values(state, list_key, value_key)
    if not values:
        return None
    current = text_in(state, current_key) or None
    return _Choice(values=values, current=current, method=method, key=param, more={})


def _config_option(details: Json, category: str) -> _Choice | None:
    """Return the choice in the form of configuration options."""
    for option in objects_in(details, "configOptions"):
        if category in (option.get("category"), option.get("id")):
            return _Choice(
                values=_values(option, "options", "value"),
                current=text_in(option, "currentValue") or None,
                method="session/set_config_option",
                key="value",
                more={"configId": option.get("id")},
            )
    return None


def _values(node: Json, list_key: str, value_key: str) -> tuple[str, ...]:
    """Return the values of a list of choices, some of which may be groups of choices."""
    found: list[str] = []
    for entry in objects_in(node, list_key):
        value = entry.get(value_key)
        found += [value] if isinstance(value, str) else _values(entry, "options", value_key)
    return tuple(found)


# --- answers to requests of the agent ----------------------------------------------------------------------
#
# A permission is chosen by the `kind` of an option: its id differs between agents. Files and terminals are
# refused, as `initialize` announced: an agent acts by its own processes, which `workspace.isolation`
# confines, while a daemon that wrote files for it would bypass that. OpenCode asks for
# `fs/write_text_file` all the same, to keep an editor up to date, and works without.

_CANCELLED: Final[Json] = {"outcome": {"outcome": "cancelled"}}
_OPTION_KINDS: Final[Mapping[str, Sequence[str]]] = {
    "accept": ("allow_once", "allow_always"),  # once first: the agent would remember the other beyond the run
    "decline": ("reject_once", "reject_always"),
}
_TOOL_TITLES: Final = (
    f"mcp__{SERVER_NAME}__{{}}",
    f"mcp.{SERVER_NAME}.{{}}",
    f"{SERVER_NAME}_{{}}",
    f"{{}} ({SERVER_NAME} MCP Server)",
)
_NOT_OFFERED: Final = ("fs/", "terminal/")


def is_own_tool(title: str, tools: Collection[str]) -> bool:
    """Whether a call is one of the daemon's tools, by the titles that agents make from server and tool."""
    return title.strip() in {form.format(tool) for tool in tools for form in _TOOL_TITLES}


def decide(
    request: wire.ServerRequest,
    on_approval: OnApproval,
    decisions: Mapping[str, bool] = NO_DECISIONS,
    *,
    stopping: bool = False,
) -> wire.RequestAnswer:
    """Return the answer to a request of the agent; never raises. While `stopping` no permission is given."""
    try:
        params = decode_object(request.params)
    except ValueError as error:
        return wire.RequestAnswer(error=(wire.INVALID_PARAMS, agent_events.redact(str(error))))
    match request.method:
        case "session/request_permission":
            return (
                wire.RequestAnswer(result=_CANCELLED)
                if stopping
                else _permission(params, on_approval, decisions)
            )
        case "elicitation/create":
            text = text_in(params, "message")
            event = question_asked([text] if text.strip() else [])
            return wire.RequestAnswer(result={"action": "decline"}, event=event)
        case method:
            text = agent_events.redact(f"unsupported request {method}", 200)
            notice = agent_events.LogNotice(level="warning", message=f"{text} was refused")
            expected = method.startswith(_NOT_OFFERED)
            return wire.RequestAnswer(error=(wire.METHOD_NOT_FOUND, text), event=None if expected else notice)


def _permission(params: Json, on_approval: OnApproval, decisions: Mapping[str, bool]) -> wire.RequestAnswer:
    call = object_in(params, "toolCall")
    kind = str(call.get("kind") or "other")[:40]
    texts = [shown_command(object_in(call, "rawInput").get("command")), text_in(call, "title")]
    details = [text for text in texts if text.strip()]
    subject = "".join(details[:1])
    what = {each: call[each] for each in ("rawInput", "content", "locations") if call.get(each)}
    key = request_key(kind, [details[-1:], what]) if what else None
    verdict = answer_to(key, decisions, on_approval)
    if verdict == "block":
        return wire.RequestAnswer(result=_CANCELLED, event=approval_required(kind, details[:1], key))
    options = objects_in(params, "options")
    for option_kind in _OPTION_KINDS[verdict]:
        for option in options:
            if option.get("kind") == option_kind and option.get("optionId") is not None:
                outcome = {"outcome": "selected", "optionId": option["optionId"]}
                event: agent_events.AgentEvent = agent_events.ApprovalAnswered(
                    kind=kind, decision=verdict, subject=subject
                )
                return wire.RequestAnswer(result={"outcome": outcome}, event=event)
    return wire.RequestAnswer(
        result=_CANCELLED, event=agent_events.ApprovalAnswered(kind=kind, decision="decline", subject=subject)
    )

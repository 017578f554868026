"""One session: a process, a conversation, and turns one after the other (AG4-AG6, AG9, AG10, AG13, AG21).

What the turns of all backends have alike is in `turns`. Here the answer to a prompt is the end of its turn,
however late it comes; only silence is limited.
"""

import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import anyio
from typing_extensions import override

from symphony.agents.acp import protocol
from symphony.agents.acp.profiles import Profile
from symphony.agents.acp.protocol import Updates, in_words, manner, refused, turn_end, usage_in
from symphony.agents.base import AgentError, Briefing, SessionRequest, prepend_envelope
from symphony.agents.events import (
    MAX_ID_CHARS,
    AgentEvent,
    ApprovalAnswered,
    EventQueue,
    InputRequired,
    Malformed,
    Notice,
    SessionStarted,
    TurnEnded,
    TurnStatus,
    parse,
    redact,
)
from symphony.agents.mcp.server import SERVER_NAME, Bridge
from symphony.agents.process import AgentProcess
from symphony.agents.session import Conversation
from symphony.agents.wire import (
    Connection,
    MalformedLine,
    Message,
    Notification,
    PlainLine,
    Refusal,
    RefusedError,
    Response,
    ServerRequest,
    noise,
)
from symphony.config import AcpSettings
from symphony.domain import Blame, Category, Failure, session_id

# The answer to everything an agent may ask of its client (AG13-AG16). Pure.
#
# Permissions are chosen by the `kind` of an option and never by its id, which every agent spells in its own
# way. Files and terminals are refused, as we said at `initialize`: what an agent does it does with its own
# hands, where `workspace.isolation` holds them; a daemon that wrote files for it would reach out of that.
# OpenCode asks for `fs/write_text_file` all the same, to keep an editor up to date, and gets on without.


METHOD_NOT_FOUND = -32_601
INVALID_PARAMS = -32_602

OnApproval = Literal["decline", "accept", "block"]
Params = Mapping[str, Any]

_CANCELLED: Params = {"outcome": {"outcome": "cancelled"}}
_KINDS: Mapping[str, Sequence[str]] = {
    "accept": ("allow_once", "allow_always"),
    "decline": ("reject_once", "reject_always"),
}
_SPELLINGS = (
    f"mcp__{SERVER_NAME}__{{}}",
    f"mcp.{SERVER_NAME}.{{}}",
    f"{SERVER_NAME}_{{}}",
    f"{{}} ({SERVER_NAME} MCP Server)",
)
_LENT = ("fs/", "terminal/")
_LONGEST_QUESTION = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back: `result`, or `error` as (code, message); and what to tell upwards."""

    result: Params | None = None
    error: tuple[int, str] | None = None
    event: AgentEvent | None = None


def own_tool(title: str, tools: Collection[str]) -> bool:
    """Whether a tool call is one of a tool of ours, by the names that agents make of server and tool."""
    names = (spelling.format(tool) for tool in tools for spelling in _SPELLINGS)
    return title.strip() in names


def decide(
    request: ServerRequest, on_approval: OnApproval, *, ours: bool = False, stopping: bool = False
) -> Answer:
    """What to say to one request of the agent; never raises.

    A call of `ours` is granted: the daemon runs it, by rules of its own. While `stopping` nothing is.
    """
    try:
        params = parse(request.params)
    except ValueError as error:
        return Answer(error=(INVALID_PARAMS, redact(str(error))))
    match request.method:
        case "session/request_permission":
            return (
                Answer(result=_CANCELLED)
                if stopping
                else _permission(params, "accept" if ours else on_approval)
            )
        case "elicitation/create":
            return _elicitation(params)
        case method:
            return _unknown(method)


def _unknown(method: str) -> Answer:
    text = redact(f"unsupported request {method}", 200)
    lent = method.startswith(_LENT)
    event = None if lent else Notice(level="warning", message=f"{text} was refused")
    return Answer(error=(METHOD_NOT_FOUND, text), event=event)


def _permission(params: Params, on_approval: OnApproval) -> Answer:
    call = params.get("toolCall")
    call = call if isinstance(call, dict) else {}
    kind = str(call.get("kind") or "other")[:40]
    listed = params.get("options")
    options = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    if on_approval == "block":
        return Answer(result=_CANCELLED, event=_blocked(kind, call))
    # Once, and not for ever: what an agent remembers would outlive this workflow's word.
    chosen = _option(options, _KINDS[on_approval])
    decision = "decline" if chosen is None else on_approval
    result = _CANCELLED if chosen is None else {"outcome": {"outcome": "selected", "optionId": chosen}}
    return Answer(result=result, event=ApprovalAnswered(kind=kind, decision=decision))


def _option(options: Sequence[Params], kinds: Sequence[str]) -> object:
    for kind in kinds:
        for option in options:
            if option.get("kind") == kind and option.get("optionId") is not None:
                return option["optionId"]
    return None


def _blocked(kind: str, call: Params) -> InputRequired:
    title, raw = call.get("title"), call.get("rawInput")
    command = raw.get("command") if isinstance(raw, dict) else None
    details = [redact(part, 300) for part in (command, title) if isinstance(part, str) and part.strip()]
    return InputRequired(reason=": ".join([f"approval required for {kind}", *details[:1]]), approval=True)


def _elicitation(params: Params) -> Answer:
    text = params.get("message")
    asked = text if isinstance(text, str) and text.strip() else None
    reason = f"the agent asks: {redact(asked, 300) if asked else 'something it did not word'}"
    question = None if asked is None else redact(asked, _LONGEST_QUESTION)
    return Answer(result={"action": "decline"}, event=InputRequired(reason=reason, question=question))


# How a session comes to be: handshake, the session to go on with or a new one, its mode and model (AG4).
#
# The preflight takes the same way, so that what it finds is what a session would meet.


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
    answer = await call("initialize", protocol.initialize())
    version = answer.get("protocolVersion")
    if version != protocol.PROTOCOL_VERSION:
        raise AgentError(
            Failure(
                category=Category.RESPONSE_ERROR,
                blame=Blame.CONFIG,
                message=f"the agent speaks version {redact(repr(version), 40)} of the protocol, "
                f"and this daemon version {protocol.PROTOCOL_VERSION}",
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


class AcpSession(Conversation[Message]):
    """An `AgentSession` over the Agent Client Protocol, for one task: cancel its turn before `stop`."""

    def __init__(
        self,
        process: AgentProcess,
        *,
        settings: AcpSettings,
        profile: Profile,
        request: SessionRequest,
        briefing: Briefing,
        cwd: Path,
        events: EventQueue,
        bridge: Bridge | None = None,
        expected: Agent | None = None,
    ) -> None:
        self._connection = Connection(
            process, read_timeout_ms=settings.read_timeout_ms, manner=manner(profile)
        )
        super().__init__(process, self._connection, events=events, limit_ms=settings.turn_timeout_ms)
        self._settings = settings
        self._profile = profile
        self._request = request
        self._briefing = briefing
        self._cwd = cwd
        self._bridge = bridge
        self._expected = expected
        self._start_ms = max(profile.start_timeout_ms, settings.read_timeout_ms)
        self._updates = Updates()
        self._session: Opened | None = None
        self._prefix: str | None = None
        self._opening = True
        self._prompt_id: int | None = None

    @property
    def resume_refused(self) -> Failure | None:
        """Why the session is a new one though it was to go on with another; else null."""
        return None if self._session is None else self._session.refused

    @property
    def thread_id(self) -> str | None:
        """The agent's session, once `start` has opened it."""
        return None if self._session is None else self._session.session_id

    async def start(self) -> None:
        """Handshake, session, mode and model.

        Raises:
            AgentError: see `Connection.call` and `opening`.
        """
        agent = await greet(self._call)
        self._note_version(agent)
        resume, refusal = self._wanted(agent)
        opened = await open_session(self._call, resume=resume, asked=self._asked, refused=refusal)
        await choose(
            self._call,
            self._settings,
            opened,
            model_in_command=bool(self._profile.model_argument),
        )
        travels = self._profile.system_text != "prompt" and (
            self._profile.tells_on_resume or not opened.resumed
        )
        self._prefix = None if travels else self._briefing.envelope
        self._session = opened
        self._opening = False
        self._updates.forget()

    @override
    async def _end(self) -> None:
        if self._bridge is not None:
            self._bridge.end()
        await super()._end()

    def _note_version(self, agent: Agent) -> None:
        """An agent that was updated while the daemon runs may behave in another way than was checked."""
        known = self._expected
        if known is not None and (known.name, known.version) != (agent.name, agent.version):
            text = f"the agent is {agent.name} {agent.version} now; {known.name} {known.version} was checked"
            self._events.emit(Notice(level="warning", message=text))

    def _wanted(self, agent: Agent) -> tuple[tuple[str, str] | None, Failure | None]:
        """How to go on with the thread that is asked for; or why that cannot be."""
        thread = self._request.resume
        if thread is None:
            return None, None
        if self._profile.load and agent.resume_by is not None:
            return (agent.resume_by, thread.thread_id), None
        text = f"{agent.name} {agent.version} cannot go on with an earlier session"
        return None, Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=text)

    def _asked(self, session: str | None) -> dict[str, Any]:
        envelope = self._briefing.envelope
        by_meta = envelope is not None and self._profile.system_text == "meta"
        extra = protocol.filled(self._profile.system_meta, "envelope", envelope or "") if by_meta else {}
        servers = () if self._bridge is None else ((self._bridge.name, self._bridge.argv),)
        return protocol.session(cwd=self._cwd, servers=servers, extra=extra, session_id=session)

    async def _call(self, method: str, asked: protocol.Params) -> dict[str, Any]:
        return await self._connection.call(method, asked, self._handle, timeout_ms=self._start_ms)

    @override
    async def _begin(self, prompt: str, title: str) -> SessionStarted:
        """The protocol knows no titles."""
        del title
        if self._session is None:
            raise RuntimeError("run_turn before start")
        self._events.new_turn()
        thread_id, turn_id = self._session.session_id, uuid.uuid4().hex[:12]
        asked = protocol.prompt(thread_id, prepend_envelope(self._prefix, prompt))
        self._prefix = None
        self._prompt_id = await self._connection.ask("session/prompt", asked)
        return SessionStarted(session_id=session_id(thread_id, turn_id), thread_id=thread_id, turn_id=turn_id)

    @override
    async def _handle(self, message: Message) -> None:
        if isinstance(message, ServerRequest):
            await self._answer(message)
        else:
            self._absorb(message)

    @override
    def _absorb(self, message: Message) -> None:
        """Everything that needs no answer."""
        match message:
            case Notification(method="session/update"):
                self._update(message)
            case Response() | Refusal() if message.id == self._prompt_id:
                self._finish(message)
            case PlainLine() | MalformedLine():
                self._events.emit(noise(message))
            case ServerRequest():
                pass
            case _:
                self._events.count()

    def _update(self, message: Notification) -> None:
        """What is told before the session is open was said in an earlier process: it is no news (TK4)."""
        try:
            told = parse(message.params)
        except ValueError as error:
            self._events.emit(Malformed(excerpt=redact(f"session/update: {error}")))
            return
        update = told.get("update")
        ours = self._session is None or told.get("sessionId", self._session.session_id) == (
            self._session.session_id
        )
        events = self._updates.take(update) if isinstance(update, dict) and ours and not self._opening else []
        if not events:
            self._events.count()
        for event in events:
            self._events.emit(event)

    def _finish(self, answer: Response | Refusal) -> None:
        """The answer to the prompt: last words, tokens, and how the turn ended."""
        self._prompt_id = None
        last = self._updates.last_words
        for event in self._updates.flush():
            self._events.emit(event)
        if isinstance(answer, Refusal):
            failure = refused(answer, self._profile)
            self._events.emit(TurnEnded(status=TurnStatus.FAILED, failure=failure))
            return
        try:
            result = parse(answer.result)
        except ValueError:
            result = {}
        usage = None if self._profile.usage == "none" else usage_in(result, self._profile.usage_path)
        if usage is not None:
            self._events.emit(usage)
        if result.get("stopReason") == "max_turn_requests":
            text = "the agent paused after its limit of requests for a turn"
            self._events.emit(Notice(level="warning", message=text))
        ended = turn_end(result.get("stopReason"))
        idle = usage is None or usage.total_tokens == 0
        if self._profile.errors_are_words and idle and ended.status is TurnStatus.COMPLETED:
            failure = in_words(redact(last), self._profile)
            ended = TurnEnded(status=TurnStatus.FAILED, failure=failure)
        self._events.emit(ended)

    async def _answer(self, request: ServerRequest) -> None:
        ours = request.method == "session/request_permission" and self._learn(request)
        policy = self._settings.on_approval
        decision = decide(request, policy, ours=ours, stopping=self._stopping)
        if decision.error is not None:
            await self._connection.refuse(request, *decision.error)
        else:
            await self._connection.answer(request, decision.result or {})
        if decision.event is not None:
            self._events.emit(decision.event)

    def _learn(self, request: ServerRequest) -> bool:
        """Tell of the tool call that is asked about; whether it is one of a tool of ours."""
        try:
            call = parse(request.params).get("toolCall")
        except ValueError:
            return False
        events, title = self._updates.permission(call if isinstance(call, dict) else {})
        for event in events:
            self._events.emit(event)
        return own_tool(title, {spec.name for spec in self._briefing.tools})

    @override
    async def _interrupt(self) -> None:
        """Ask the running turn to end and wait for that, so that its tokens are told."""
        if self._prompt_id is None or self._session is None:
            return
        with anyio.move_on_after(self._process.grace_s):
            await self._connection.notify("session/cancel", {"sessionId": self._session.session_id})
            await self._catch_up()
            while self._prompt_id is not None:
                await self._connection.fill()
                await self._catch_up()

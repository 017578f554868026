"""A session of Claude Code: a process, a conversation, and turns one after the other; and its answers.

A running turn is always interrupted before the process is ended: only then its tools end too, and its token
totals are reported.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from typing_extensions import override

from symphony.agents import events as agent_events
from symphony.agents import session
from symphony.agents.base import AgentError, SessionRequest, Turn, resumed_elsewhere
from symphony.agents.claude import protocol
from symphony.agents.event_queue import EventQueue
from symphony.agents.json_fields import Json, decode_object, object_in, objects_in, text_in
from symphony.agents.process import AgentProcess
from symphony.agents.wire import MalformedLine, MessageStream, PlainLine, line_event, response_error
from symphony.config import ClaudeSettings
from symphony.domain import Category, Failure, session_id


class Channel(MessageStream[protocol.Message]):
    """A process that speaks the protocol of Claude Code."""

    def __init__(self, process: AgentProcess, *, read_timeout_ms: int) -> None:
        self._codec = protocol.ClaudeCodec()
        super().__init__(
            process,
            self._codec,
            read_timeout_ms=read_timeout_ms,
            not_found=Category.AGENT_NOT_FOUND,
            install_hint=protocol.INSTALL_HINT,
        )

    async def call(
        self, subtype: str, handle: Callable[[protocol.Message], Awaitable[None]], **fields: Any
    ) -> dict[str, Any]:
        """Send a control request and return its response; `handle` gets every other message.

        Raises:
            AgentError: `response_timeout`, `response_error`, `port_exit`, `agent_not_found`; or what `handle`
                raises.
        """
        request_id, line = self._codec.request(subtype, **fields)
        reply = await self._exchange(
            line,
            lambda message: isinstance(message, protocol.ControlResponse) and message.id == request_id,
            handle,
            what=subtype,
            timeout_ms=self._read_timeout_ms,
        )
        if not isinstance(reply, protocol.ControlResponse):
            raise TypeError(reply)
        if reply.error is not None:
            raise response_error(f"{subtype} was refused: {reply.error}")
        try:
            return decode_object(reply.response)
        except ValueError as error:
            raise response_error(f"unreadable answer to {subtype}: {error}") from error

    async def request(self, subtype: str, **fields: Any) -> None:
        """Send a control request whose answer is not needed."""
        await self._write(self._codec.request(subtype, **fields)[1])

    async def user(self, text: str) -> None:
        """Start a turn."""
        await self._write(self._codec.user(text))

    async def answer(self, request: protocol.ControlRequest, response: Json) -> None:
        """Answer a control request of the agent."""
        await self._write(self._codec.answer(request.id, response))

    async def refuse(self, request: protocol.ControlRequest, error: str) -> None:
        """Answer a control request of the agent with an error."""
        await self._write(self._codec.refuse(request.id, error))


class ClaudeSession(session.StreamSession[protocol.Message]):
    """An `AgentSession` of Claude Code, for one task: cancel its turn before calling `stop`.

    Half of the arguments were decided by the backend when it started the process.

    Args:
        process: started with the conversation `thread_id`.
        settings: decide approvals and timeouts.
        request: what the session is bound to.
        thread_id: the conversation.
        resumed: the conversation is an older one.
        envelope: the system-level text that the process was started with, or None.
        relaunch: starts a process that continues the conversation with another envelope.
        events: also gets the tool calls from the session's MCP server.
        on_stopping: called before anything is ended.
        resume_refused: why the requested conversation is not continued, or None.
    """

    def __init__(
        self,
        process: AgentProcess,
        *,
        settings: ClaudeSettings,
        request: SessionRequest,
        thread_id: str,
        resumed: bool,
        relaunch: Callable[[str], Awaitable[AgentProcess]],
        events: EventQueue,
        envelope: str | None = None,
        on_stopping: Callable[[], None] | None = None,
        resume_refused: Failure | None = None,
    ) -> None:
        self._channel = Channel(process, read_timeout_ms=settings.read_timeout_ms)
        super().__init__(
            process, self._channel, request=request, events=events, silence_ms=settings.turn_timeout_ms
        )
        self.resume_refused = resume_refused
        self.thread_id: str = thread_id
        self._settings = settings
        self._envelope = self._delivered = envelope
        self._relaunch = relaunch
        self._on_stopping = on_stopping
        self._translator = protocol.Translator()
        self._pending = session.PendingMessage(protocol.message_piece)
        self._title = ""
        self._named = self._resumed = resumed
        self._cwd = request.cwd
        self._turn_open = False

    async def start(self) -> None:
        """Open the control channel; a process that cannot continue its conversation ends instead.

        Raises:
            AgentError: see `Channel.call`; also what the agent reports about an unknown conversation.
        """
        await self._channel.call("initialize", self._handle_early, hooks={})

    async def _restart(self) -> None:
        """Continue the conversation in a new process: a running one keeps its system prompt."""
        await self._process.stop()
        self._process = await self._relaunch(self._delivered or "")
        self._stream = self._channel = Channel(self._process, read_timeout_ms=self._settings.read_timeout_ms)
        self._translator = protocol.Translator()
        await self.start()

    async def _handle_early(self, message: protocol.Message) -> None:
        """Handle a message before the first turn, where the end of a turn shows that there will be none."""
        await self._handle(message)
        if isinstance(message, protocol.ClaudeEvent) and message.type == "result":
            ended = [event for event in self._events.drain() if isinstance(event, agent_events.TurnEnd)]
            if ended and ended[0].failure is not None:
                raise AgentError(ended[0].failure)
            raise response_error("the agent ended a turn that was never started")

    @override
    async def _begin(self, turn: Turn) -> agent_events.SessionStarted:
        """Start a turn. A prompt that begins with a slash would be a command; a newline prevents that."""
        if self._deliver(turn) is not None:
            await self._restart()
        prompt = turn.prompt
        self._title = turn.title
        self._turn_open = True
        self._events.new_turn()
        await self._channel.user(f"\n{prompt}" if prompt.startswith("/") else prompt)
        turn_id = str(uuid.uuid4())
        return agent_events.SessionStarted(
            session_id=session_id(self.thread_id, turn_id), thread_id=self.thread_id, turn_id=turn_id
        )

    @override
    async def _handle(self, message: protocol.Message) -> None:
        if isinstance(message, protocol.ControlRequest):
            await self._answer(message)
            return
        self._absorb(message)
        begun = isinstance(message, protocol.ClaudeEvent) and message.subtype == "init"
        if self._resumed and isinstance(message, protocol.ClaudeEvent) and begun:
            told = text_in(decode_object(message.raw), "cwd")
            if (failure := await resumed_elsewhere(told, self._cwd)) is not None:
                raise AgentError(failure)
        if begun and self._title and not self._named:  # shows the issue in Claude's own list of conversations
            self._named = True
            await self._channel.request("rename_session", title=self._title)

    @override
    def _absorb(self, message: protocol.Message) -> None:
        match message:
            case protocol.KeepAlive():
                self._events.count(message.count)
                self._pending.add(message.pieces)
            case protocol.ClaudeEvent():
                events = self._translator.translate(message)
                if not events:
                    self._events.count()
                for event in events:
                    if isinstance(event, agent_events.TurnEnd):
                        self._turn_open = False
                    self._emit(event)
            case PlainLine() | MalformedLine():
                self._emit(line_event(message))
            case protocol.ControlRequest():
                pass
            case _:
                self._events.count()

    async def _answer(self, request: protocol.ControlRequest) -> None:
        if self._stopping:
            await self._channel.refuse(request, "the session is being stopped")
            return
        answer = decide(request, self._settings.on_approval, self._request.decisions)
        if answer.error is not None:
            await self._channel.refuse(request, answer.error)
        else:
            await self._channel.answer(request, answer.response or {})
        if answer.event is not None:
            self._emit(answer.event)

    @property
    @override
    def _turn_is_running(self) -> bool:
        return self._turn_open

    @override
    async def _send_interrupt(self) -> None:
        await self._channel.request("interrupt")

    @override
    async def _end(self) -> None:
        if self._on_stopping is not None:
            self._on_stopping()
        await super()._end()


# --- answers to control requests ---------------------------------------------------------------------------
#
# An unknown request is refused with an error, because silence would hang the turn.

_UNATTENDED: Final = "this session runs unattended, and no person can approve it"
_APPROVAL_KEYS: Final = ("command", "file_path", "notebook_path", "url", "plan")


class ControlAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a control request: `response` or `error`; `event` is what to report about it."""

    response: Json | None = None
    error: str | None = None
    event: agent_events.AgentEvent | None = None


def decide(
    request: protocol.ControlRequest,
    on_approval: session.OnApproval,
    decisions: Mapping[str, bool] = session.NO_DECISIONS,
) -> ControlAnswer:
    """Return the answer to a control request; never raises. The daemon's own tools are always allowed."""
    try:
        body = decode_object(request.request)
    except ValueError as error:
        return ControlAnswer(error=agent_events.redact(f"unreadable request: {error}", 200))
    if body.get("subtype") == "can_use_tool":
        return _tool_permission(body, on_approval, decisions)
    text = agent_events.redact(f"unsupported request {body.get('subtype')}", 200)
    return ControlAnswer(
        error=text, event=agent_events.LogNotice(level="warning", message=f"{text} was refused")
    )


def _tool_permission(
    body: Json, on_approval: session.OnApproval, decisions: Mapping[str, bool]
) -> ControlAnswer:
    name, arguments = str(body.get("tool_name")), object_in(body, "input")
    allow = {"behavior": "allow", "updatedInput": arguments}
    if name.startswith(protocol.OWN_TOOLS):
        return ControlAnswer(response=allow)
    if name == "AskUserQuestion":
        questions = [one for one in objects_in(arguments, "questions") if text_in(one, "question")]
        event = session.question_asked(
            [one["question"] for one in questions], [_with_options(one) for one in questions]
        )
        return ControlAnswer(response=_deny("no person is here to answer", interrupt=True), event=event)
    kind = agent_events.redact(name, 100)
    details = [text for key in _APPROVAL_KEYS if (text := text_in(arguments, key))]
    subject = "\n".join(details)
    key = session.request_key(name, {each: arguments[each] for each in arguments if each != "description"})
    match session.answer_to(key, decisions, on_approval):
        case "accept":
            accepted = agent_events.ApprovalAnswered(kind=kind, decision="accept", subject=subject)
            return ControlAnswer(response=allow, event=accepted)
        case "decline":
            declined = agent_events.ApprovalAnswered(kind=kind, decision="decline", subject=subject)
            return ControlAnswer(response=_deny(_UNATTENDED, interrupt=False), event=declined)
        case "block":
            blocked = session.approval_required(kind, [*details, text_in(body, "decision_reason")], key)
            return ControlAnswer(response=_deny(_UNATTENDED, interrupt=True), event=blocked)


def _deny(message: str, *, interrupt: bool) -> Json:
    return {"behavior": "deny", "message": message, "interrupt": interrupt}


def _with_options(question: Json) -> str:
    """Return a question with the answers that it offers, if any."""
    labels = [text_in(option, "label") for option in objects_in(question, "options")]
    labels = [agent_events.redact(label, 100) for label in labels if label]
    text = text_in(question, "question")
    return f"{text} ({' / '.join(labels)})" if labels else text

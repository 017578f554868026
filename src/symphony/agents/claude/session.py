"""One session of Claude Code: a process, a conversation, and turns one after the other (AG4-AG6, AG9, AG21).

What the turns of all backends have alike is in `turns`. A running turn is interrupted before the process is
ended, always: only then its tools end too, and what it used is told.
"""

import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import anyio
from typing_extensions import override

from symphony.agents.base import AgentError, SessionRequest
from symphony.agents.claude.protocol import (
    INSTALL_HINT,
    Codec,
    Event,
    KeepAlive,
    Message,
    Question,
    Reply,
    Translator,
    own_tools,
)
from symphony.agents.events import (
    AgentEvent,
    ApprovalAnswered,
    ContextCompacted,
    EventQueue,
    InputRequired,
    Notice,
    SessionStarted,
    TurnEnded,
    parse,
    redact,
)
from symphony.agents.process import AgentProcess
from symphony.agents.session import Conversation
from symphony.agents.wire import MalformedLine, PlainLine, ending, noise, response_timeout
from symphony.config import ClaudeSettings
from symphony.domain import Blame, Category, Failure, session_id

# The answer to everything Claude Code may ask on its control channel (AG13-AG16). Pure.
#
# Nobody is there to be asked: what is not known is refused, because silence hangs a turn.


OnApproval = Literal["decline", "accept", "block"]
Body = Mapping[str, Any]

_UNATTENDED = "this session runs unattended; nobody can approve it"
_NOBODY = "nobody is here to answer"
_LONGEST_QUESTION = 4_000
_TELLING = ("command", "file_path", "notebook_path", "url", "plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back: `response`, or `error`; and what to tell upwards."""

    response: Body | None = None
    error: str | None = None
    event: AgentEvent | None = None


def decide(question: Question, on_approval: OnApproval, *, own_tools: str) -> Answer:
    """What to do about one question; never raises.

    `own_tools` is what the names of our own tools begin with: asking for them is always granted.
    """
    try:
        request = parse(question.request)
    except ValueError as error:
        return Answer(error=redact(f"unreadable request: {error}", 200))
    if request.get("subtype") == "can_use_tool":
        return _tool(request, on_approval, own_tools)
    text = redact(f"unsupported request {request.get('subtype')}", 200)
    return Answer(error=text, event=Notice(level="warning", message=f"{text} was refused"))


def _tool(request: Body, on_approval: OnApproval, own_tools: str) -> Answer:
    name, given = str(request.get("tool_name")), request.get("input")
    arguments = given if isinstance(given, dict) else {}
    if name.startswith(own_tools):
        return Answer(response=_allow(arguments))
    if name == "AskUserQuestion":
        return Answer(response=_deny(_NOBODY, interrupt=True), event=_asked(arguments))
    kind = redact(name, 100)
    match on_approval:
        case "accept":
            event = ApprovalAnswered(kind=kind, decision="accept")
            return Answer(response=_allow(arguments), event=event)
        case "decline":
            event = ApprovalAnswered(kind=kind, decision="decline")
            return Answer(response=_deny(_UNATTENDED, interrupt=False), event=event)
        case "block":
            return Answer(
                response=_deny(_UNATTENDED, interrupt=True), event=_blocked(kind, request, arguments)
            )


def _allow(arguments: Body) -> Body:
    return {"behavior": "allow", "updatedInput": arguments}


def _deny(message: str, *, interrupt: bool) -> Body:
    return {"behavior": "deny", "message": message, "interrupt": interrupt}


def _blocked(kind: str, request: Body, arguments: Body) -> InputRequired:
    parts = (*(arguments.get(key) for key in _TELLING), request.get("decision_reason"))
    details = [redact(part, 300) for part in parts if isinstance(part, str) and part]
    return InputRequired(reason=": ".join([f"approval required for {kind}", *details]), approval=True)


def _asked(arguments: Body) -> InputRequired:
    listed = arguments.get("questions")
    questions = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    texts = [text for one in questions if isinstance(text := one.get("question"), str)]
    told = "; ".join(redact(text, 300) for text in texts) or "something it did not word"
    words = "\n".join(_worded(one) for one in questions if isinstance(one.get("question"), str)) or None
    return InputRequired(reason=f"the agent asks: {told}", question=words)


def _worded(question: Body) -> str:
    """A question and, where there are some, the answers that it offers."""
    text = redact(str(question["question"]), _LONGEST_QUESTION)
    labels = _labels(question.get("options"))
    return f"{text} ({' / '.join(labels)})" if labels else text


def _labels(options: object) -> Sequence[str]:
    found = (
        [one.get("label") for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    )
    return [redact(label, 100) for label in found if isinstance(label, str)]


# A Claude process and its stream: requests with a deadline, messages read by read (AG2, AG10).
#
# Pull-based like every wire of ours: bytes are read only inside `call` and `fill`.


Handler = Callable[[Message], Awaitable[None]]


class Channel:
    """A process and its codec. One user at a time."""

    def __init__(self, process: AgentProcess, *, read_timeout_ms: int) -> None:
        self._process = process
        self._codec = Codec()
        self._read_timeout_ms = read_timeout_ms
        self._inbox: deque[Message] = deque()
        self._heard = False

    async def call(self, subtype: str, other: Handler, **fields: Any) -> dict[str, Any]:
        """Ask on the control channel; `other` gets every message that is not the answer.

        Raises:
            AgentError: `response_timeout`, `response_error`, `port_exit`, `agent_not_found`; or what `other`
                raises.
        """
        with anyio.move_on_after(self._read_timeout_ms / 1000):
            request_id, wire = self._codec.request(subtype, **fields)
            await self._process.send(wire)
            return _result(subtype, await self._reply_to(request_id, other))
        raise response_timeout(f"no answer to {subtype} within {self._read_timeout_ms} ms")

    async def tell(self, subtype: str, **fields: Any) -> None:
        """Ask for something whose answer nobody waits for."""
        await self._write(self._codec.request(subtype, **fields)[1])

    async def say(self, text: str) -> None:
        """Begin a turn."""
        await self._write(self._codec.user(text))

    async def answer(self, question: Question, response: Mapping[str, Any]) -> None:
        """Answer a question of the agent."""
        await self._write(self._codec.answer(question.id, response))

    async def refuse(self, question: Question, error: str) -> None:
        """Answer a question of the agent with an error."""
        await self._write(self._codec.refuse(question.id, error))

    async def fill(self) -> None:
        """Read once; afterwards `take` has what that completed, which may be nothing.

        Raises:
            AgentError: the stream has ended and all of it was taken (`port_exit`, `agent_not_found`).
        """
        data = await self._process.receive()
        self.feed(data)
        if not data and not self._inbox:
            failure = await ending(
                self._process,
                missing=Category.AGENT_NOT_FOUND,
                install_hint=INSTALL_HINT,
                heard=self._heard,
            )
            raise AgentError(failure)

    def feed(self, data: bytes) -> None:
        """Take bytes that somebody else read; `b""` stands for the end of the stream."""
        messages = self._codec.receive(data) if data else self._codec.close()
        self._heard = self._heard or any(
            not isinstance(message, PlainLine | MalformedLine) for message in messages
        )
        self._inbox.extend(messages)

    def take(self) -> Message | None:
        """The next message that has been read, or null."""
        return self._inbox.popleft() if self._inbox else None

    async def _reply_to(self, request_id: str, other: Handler) -> Reply:
        while True:
            while (message := self.take()) is not None:
                if isinstance(message, Reply) and message.id == request_id:
                    return message
                await other(message)
            await self.fill()

    async def _write(self, wire: bytes) -> None:
        with anyio.move_on_after(self._read_timeout_ms / 1000):
            await self._process.send(wire)
            return
        raise response_timeout(f"the agent has not read its input for {self._read_timeout_ms} ms")


def _result(subtype: str, reply: Reply) -> dict[str, Any]:
    if reply.error is not None:
        raise AgentError(_response_error(f"{subtype} was refused: {reply.error}"))
    try:
        return parse(reply.response)
    except ValueError as error:
        raise AgentError(_response_error(f"unreadable answer to {subtype}: {error}")) from error


def _response_error(text: str) -> Failure:
    return Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=redact(text))


class ClaudeSession(Conversation[Message]):
    """An `AgentSession`, for one task: cancel its turn before calling `stop`.

    `thread_id` is the conversation that the process was started with, `resumed` that it is an older one;
    `events` may get what the bridge of our tools tells; `on_stopping` is called before anything is ended.
    """

    def __init__(
        self,
        process: AgentProcess,
        *,
        settings: ClaudeSettings,
        request: SessionRequest,
        thread_id: str,
        resumed: bool,
        events: EventQueue,
        on_stopping: Callable[[], None] | None = None,
        refused: Failure | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._channel = Channel(process, read_timeout_ms=settings.read_timeout_ms)
        super().__init__(process, self._channel, events=events, limit_ms=settings.turn_timeout_ms)
        self._settings = settings
        self._request = request
        self._thread_id = thread_id
        self._title: str | None = None
        self._named = resumed
        self._on_stopping = on_stopping
        self._resume_refused = refused
        self._translator = Translator(wall_clock=wall_clock)
        self._turn_open = False

    @property
    def resume_refused(self) -> Failure | None:
        """Why the session began a new conversation though it was to go on with one; else null."""
        return self._resume_refused

    @property
    def thread_id(self) -> str:
        """The conversation that the process was started with."""
        return self._thread_id

    async def start(self) -> None:
        """Open the control channel; a process that cannot go on with a conversation ends instead.

        Raises:
            AgentError: see `Channel.call`; also what the agent says of a conversation that it does not know.
        """
        await self._channel.call("initialize", self._handle_early, hooks={})

    @override
    async def _end(self) -> None:
        if self._on_stopping is not None:
            self._on_stopping()
        await super()._end()

    @override
    async def _begin(self, prompt: str, title: str) -> SessionStarted:
        """A slash at the beginning would be a command to the agent itself; behind a new line it is none."""
        self._title = title
        self._turn_open = True
        self._events.new_turn()
        await self._channel.say(f"\n{prompt}" if prompt.startswith("/") else prompt)
        turn_id = str(uuid.uuid4())
        return SessionStarted(
            session_id=session_id(self._thread_id, turn_id), thread_id=self._thread_id, turn_id=turn_id
        )

    @override
    async def _handle(self, message: Message) -> None:
        if isinstance(message, Question):
            await self._answer(message)
            return
        self._absorb(message)
        if isinstance(message, Event) and message.subtype == "init":
            await self._name_thread()

    async def _handle_early(self, message: Message) -> None:
        """Before the first turn, the end of one says that there will be none."""
        await self._handle(message)
        if isinstance(message, Event) and message.type == "result":
            ended = [event for event in self._events.drain() if isinstance(event, TurnEnded)]
            failure = ended[0].failure if ended else None
            raise AgentError(failure or _unasked_end())

    async def _name_thread(self) -> None:
        """Show the issue in the agent's own list of conversations, which exists once a turn has begun."""
        if self._title and not self._named:
            self._named = True
            await self._channel.tell("rename_session", title=self._title)

    @override
    def _absorb(self, message: Message) -> None:
        """Everything that needs no answer."""
        match message:
            case KeepAlive():
                self._events.count(message.count)
            case Event():
                self._learn(message)
            case PlainLine() | MalformedLine():
                self._events.emit(noise(message))
            case Question():
                pass
            case _:
                self._events.count()

    def _learn(self, event: Event) -> None:
        told = self._translator.translate(event)
        if not told:
            self._events.count()
        for one in told:
            if isinstance(one, ContextCompacted) and self._request.on_compacted is not None:
                self._request.on_compacted()
            if isinstance(one, TurnEnded):
                self._turn_open = False
            self._events.emit(one)

    async def _answer(self, question: Question) -> None:
        if self._stopping:
            await self._channel.refuse(question, "the session is being stopped")
            return
        answer = decide(question, self._settings.on_approval, own_tools=own_tools())
        if answer.error is not None:
            await self._channel.refuse(question, answer.error)
        else:
            await self._channel.answer(question, answer.response or {})
        if answer.event is not None:
            self._events.emit(answer.event)

    @override
    async def _interrupt(self) -> None:
        """Ask the running turn to end and wait for that."""
        if not self._turn_open:
            return
        with anyio.move_on_after(self._process.grace_s):
            await self._channel.tell("interrupt")
            await self._catch_up()
            while self._turn_open:
                await self._channel.fill()
                await self._catch_up()


def _unasked_end() -> Failure:
    text = "the agent ended a turn that nobody had begun"
    return Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=text)

"""One session of Claude Code: a process, a conversation, and turns one after the other (AG4-AG6, AG9, AG21).

There is no background task. `run_turn` reads the agent while somebody iterates over it; events wait in a
queue that holds what one read brought. No cancel scope spans a `yield`. A running turn is interrupted before
the process is ended, always: only then its tools end too, and what it used is told.
"""

import re
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import anyio

from symphony.agents.base import AgentError, SessionRequest
from symphony.agents.claude.arguments import own_tools
from symphony.agents.claude.channel import Channel
from symphony.agents.claude.codec import Event, Message, Pulse, Question
from symphony.agents.claude.mapping import Translator
from symphony.agents.claude.policy import decide
from symphony.agents.events import (
    AgentEvent,
    ContextCompacted,
    InputRequired,
    Malformed,
    Notice,
    SessionStarted,
    TurnEnded,
)
from symphony.agents.process import AgentProcess
from symphony.agents.queue import EventQueue
from symphony.agents.redaction import redact
from symphony.agents.wire.lines import Chatter, Garbled
from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.ids import session_id
from symphony.workflow.settings import ClaudeSettings

__all__ = ["ClaudeSession"]

_OVERSLEPT_S = 10.0
_LOOKS_BAD = re.compile(r"\b(?:error|fail(?:ed|ure)?|fatal|exception|denied|warn\w*)\b", re.IGNORECASE)


class ClaudeSession:
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
        self._process = process
        self._channel = Channel(process, read_timeout_ms=settings.read_timeout_ms)
        self._settings = settings
        self._request = request
        self._thread_id = thread_id
        self._title: str | None = None
        self._named = resumed
        self._events = events
        self._on_stopping = on_stopping
        self._resume_refused = refused
        self._translator = Translator(wall_clock=wall_clock)
        self._turn_open = False
        self._stop_lock = anyio.Lock()
        self._stopping = False

    @property
    def pid(self) -> int:
        """The agent's process id."""
        return self._process.pid

    @property
    def resume_refused(self) -> Failure | None:
        """Why the session began a new conversation though it was to go on with one; else null."""
        return self._resume_refused

    async def start(self) -> None:
        """Open the control channel; a process that cannot go on with a conversation ends instead.

        Raises:
            AgentError: see `Channel.call`; also what the agent says of a conversation that it does not know.
        """
        await self._channel.call("initialize", self._handle_early, hooks={})

    async def run_turn(self, prompt: str, *, title: str) -> AsyncIterator[AgentEvent]:
        """Run one turn; the last event is `TurnEnded` or `InputRequired`.

        Raises:
            AgentError: `response_timeout`, `turn_timeout` (silence) or `port_exit`.
        """
        yield await self._start_turn(prompt, title)
        while True:
            while self._events:
                event = self._events.take()
                yield event
                if isinstance(event, TurnEnded | InputRequired):
                    return
            await self._advance()

    async def stop(self) -> tuple[AgentEvent, ...]:
        """End the session and all its processes; returns what nobody has seen yet, once."""
        with anyio.CancelScope(shield=True):
            async with self._stop_lock:
                if not self._stopping:
                    self._stopping = True
                    await self._end()
        return self._events.drain()

    async def _end(self) -> None:
        if self._on_stopping is not None:
            self._on_stopping()
        with suppress(AgentError, OSError):
            await self._interrupt()
        with suppress(OSError):
            await self._process.stop(self._last_words)
        self._last_words(b"")

    async def _start_turn(self, prompt: str, title: str) -> SessionStarted:
        """A slash at the beginning would be a command to the agent itself; behind a new line it is none."""
        self._title = title
        self._turn_open = True
        self._events.forget_ends()
        await self._channel.say(f"\n{prompt}" if prompt.startswith("/") else prompt)
        turn_id = str(uuid.uuid4())
        return SessionStarted(
            session_id=session_id(self._thread_id, turn_id), thread_id=self._thread_id, turn_id=turn_id
        )

    async def _advance(self) -> None:
        """Read once and turn what came into events; any output restarts the silence limit (AG9).

        A limit that is noticed far too late says that the machine slept, not that the agent was silent.
        """
        limit_ms = self._settings.turn_timeout_ms
        deadline = anyio.current_time() + limit_ms / 1000
        with anyio.move_on_at(deadline) as silence:
            await self._channel.fill()
        if silence.cancelled_caught and anyio.current_time() - deadline < _OVERSLEPT_S:
            message = f"the agent has been silent for {limit_ms} ms"
            raise AgentError(Failure(category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message=message))
        await self._handle_all()

    async def _handle_all(self) -> None:
        while (message := self._channel.take()) is not None:
            await self._handle(message)
        self._events.flush_quiet()

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

    def _absorb(self, message: Message) -> None:
        """Everything that needs no answer."""
        match message:
            case Pulse():
                self._events.count(message.count)
            case Event():
                self._learn(message)
            case Chatter():
                level = "warning" if _LOOKS_BAD.search(message.text) else "info"
                self._events.emit(Notice(level=level, message=redact(message.text)))
            case Garbled():
                self._events.emit(Malformed(excerpt=redact(message.excerpt)))
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

    async def _interrupt(self) -> None:
        """Ask the running turn to end and wait for that."""
        if not self._turn_open:
            return
        with anyio.move_on_after(self._process.grace_s):
            await self._channel.tell("interrupt")
            await self._handle_all()
            while self._turn_open:
                await self._channel.fill()
                await self._handle_all()

    def _last_words(self, data: bytes) -> None:
        self._channel.feed(data)
        while (message := self._channel.take()) is not None:
            if not isinstance(message, Question):
                self._absorb(message)
        self._events.flush_quiet()


def _unasked_end() -> Failure:
    text = "the agent ended a turn that nobody had begun"
    return Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=text)

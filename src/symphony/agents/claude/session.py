"""One session of Claude Code: a process, a conversation, and turns one after the other (AG4-AG6, AG9, AG21).

What the turns of all backends have alike is in `turns`. A running turn is interrupted before the process is
ended, always: only then its tools end too, and what it used is told.
"""

import time
import uuid
from collections.abc import Callable

import anyio
from typing_extensions import override

from symphony.agents.base import AgentError, SessionRequest
from symphony.agents.claude.arguments import own_tools
from symphony.agents.claude.channel import Channel
from symphony.agents.claude.codec import Event, Message, Pulse, Question
from symphony.agents.claude.mapping import Translator
from symphony.agents.claude.policy import decide
from symphony.agents.events import (
    ContextCompacted,
    SessionStarted,
    TurnEnded,
)
from symphony.agents.process import AgentProcess
from symphony.agents.queue import EventQueue
from symphony.agents.turns import Conversation
from symphony.agents.wire.lines import Chatter, Garbled
from symphony.agents.wire.noise import noise
from symphony.config.settings import ClaudeSettings
from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.ids import session_id

__all__ = ["ClaudeSession"]


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
            case Pulse():
                self._events.count(message.count)
            case Event():
                self._learn(message)
            case Chatter() | Garbled():
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

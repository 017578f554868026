"""One agent session: a process, a thread, and turns one after the other (AG4-AG6, AG9, AG10, AG13, AG21).

There is no background task. `run_turn` reads the agent while somebody iterates over it; events wait in a
queue that holds what one read brought. No cancel scope spans a `yield`.
"""

import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from symphony.agents.base import AgentError, SessionRequest
from symphony.agents.codex import params
from symphony.agents.codex.errors import UNEXPLAINED
from symphony.agents.codex.greeting import who
from symphony.agents.codex.manner import MANNER
from symphony.agents.codex.mapping import Translation, means_nothing, translate
from symphony.agents.codex.opening import id_in, open_thread
from symphony.agents.codex.policy import NOBODY_THERE, Policy, ToolCall, decide, tool_answer
from symphony.agents.events import (
    AgentEvent,
    ContextCompacted,
    InputRequired,
    Malformed,
    Notice,
    SessionStarted,
    TurnEnded,
    TurnStatus,
)
from symphony.agents.process import AgentProcess
from symphony.agents.queue import EventQueue
from symphony.agents.redaction import redact
from symphony.agents.toolcalls import run_tool
from symphony.agents.wire.connection import Connection
from symphony.agents.wire.jsonrpc import Chatter, Garbled, Message, Muted, Notification, ServerRequest
from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.ids import session_id
from symphony.workflow.settings import CodexSettings

__all__ = ["CodexSession"]

_OVERSLEPT_S = 10.0
_PROGRESS = ("item/", "turn/", "thread/tokenUsage/")
_LOOKS_BAD = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|fatal|panic(?:ked)?|exception|traceback|denied|warn\w*)\b", re.IGNORECASE
)


class CodexSession:
    """An `AgentSession` on the app-server, for one task: cancel its turn before calling `stop`."""

    def __init__(
        self,
        process: AgentProcess,
        *,
        settings: CodexSettings,
        request: SessionRequest,
        cwd: Path,
        credentials: frozenset[str] = frozenset(),
        wall_clock: Callable[[], float] = time.time,
        checked_version: str | None = None,
    ) -> None:
        self._process = process
        self._connection = Connection(process, read_timeout_ms=settings.read_timeout_ms, manner=MANNER)
        self._settings = settings
        self._request = request
        self._cwd = cwd
        self._credentials = credentials
        self._wall_clock = wall_clock
        self._checked_version = checked_version
        self._policy = Policy(
            approval_policy=settings.approval_policy,
            on_approval=settings.on_approval,
            tool_names=frozenset(spec.name for spec in request.tools),
        )
        self._events = EventQueue()
        self._thread_id: str | None = None
        self._envelope: str | None = None
        self._resume_refused: Failure | None = None
        self._named = False
        self._turn_open = False
        self._turn_id: str | None = None
        self._early_ends: dict[str, TurnEnded] = {}
        self._error: Failure | None = None
        self._error_deadline: float | None = None
        self._stop_lock = anyio.Lock()
        self._stopping = False

    @property
    def pid(self) -> int:
        """The agent's process id."""
        return self._process.pid

    @property
    def resume_refused(self) -> Failure | None:
        """Why the session began a new thread though it was to go on with one; else null."""
        return self._resume_refused

    async def start(self) -> None:
        """The handshake and the thread (AG4): the one to resume, or a new one, also where that is refused.

        Raises:
            AgentError: see `Connection.call`.
        """
        self._compare(await self._call("initialize", params.initialize()))
        await self._connection.tell("initialized")
        request = self._request
        opened = await open_thread(
            self._call, self._settings, request, cwd=self._cwd, credentials=self._credentials
        )
        self._thread_id, self._resume_refused = opened.thread_id, opened.refused
        self._named = opened.resumed
        self._envelope = request.envelope if opened.resumed else None

    def _compare(self, greeting: Mapping[str, Any]) -> None:
        """A program that was replaced since the check before the first dispatch works or fails by itself."""
        _, version = who(str(greeting.get("userAgent", "")))
        if self._checked_version is not None and version not in {None, self._checked_version}:
            text = f"the agent is now version {version}; {self._checked_version} was checked at the start"
            self._events.emit(Notice(level="warning", message=text))

    async def run_turn(self, prompt: str, *, title: str) -> AsyncIterator[AgentEvent]:
        """Run one turn; the last event is `TurnEnded` or `InputRequired`.

        Raises:
            AgentError: `response_timeout`, `response_error`, `turn_timeout` (silence) or `port_exit`.
        """
        yield await self._start_turn(prompt, title)
        await self._handle_all()  # a short turn may be over in the read that brought the answer
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
        with suppress(AgentError, OSError):
            await self._interrupt()
        with suppress(OSError):
            await self._process.stop(self._last_words)
        self._last_words(b"")

    async def _call(self, method: str, asked: params.Params) -> dict[str, Any]:
        return await self._connection.call(method, asked, self._handle)

    async def _start_turn(self, prompt: str, title: str) -> SessionStarted:
        if self._thread_id is None:
            raise RuntimeError("run_turn before start")
        self._turn_open, self._turn_id = True, None
        self._error = self._error_deadline = None
        self._early_ends.clear()
        self._events.forget_ends()
        asked = params.turn_start(
            self._settings,
            thread_id=self._thread_id,
            cwd=self._cwd,
            prompt=prompt,
            envelope=self._envelope,
        )
        turn_id = id_in(await self._call("turn/start", asked), "turn")
        self._envelope = None
        self._turn_id = turn_id
        if turn_id in self._early_ends:
            self._end_turn(self._early_ends[turn_id], turn_id)
        await self._name_thread(self._thread_id, title)
        return SessionStarted(
            session_id=session_id(self._thread_id, turn_id), thread_id=self._thread_id, turn_id=turn_id
        )

    async def _name_thread(self, thread_id: str, title: str) -> None:
        """Show the issue in the agent's own list of threads; an agent that cannot may say so unheard."""
        if title and not self._named:
            self._named = True
            await self._connection.tell("thread/name/set", {"threadId": thread_id, "name": title})

    async def _advance(self) -> None:
        """Read once and turn what came into events; any output restarts the silence limit (AG9).

        A limit that is noticed far too late says that the machine slept, not that the agent was silent.
        """
        limit_ms = self._settings.turn_timeout_ms
        deadline = anyio.current_time() + limit_ms / 1000
        if self._error_deadline is not None:
            deadline = min(deadline, self._error_deadline)
        with anyio.move_on_at(deadline) as silence:
            await self._connection.fill()
        if silence.cancelled_caught and deadline == self._error_deadline:
            self._events.emit(TurnEnded(status=TurnStatus.FAILED, failure=self._error))
        elif silence.cancelled_caught and anyio.current_time() - deadline < _OVERSLEPT_S:
            message = f"the agent has been silent for {limit_ms} ms"
            raise AgentError(Failure(category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message=message))
        await self._handle_all()

    async def _handle_all(self) -> None:
        while (message := self._connection.take()) is not None:
            if isinstance(message, ServerRequest):
                await self._answer(message)
            else:
                self._absorb(message)
        self._events.flush_quiet()

    async def _handle(self, message: Message) -> None:
        if isinstance(message, ServerRequest):
            await self._answer(message)
        else:
            self._absorb(message)

    def _absorb(self, message: Message) -> None:
        """Everything that needs no answer."""
        if isinstance(message, Muted):
            self._error_deadline = None
            self._events.count(message.count)
        elif isinstance(message, Notification):
            if self._error_deadline is not None and message.method.startswith(_PROGRESS):
                self._error_deadline = None
            if means_nothing(message.method):
                self._connection.mute(message.method)
            told = translate(message)
            if told.events or told.turn_started:
                self._learn(told)
            else:
                self._events.count()
        elif isinstance(message, Chatter):
            level = "warning" if _LOOKS_BAD.search(message.text) else "info"
            self._events.emit(Notice(level=level, message=redact(message.text)))
        elif isinstance(message, Garbled):
            self._events.emit(Malformed(excerpt=redact(message.excerpt)))
        else:
            self._events.count()

    def _learn(self, told: Translation) -> None:
        if self._thread_id is not None and told.thread_id not in {None, self._thread_id}:
            self._events.count()  # a thread of the agent's own; its end is not the end of our turn
            return
        if told.turn_started and self._turn_open:
            self._turn_id = self._turn_id or told.turn_id
        if told.error is not None:
            self._expect_end(told.error, fatal=told.fatal)
        for event in told.events:
            if isinstance(event, ContextCompacted) and self._request.on_compacted is not None:
                self._request.on_compacted()
            if isinstance(event, TurnEnded):
                self._end_turn(event, told.turn_id)
            else:
                self._events.emit(event)

    def _expect_end(self, error: Failure, *, fatal: bool) -> None:
        """Set the time by which the turn must end or go on: for a final error that of one request.

        Codex never gives up retrying while its model cannot be reached, and talks about it all the time: so
        retries get as long as a stall.
        """
        settings = self._settings
        patience_ms = settings.stall_timeout_ms if settings.stall_timeout_ms > 0 else settings.turn_timeout_ms
        self._error = error
        if fatal:
            self._error_deadline = anyio.current_time() + settings.read_timeout_ms / 1000
        elif self._error_deadline is None:
            self._error_deadline = anyio.current_time() + patience_ms / 1000

    def _end_turn(self, event: TurnEnded, turn_id: str | None) -> None:
        if self._turn_open and self._turn_id is None and turn_id is not None:
            self._early_ends[turn_id] = event  # ours or an older turn's: the answer to turn/start will tell
            return
        if not self._turn_open or turn_id not in {None, self._turn_id}:
            self._events.count()
            return
        self._turn_open = False
        if event.failure == UNEXPLAINED and self._error is not None:
            event = replace(event, failure=self._error)
        self._events.emit(event)

    async def _answer(self, request: ServerRequest) -> None:
        if self._stopping:
            await self._connection.refuse(request, NOBODY_THERE, "the session is being stopped")
            return
        decision = decide(request, self._policy, now_s=int(self._wall_clock()))
        if isinstance(decision, ToolCall):
            decision = tool_answer(decision.name, await run_tool(decision, self._request.run_tool))
        if decision.error is not None:
            await self._connection.refuse(request, *decision.error)
        else:
            await self._connection.answer(request, decision.result or {})
        if decision.event is not None:
            self._events.emit(decision.event)

    async def _interrupt(self) -> None:
        """Ask the running turn to end and wait for that, so that the final totals are written."""
        if not self._turn_open or self._turn_id is None or self._thread_id is None:
            return
        with anyio.move_on_after(self._process.grace_s):
            asked = {"threadId": self._thread_id, "turnId": self._turn_id}
            await self._connection.tell("turn/interrupt", asked)
            await self._handle_all()
            while self._turn_open:
                await self._connection.fill()
                await self._handle_all()

    def _last_words(self, data: bytes) -> None:
        self._connection.feed(data)
        while (message := self._connection.take()) is not None:
            if not isinstance(message, ServerRequest):
                self._absorb(message)
        self._events.flush_quiet()

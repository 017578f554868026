"""One agent session: a process, a thread, and turns one after the other (AG4-AG6, AG9, AG10, AG13, AG21).

What the turns of all backends have alike is in `turns`.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import override

from symphony.agents.base import AgentError, SessionRequest
from symphony.agents.border import MAX_ID_CHARS
from symphony.agents.codex import params
from symphony.agents.codex.errors import UNEXPLAINED
from symphony.agents.codex.mapping import Translation, means_nothing, translate
from symphony.agents.codex.opening import MANNER, id_in, listed_skills, open_thread, who
from symphony.agents.codex.policy import NOBODY_THERE, Policy, ToolCall, decide, tool_answer
from symphony.agents.events import (
    ContextCompacted,
    Notice,
    SessionStarted,
    TurnEnded,
    TurnStatus,
)
from symphony.agents.process import AgentProcess
from symphony.agents.queue import EventQueue
from symphony.agents.toolcalls import run_tool
from symphony.agents.turns import Conversation
from symphony.agents.wire.connection import Connection, RefusedError
from symphony.agents.wire.jsonrpc import Chatter, Garbled, Message, Muted, Notification, ServerRequest
from symphony.agents.wire.noise import noise
from symphony.config.settings import CodexSettings
from symphony.domain.failures import Category, Failure
from symphony.domain.ids import session_id

__all__ = ["CodexSession"]

_PROGRESS = ("item/", "turn/", "thread/tokenUsage/")
_SKILLS_TIMEOUT_MS = 5_000
_UNANSWERED = frozenset({Category.RESPONSE_TIMEOUT, Category.RESPONSE_ERROR})
_MAX_EARLY_ENDS = 64


class CodexSession(Conversation[Message]):
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
        self._connection = Connection(process, read_timeout_ms=settings.read_timeout_ms, manner=MANNER)
        super().__init__(process, self._connection, events=EventQueue(), limit_ms=settings.turn_timeout_ms)
        self._settings = settings
        self._request = request
        self._cwd = cwd
        self._credentials = credentials
        self._wall_clock = wall_clock
        self._checked_version = checked_version
        self._policy = Policy(
            approval_policy=settings.approval_policy,
            on_approval=settings.on_approval,
            tool_names=frozenset(),
        )
        self._thread_id: str | None = None
        self._envelope: str | None = None
        self._resume_refused: Failure | None = None
        self._named = False
        self._turn_open = False
        self._turn_id: str | None = None
        self._early_ends: dict[str, TurnEnded] = {}
        self._error: Failure | None = None
        self._error_deadline: float | None = None

    @property
    def resume_refused(self) -> Failure | None:
        """Why the session began a new thread though it was to go on with one; else null."""
        return self._resume_refused

    @property
    def thread_id(self) -> str | None:
        """The thread, once `start` has opened it."""
        return self._thread_id

    async def start(self) -> None:
        """The handshake and the thread (AG4): the one to resume, or a new one, also where that is refused.

        What the session is told is asked for between the two: it may be made while the program starts.

        Raises:
            AgentError: see `Connection.call`.
        """
        self._compare(await self._call("initialize", params.initialize()))
        await self._connection.tell("initialized")
        briefing = await self._request.briefing(self._own_skills)
        self._policy = replace(self._policy, tool_names=frozenset(tool.name for tool in briefing.tools))
        opened = await open_thread(
            self._call,
            self._settings,
            briefing,
            resume=self._request.resume,
            cwd=self._cwd,
            credentials=self._credentials,
        )
        self._thread_id, self._resume_refused = opened.thread_id, opened.refused
        if opened.resumed and self._request.resume is not None:
            self._events.resumes(self._request.resume)
        self._named = opened.resumed
        self._envelope = briefing.envelope if opened.resumed else None

    def _compare(self, greeting: Mapping[str, Any]) -> None:
        """A program that was replaced since the check before the first dispatch works or fails by itself."""
        _, version = who(str(greeting.get("userAgent", "")))
        if self._checked_version is not None and version not in {None, self._checked_version}:
            text = f"the agent is now version {version}; {self._checked_version} was checked at the start"
            self._events.emit(Notice(level="warning", message=text))

    async def _call(self, method: str, asked: params.Params) -> dict[str, Any]:
        return await self._connection.call(method, asked, self._handle)

    async def _own_skills(self) -> frozenset[Path] | None:
        """The SKILL.md files that Codex lists in this workspace; one that does not answer is no failure."""
        limit_ms = min(self._settings.read_timeout_ms, _SKILLS_TIMEOUT_MS)
        asked = {"cwds": [str(self._cwd)]}
        try:
            answer = await self._connection.call("skills/list", asked, self._handle, timeout_ms=limit_ms)
        except RefusedError:
            return None  # a version that does not know the question
        except AgentError as error:
            if error.failure.category in _UNANSWERED:
                return None
            raise
        return listed_skills(answer)

    @override
    async def _begin(self, prompt: str, title: str) -> SessionStarted:
        if self._thread_id is None:
            raise RuntimeError("run_turn before start")
        self._turn_open, self._turn_id = True, None
        self._error = self._error_deadline = None
        self._early_ends.clear()
        self._events.new_turn()
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

    @override
    async def _listen(self) -> None:
        """After an error the turn has its own time to end or go on; see `_expect_end`."""
        deadline = math.inf if self._error_deadline is None else self._error_deadline
        with anyio.move_on_at(deadline) as patience:
            await super()._listen()
        if patience.cancelled_caught:
            self._events.emit(TurnEnded(status=TurnStatus.FAILED, failure=self._error))

    @override
    async def _handle(self, message: Message) -> None:
        if isinstance(message, ServerRequest):
            await self._answer(message)
        else:
            self._absorb(message)

    @override
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
        elif isinstance(message, Chatter | Garbled):
            self._events.emit(noise(message))
        elif not isinstance(message, ServerRequest):
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
            # Ours or an older turn's: the answer to turn/start will tell.
            if len(self._early_ends) < _MAX_EARLY_ENDS and len(turn_id) <= MAX_ID_CHARS:
                self._early_ends[turn_id] = event
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

    @override
    async def _interrupt(self) -> None:
        """Ask the running turn to end and wait for that, so that the final totals are written."""
        if not self._turn_open or self._turn_id is None or self._thread_id is None:
            return
        with anyio.move_on_after(self._process.grace_s):
            asked = {"threadId": self._thread_id, "turnId": self._turn_id}
            await self._connection.tell("turn/interrupt", asked)
            await self._catch_up()
            while self._turn_open:
                await self._connection.fill()
                await self._catch_up()

"""One session: a process, a conversation, and turns one after the other (AG4-AG6, AG9, AG10, AG13, AG21).

As every backend's: no background task. `run_turn` reads the agent while somebody iterates over it. The answer
to a prompt is the end of its turn, however late it comes; only silence is limited.
"""

import re
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from symphony.agents.acp import params
from symphony.agents.acp.errors import in_words, manner, refused, turn_end
from symphony.agents.acp.opening import Agent, Opened, choose, greet, open_session
from symphony.agents.acp.policy import decide, own_tool
from symphony.agents.acp.profiles import Profile
from symphony.agents.acp.updates import Updates
from symphony.agents.acp.usage import usage_in
from symphony.agents.base import AgentError, SessionRequest
from symphony.agents.envelope import in_front
from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    Malformed,
    Notice,
    SessionStarted,
    TurnEnded,
    TurnStatus,
)
from symphony.agents.mcp.bridge import Bridge
from symphony.agents.process import AgentProcess
from symphony.agents.queue import EventQueue
from symphony.agents.redaction import redact
from symphony.agents.wire.connection import Connection
from symphony.agents.wire.jsonrpc import (
    Chatter,
    Garbled,
    Message,
    Notification,
    Refusal,
    Response,
    ServerRequest,
    parse,
)
from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.ids import session_id
from symphony.workflow.settings import AcpSettings

__all__ = ["AcpSession"]

_OVERSLEPT_S = 10.0
_LOOKS_BAD = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|fatal|panic(?:ked)?|exception|traceback|denied|warn\w*)\b", re.IGNORECASE
)


class AcpSession:
    """An `AgentSession` over the Agent Client Protocol, for one task: cancel its turn before `stop`."""

    def __init__(
        self,
        process: AgentProcess,
        *,
        settings: AcpSettings,
        profile: Profile,
        request: SessionRequest,
        cwd: Path,
        events: EventQueue,
        bridge: Bridge | None = None,
        expected: Agent | None = None,
    ) -> None:
        self._process = process
        self._connection = Connection(
            process, read_timeout_ms=settings.read_timeout_ms, manner=manner(profile)
        )
        self._settings = settings
        self._profile = profile
        self._request = request
        self._cwd = cwd
        self._bridge = bridge
        self._expected = expected
        self._start_ms = max(profile.start_timeout_ms, settings.read_timeout_ms)
        self._events = events
        self._updates = Updates()
        self._session: Opened | None = None
        self._prefix: str | None = None
        self._opening = True
        self._prompt_id: int | None = None
        self._stop_lock = anyio.Lock()
        self._stopping = False

    @property
    def pid(self) -> int:
        """The agent's process id."""
        return self._process.pid

    @property
    def resume_refused(self) -> Failure | None:
        """Why the session is a new one though it was to go on with another; else null."""
        return None if self._session is None else self._session.refused

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
        self._prefix = None if travels else self._request.envelope
        self._session = opened
        self._opening = False
        self._updates.forget()

    async def run_turn(self, prompt: str, *, title: str) -> AsyncIterator[AgentEvent]:
        """Run one turn; the last event is `TurnEnded` or `InputRequired`. The protocol knows no titles.

        Raises:
            AgentError: `response_timeout`, `turn_timeout` (silence) or `port_exit`.
        """
        del title
        yield await self._start_turn(prompt)
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
        if self._bridge is not None:
            self._bridge.end()
        with suppress(AgentError, OSError):
            await self._cancel()
        with suppress(OSError):
            await self._process.stop(self._last_words)
        self._last_words(b"")

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
        envelope = self._request.envelope
        by_meta = envelope is not None and self._profile.system_text == "meta"
        extra = params.filled(self._profile.system_meta, "envelope", envelope or "") if by_meta else {}
        servers = () if self._bridge is None else ((self._bridge.name, self._bridge.argv),)
        return params.session(cwd=self._cwd, servers=servers, extra=extra, session_id=session)

    async def _call(self, method: str, asked: params.Params) -> dict[str, Any]:
        return await self._connection.call(method, asked, self._handle, timeout_ms=self._start_ms)

    async def _start_turn(self, prompt: str) -> SessionStarted:
        if self._session is None:
            raise RuntimeError("run_turn before start")
        self._events.forget_ends()
        thread_id, turn_id = self._session.session_id, uuid.uuid4().hex[:12]
        asked = params.prompt(thread_id, in_front(self._prefix, prompt))
        self._prefix = None
        self._prompt_id = await self._connection.ask("session/prompt", asked)
        return SessionStarted(session_id=session_id(thread_id, turn_id), thread_id=thread_id, turn_id=turn_id)

    async def _advance(self) -> None:
        """Read once and turn what came into events; any output restarts the silence limit (AG9).

        A limit that is noticed far too late says that the machine slept, not that the agent was silent.
        """
        limit_ms = self._settings.turn_timeout_ms
        deadline = anyio.current_time() + limit_ms / 1000
        with anyio.move_on_at(deadline) as silence:
            await self._connection.fill()
        if silence.cancelled_caught and anyio.current_time() - deadline < _OVERSLEPT_S:
            message = f"the agent has been silent for {limit_ms} ms"
            raise AgentError(Failure(category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message=message))
        await self._handle_all()

    async def _handle_all(self) -> None:
        while (message := self._connection.take()) is not None:
            await self._handle(message)
        self._events.flush_quiet()

    async def _handle(self, message: Message) -> None:
        if isinstance(message, ServerRequest):
            await self._answer(message)
        else:
            self._absorb(message)

    def _absorb(self, message: Message) -> None:
        """Everything that needs no answer."""
        match message:
            case Notification(method="session/update"):
                self._update(message)
            case Response() | Refusal() if message.id == self._prompt_id:
                self._finish(message)
            case Chatter():
                level = "warning" if _LOOKS_BAD.search(message.text) else "info"
                self._events.emit(Notice(level=level, message=redact(message.text)))
            case Garbled():
                self._events.emit(Malformed(excerpt=redact(message.excerpt)))
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
        return own_tool(title, {spec.name for spec in self._request.tools})

    async def _cancel(self) -> None:
        """Ask the running turn to end and wait for that, so that its tokens are told."""
        if self._prompt_id is None or self._session is None:
            return
        with anyio.move_on_after(self._process.grace_s):
            await self._connection.notify("session/cancel", {"sessionId": self._session.session_id})
            await self._handle_all()
            while self._prompt_id is not None:
                await self._connection.fill()
                await self._handle_all()

    def _last_words(self, data: bytes) -> None:
        self._connection.feed(data)
        while (message := self._connection.take()) is not None:
            if not isinstance(message, ServerRequest):
                self._absorb(message)
        self._events.flush_quiet()

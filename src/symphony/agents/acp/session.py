"""One session: a process, a conversation, and turns one after the other (AG4-AG6, AG9, AG10, AG13, AG21).

What the turns of all backends have alike is in `turns`. Here the answer to a prompt is the end of its turn,
however late it comes; only silence is limited.
"""

import uuid
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import override

from symphony.agents.acp import params
from symphony.agents.acp.errors import in_words, manner, refused, turn_end
from symphony.agents.acp.opening import Agent, Opened, choose, greet, open_session
from symphony.agents.acp.policy import decide, own_tool
from symphony.agents.acp.profiles import Profile
from symphony.agents.acp.updates import Updates
from symphony.agents.acp.usage import usage_in
from symphony.agents.base import Briefing, SessionRequest
from symphony.agents.envelope import in_front
from symphony.agents.events import (
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
from symphony.agents.turns import Conversation
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
from symphony.agents.wire.noise import noise
from symphony.config.settings import AcpSettings
from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.ids import session_id

__all__ = ["AcpSession"]


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
        extra = params.filled(self._profile.system_meta, "envelope", envelope or "") if by_meta else {}
        servers = () if self._bridge is None else ((self._bridge.name, self._bridge.argv),)
        return params.session(cwd=self._cwd, servers=servers, extra=extra, session_id=session)

    async def _call(self, method: str, asked: params.Params) -> dict[str, Any]:
        return await self._connection.call(method, asked, self._handle, timeout_ms=self._start_ms)

    @override
    async def _begin(self, prompt: str, title: str) -> SessionStarted:
        """The protocol knows no titles."""
        del title
        if self._session is None:
            raise RuntimeError("run_turn before start")
        self._events.new_turn()
        thread_id, turn_id = self._session.session_id, uuid.uuid4().hex[:12]
        asked = params.prompt(thread_id, in_front(self._prefix, prompt))
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
            case Chatter() | Garbled():
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

"""A session of Codex: a process, a thread, and turns one after the other; and the answers to its requests."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio
from cachetools import FIFOCache
from typing_extensions import override

from symphony.agents import events as agent_events
from symphony.agents import session, wire
from symphony.agents.base import AgentError, Briefing, SessionRequest, Turn, resumed_elsewhere
from symphony.agents.codex import protocol
from symphony.agents.codex.protocol import Translation
from symphony.agents.commands import shown_command
from symphony.agents.event_queue import EventQueue
from symphony.agents.json_fields import MAX_ID_CHARS, Json, decode_object, object_in, objects_in, text_in
from symphony.agents.process import AgentProcess
from symphony.config import CodexSettings
from symphony.domain import Category, Failure, ToolResult, session_id

_PROGRESS_METHODS: Final = ("item/", "turn/", "thread/tokenUsage/")
_SKILLS_TIMEOUT_MS: Final = 5_000
_MAX_EARLY_ENDS: Final = 64
_MAX_CHANGED_ITEMS: Final = 16


class CodexSession(session.StreamSession[wire.Message]):
    """An `AgentSession` on the app-server, for one task: cancel its turn before calling `stop`."""

    def __init__(
        self,
        process: AgentProcess,
        *,
        settings: CodexSettings,
        request: SessionRequest,
        cwd: Path,
        events: EventQueue,
        credentials: frozenset[str] = frozenset(),
        checked_version: str | None = None,
        tool_timeout_ms: int = session.TOOL_TIMEOUT_MS,
    ) -> None:
        self._connection = wire.Connection(
            process, read_timeout_ms=settings.read_timeout_ms, dialect=protocol.DIALECT
        )
        super().__init__(
            process,
            self._connection,
            request=request,
            events=events,
            silence_ms=settings.turn_timeout_ms,
        )
        self._settings = settings
        self._cwd = cwd
        self._credentials = credentials
        self._checked_version = checked_version
        self._tool_timeout_ms = tool_timeout_ms
        self._changes: FIFOCache[str, Any] = FIFOCache(_MAX_CHANGED_ITEMS)
        self._policy = Policy(
            approval_policy=settings.approval_policy,
            on_approval=settings.on_approval,
            tool_names=frozenset(),
            decisions=request.decisions,
            changes=self._changes,
        )
        self._pending = session.PendingMessage(lambda params: protocol.message_piece(params, self.thread_id))
        self._named = False
        self._turn_open = False
        self._turn_id: str | None = None
        self._model: str | None = None
        self._early_ends: dict[str, agent_events.TurnEnd] = {}
        self._error: Failure | None = None
        self._error_deadline = math.inf

    async def start(self) -> None:
        """Do the handshake, and resume the requested thread or start one.

        Raises:
            AgentError: see `Connection.call`; also when the answer names no thread.
        """
        greeting = await self._call("initialize", protocol.initialize())
        _, version = protocol.parse_user_agent(text_in(greeting, "userAgent"))
        if self._checked_version is not None and version not in {None, self._checked_version}:
            text = f"the agent is now version {version}; {self._checked_version} was checked at the start"
            self._events.emit(agent_events.LogNotice(level="warning", message=text))
        await self._connection.notify("initialized")
        briefing = await self._request.briefing(self._listed_skills)
        self._envelope = briefing.envelope
        self._policy = replace(self._policy, tool_names=frozenset(tool.name for tool in briefing.tools))
        if not await self._resume_thread(briefing):
            self._delivered = briefing.envelope
            params = protocol.thread_start(
                self._settings,
                cwd=self._cwd,
                envelope=briefing.envelope,
                tools=briefing.tools,
                credentials=self._credentials,
                agent_lists_skills=briefing.agent_lists_skills,
            )
            self._opened(await self._call("thread/start", params))

    async def _resume_thread(self, briefing: Briefing) -> bool:
        """Resume the requested thread; return False if there is none, or if Codex refuses it.

        A thread that would go on in another directory than the workspace is not used either.
        """
        resume = self._request.resume
        if resume is None:
            return False
        params = protocol.thread_resume(
            self._settings,
            thread_id=resume.thread_id,
            cwd=self._cwd,
            credentials=self._credentials,
            agent_lists_skills=briefing.agent_lists_skills,
        )
        try:
            answer = await self._call("thread/resume", params)
        except wire.RpcError as error:
            self.resume_refused = error.failure
            return False
        self.resume_refused = await resumed_elsewhere(text_in(answer, "cwd"), self._cwd)
        if self.resume_refused is not None:
            return False
        self._opened(answer)
        self._events.resume_from(resume)
        self._named = True
        return True

    def _opened(self, answer: Json) -> None:
        self.thread_id = id_in(answer, "thread")
        self._model = text_in(answer, "model")[:MAX_ID_CHARS] or None

    async def _call(self, method: str, params: Json) -> dict[str, Any]:
        return await self._connection.call(method, params, self._handle)

    async def _listed_skills(self) -> frozenset[Path] | None:
        """Return the SKILL.md files that Codex lists in this workspace; `None` if it cannot tell."""
        limit_ms = min(self._settings.read_timeout_ms, _SKILLS_TIMEOUT_MS)
        params = {"cwds": [str(self._cwd)]}
        try:
            answer = await self._connection.call("skills/list", params, self._handle, timeout_ms=limit_ms)
        except wire.RpcError:
            return None  # an older version, which does not know the method
        except AgentError as error:
            if error.failure.category in {Category.RESPONSE_TIMEOUT, Category.RESPONSE_ERROR}:
                return None
            raise
        return listed_skills(answer)

    @override
    async def _begin(self, turn: Turn) -> agent_events.SessionStarted:
        thread_id = self.thread_id
        if thread_id is None:
            raise RuntimeError("run_turn before start")
        self._turn_open, self._turn_id = True, None
        self._error, self._error_deadline = None, math.inf
        self._early_ends.clear()
        self._events.new_turn()
        params = protocol.turn_start(
            self._settings,
            thread_id=thread_id,
            cwd=self._cwd,
            prompt=turn.prompt,
            envelope=self._deliver(turn),
        )
        turn_id = id_in(await self._call("turn/start", params), "turn")
        self._turn_id = turn_id
        if turn_id in self._early_ends:
            self._end_turn(self._early_ends[turn_id], turn_id)
        if turn.title and not self._named:  # shows the issue in Codex's own list of threads
            self._named = True
            await self._connection.request("thread/name/set", {"threadId": thread_id, "name": turn.title})
        return agent_events.SessionStarted(
            session_id=session_id(thread_id, turn_id),
            thread_id=thread_id,
            turn_id=turn_id,
            model=self._model,
        )

    @override
    async def _read(self) -> None:
        """Read once; after an error, only until the time by which the turn must have ended or gone on."""
        with anyio.move_on_at(self._error_deadline) as scope:
            await super()._read()
        if scope.cancelled_caught:
            self._emit(agent_events.TurnEnd(status=agent_events.TurnStatus.FAILED, failure=self._error))

    @override
    async def _handle(self, message: wire.Message) -> None:
        if isinstance(message, wire.ServerRequest):
            await self._answer(message)
        else:
            self._absorb(message)

    @override
    def _absorb(self, message: wire.Message) -> None:
        match message:
            case wire.Suppressed():
                self._error_deadline = math.inf
                self._events.count(message.count)
                self._pending.add(message.params)
            case wire.ServerNotification():
                if message.method.startswith(_PROGRESS_METHODS):
                    self._error_deadline = math.inf
                if protocol.is_mere_activity(message.method):
                    self._connection.suppress(message.method)
                if message.method == "item/started":
                    self._remember_changes(message)
                self._apply(protocol.translate(message))
            case wire.PlainLine() | wire.MalformedLine():
                self._emit(wire.line_event(message))
            case wire.ServerRequest():
                pass
            case _:
                self._events.count()

    def _remember_changes(self, message: wire.ServerNotification) -> None:
        """Store the changes of an item, because a request for its approval names only the item."""
        try:
            item = object_in(decode_object(message.params), "item")
        except ValueError:
            return
        if item.get("type") == "fileChange":
            self._changes[text_in(item, "id")] = item.get("changes")

    def _apply(self, translation: Translation) -> None:
        foreign = self.thread_id is not None and translation.thread_id not in {None, self.thread_id}
        if foreign or not (translation.events or translation.turn_started):
            self._events.count()  # another thread of the agent does not end the turn
            return
        if translation.turn_started and self._turn_open:
            self._turn_id = self._turn_id or translation.turn_id
        if translation.error is not None:
            self._expect_end(translation.error, fatal=translation.fatal)
        for event in translation.events:
            if isinstance(event, agent_events.TurnEnd):
                self._end_turn(event, translation.turn_id)
            else:
                self._emit(event)

    def _expect_end(self, error: Failure, *, fatal: bool) -> None:
        """Set the time by which the turn must have ended or gone on.

        After a fatal error that is the time for one request. Codex retries without end while its model cannot
        be reached, and reports each retry, so retries get the time of a stall.
        """
        settings = self._settings
        self._error = error
        if fatal:
            self._error_deadline = anyio.current_time() + settings.read_timeout_ms / 1000
        elif self._error_deadline == math.inf:
            stall_ms = (
                settings.stall_timeout_ms if settings.stall_timeout_ms > 0 else settings.turn_timeout_ms
            )
            self._error_deadline = anyio.current_time() + stall_ms / 1000

    def _end_turn(self, event: agent_events.TurnEnd, turn_id: str | None) -> None:
        if self._turn_open and self._turn_id is None and turn_id is not None:
            # The end of this turn or of an older one: the answer to turn/start will show which.
            if len(self._early_ends) < _MAX_EARLY_ENDS and len(turn_id) <= MAX_ID_CHARS:
                self._early_ends[turn_id] = event
            return
        if not self._turn_open or turn_id not in {None, self._turn_id}:
            self._events.count()
            return
        self._turn_open = False
        if event.failure == protocol.UNEXPLAINED and self._error is not None:
            event = replace(event, failure=self._error)
        self._emit(event)

    async def _answer(self, request: wire.ServerRequest) -> None:
        if self._stopping:
            await self._connection.refuse(request, "the session is being stopped", UNATTENDED)
            return
        answer = decide(request, self._policy)
        if isinstance(answer, session.ToolCall):
            result = await session.run_tool(answer, self._request.run_tool, timeout_ms=self._tool_timeout_ms)
            answer = tool_answer(answer.name, result)
        if isinstance(answer.event, agent_events.InputRequired) and self._turn_is_running:
            await self._send_interrupt()  # before the answer, or the agent goes on without the person
        await self._connection.answer(request, answer)
        if answer.event is not None:
            self._emit(answer.event)

    @property
    @override
    def _turn_is_running(self) -> bool:
        return self._turn_open and self._turn_id is not None

    @override
    async def _send_interrupt(self) -> None:
        params = {"threadId": self.thread_id, "turnId": self._turn_id}
        await self._connection.request("turn/interrupt", params)


def id_in(result: Json, key: str) -> str:
    """Return `<key>.id` of an answer, of at most `MAX_ID_CHARS`.

    Raises:
        AgentError: `response_error`: there is none.
    """
    identifier = text_in(object_in(result, key), "id")
    if 0 < len(identifier) <= MAX_ID_CHARS:
        return identifier
    raise wire.response_error(f"the answer of the agent names no {key}")


def listed_skills(result: Json) -> frozenset[Path] | None:
    """Return the paths of the enabled skills in an answer to `skills/list`; None for another form."""
    if not isinstance(result.get("data"), list):
        return None
    return frozenset(
        Path(path)
        for entry in objects_in(result, "data")
        for skill in objects_in(entry, "skills")
        if skill.get("enabled") is True and isinstance(path := skill.get("path"), str)
    )


# --- answers to requests of the app-server -----------------------------------------------------------------
#
# An unknown request is refused with an error, because silence would hang the turn.

UNATTENDED: Final = -32_000

_MCP_QUESTION: Final = "mcp_tool_call_approval_"
_NOT_IN_KEY: Final = frozenset(
    {
        *("threadId", "conversationId", "turnId", "itemId", "callId", "approvalId", "startedAtMs"),
        *("reason", "commandActions", "parsedCmd", "availableDecisions"),
        *("proposedExecpolicyAmendment", "proposedNetworkPolicyAmendments"),
    }
)
"""Keys that differ between equal requests, and keys with mere explanations by the agent."""
_PREFERRED_LABELS: Final = ("Approve this Session", "Approve Once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The fixed parameters of a session: how it answers approvals, and its advertised tools.

    Attributes:
        decisions: the decisions in `SessionRequest`.
        changes: the changes of the latest items that change files, by item.
    """

    approval_policy: str | Mapping[str, Any]
    on_approval: session.OnApproval
    tool_names: frozenset[str]
    decisions: Mapping[str, bool] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)


def decide(request: wire.ServerRequest, policy: Policy) -> wire.RequestAnswer | session.ToolCall:
    """Return the answer to a request, or the tool call that has to be run for it; never raises."""
    try:
        params = decode_object(request.params)
    except ValueError as error:
        return wire.RequestAnswer(error=(wire.INVALID_PARAMS, agent_events.redact(str(error))))
    handler = _HANDLERS.get(request.method)
    if handler is not None:
        return handler(params, policy)
    text = agent_events.redact(f"unsupported request {request.method}", 200)
    return wire.RequestAnswer(
        error=(wire.METHOD_NOT_FOUND, text),
        event=agent_events.LogNotice(level="warning", message=f"{text} was refused"),
    )


def tool_answer(name: str, result: ToolResult) -> wire.RequestAnswer:
    """Return the answer to a tool call, in the form of both protocol generations."""
    return wire.RequestAnswer(
        result={
            "success": result.success,
            "output": result.text,
            "contentItems": [{"type": "inputText", "text": result.text}],
        },
        event=agent_events.ToolCalled(name=name, success=result.success),
    )


def _current_time(params: Json, policy: Policy) -> wire.RequestAnswer:
    del params, policy
    return wire.RequestAnswer(result={"currentTimeAt": int(time.time())})


def _tool_call(params: Json, policy: Policy) -> wire.RequestAnswer | session.ToolCall:
    name = params.get("tool")
    if params.get("namespace"):
        call: session.ToolCall | session.RefusedCall = session.unsupported_tool(name, policy.tool_names)
    else:
        call = session.check_tool_call(name, params.get("arguments"), policy.tool_names)
    return tool_answer(call.name, call.result) if isinstance(call, session.RefusedCall) else call


def _current_approval(kind: str) -> "_Handler":
    def handle(params: Json, policy: Policy) -> wire.RequestAnswer:
        offered = params.get("availableDecisions")
        yes = (
            "accept"
            if isinstance(offered, list) and "acceptForSession" not in offered
            else "acceptForSession"
        )
        return _approval(
            kind,
            params,
            policy,
            yes={"decision": yes},
            once={"decision": "accept"},
            no={"decision": "decline"},
            stop={"decision": "cancel"},
        )

    return handle


def _legacy_approval(kind: str) -> "_Handler":
    def handle(params: Json, policy: Policy) -> wire.RequestAnswer:
        denied = {"denied": {"rejection": "this session runs unattended, and no person can approve it"}}
        return _approval(
            kind,
            params,
            policy,
            yes={"decision": "approved_for_session"},
            once={"decision": "approved"},
            no={"decision": denied},
            stop={"decision": "abort"},
        )

    return handle


def _permissions(params: Json, policy: Policy) -> wire.RequestAnswer:
    nothing = {"permissions": {}, "scope": "turn"}
    granted = {"permissions": object_in(params, "permissions"), "scope": "session"}
    once = {**granted, "scope": "turn"}
    return _approval("permissions", params, policy, yes=granted, once=once, no=nothing, stop=nothing)


def _elicitation(params: Json, policy: Policy) -> wire.RequestAnswer:
    """Answer an MCP server's request for input, which only a person could give, or an approval of its tool.

    Codex asks whether a tool of an MCP server may run in the form of an elicitation, and marks it as such.
    """
    no = {"action": "decline", "content": None}
    meta = object_in(params, "_meta")
    if meta.get("codex_approval_kind") == "mcp_tool_call":
        asked = {**meta, "server": params.get("serverName"), "command": meta.get("tool_name")}
        asked["reason"] = params.get("message")
        yes = {"action": "accept", "content": {}}
        return _approval("mcpToolCall", asked, policy, yes=yes, once=yes, no=no, stop=no)
    text = params.get("message")
    reason = agent_events.redact(text, 300) if isinstance(text, str) else "an MCP server asks for input"
    return wire.RequestAnswer(
        result=no, event=agent_events.InputRequired(reason=f"MCP elicitation: {reason}")
    )


def _approval(
    kind: str, params: Json, policy: Policy, *, yes: Json, once: Json, no: Json, stop: Json
) -> wire.RequestAnswer:
    """Answer a request for approval as a person decided, else as `on_approval` says.

    `once` allows nothing but this request. `stop` also ends the turn if possible.
    """
    command = shown_command(params.get("command"))
    subject = str(command or params.get("reason") or "")
    key = _request_key(kind, params, policy)
    match session.answer_to(key, policy.decisions, policy.on_approval):
        case "accept":
            event = agent_events.ApprovalAnswered(kind=kind, decision="accept", subject=subject)
            return wire.RequestAnswer(result=yes if policy.on_approval == "accept" else once, event=event)
        case "decline":
            event = agent_events.ApprovalAnswered(kind=kind, decision="decline", subject=subject)
            return wire.RequestAnswer(result=no, event=event)
        case "block":
            return wire.RequestAnswer(
                result=stop, event=session.approval_required(kind, [command, params.get("reason")], key)
            )


def _request_key(kind: str, params: Json, policy: Policy) -> str | None:
    """Return the key of the request for approval; `None` for the changes of an unknown item."""
    what = {name: value for name, value in params.items() if name not in _NOT_IN_KEY and value is not None}
    if kind == "fileChange" and "fileChanges" not in params:
        what["changes"] = policy.changes.get(text_in(params, "itemId"))
        if what["changes"] is None:
            return None
    return session.request_key(kind, what)


def _user_input(params: Json, policy: Policy) -> wire.RequestAnswer:
    """Approve MCP tool calls that `approval_policy: never` allows; any other question is for a person."""
    questions = objects_in(params, "questions")
    labels = {str(question.get("id")): _approving_label(question) for question in questions}
    automatic = policy.approval_policy == "never" and all(name.startswith(_MCP_QUESTION) for name in labels)
    if labels and automatic and all(labels.values()):
        answers = {name: {"answers": [label]} for name, label in labels.items()}
        event: agent_events.AgentEvent = agent_events.ApprovalAnswered(kind="mcpToolCall", decision="accept")
        return wire.RequestAnswer(result={"answers": answers}, event=event)
    texts = [text for question in questions if isinstance(text := question.get("question"), str)]
    return wire.RequestAnswer(
        error=(UNATTENDED, "no person is here to answer"), event=session.question_asked(texts)
    )


def _approving_label(question: Json) -> str | None:
    labels = [text for option in objects_in(question, "options") if (text := text_in(option, "label"))]
    preferred = [label for label in _PREFERRED_LABELS if label in labels]
    fitting = [label for label in labels if label.strip().lower().startswith(("approve", "allow"))]
    return next(iter([*preferred, *fitting]), None)


_Handler = Callable[[Json, Policy], wire.RequestAnswer | session.ToolCall]
_HANDLERS: Final[Mapping[str, _Handler]] = {
    "currentTime/read": _current_time,
    "item/commandExecution/requestApproval": _current_approval("commandExecution"),
    "item/fileChange/requestApproval": _current_approval("fileChange"),
    "execCommandApproval": _legacy_approval("commandExecution"),
    "applyPatchApproval": _legacy_approval("fileChange"),
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _user_input,
    "mcpServer/elicitation/request": _elicitation,
    "item/tool/call": _tool_call,
}

ANSWERED: Final = frozenset(_HANDLERS)
"""The requests of the app-server that get an answer."""

REFUSED: Final = frozenset({"account/chatgptAuthTokens/refresh", "attestation/generate"})
"""The known requests that are refused: logins are Codex's own, and Symphony attests nothing."""

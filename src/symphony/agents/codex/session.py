"""One agent session: a process, a thread, and turns one after the other (AG4-AG6, AG9, AG10, AG13, AG21).

What the turns of all backends have alike is in `turns`.
"""

import math
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import anyio
from typing_extensions import override

from symphony.agents.base import AgentError, Briefing, SessionRequest
from symphony.agents.codex import protocol
from symphony.agents.codex.protocol import INSTALL_HINT, UNEXPLAINED, Translation, means_nothing, translate
from symphony.agents.events import (
    MAX_ID_CHARS,
    AgentEvent,
    ApprovalAnswered,
    ContextCompacted,
    EventQueue,
    InputRequired,
    Notice,
    SessionStarted,
    ToolCalled,
    TurnEnded,
    TurnStatus,
    parse,
    redact,
)
from symphony.agents.process import AgentProcess
from symphony.agents.session import Conversation, RefusedCall, ToolCall, judge, run_tool, unsupported
from symphony.agents.wire import (
    Connection,
    JsonRpcDialect,
    MalformedLine,
    Message,
    Notification,
    PlainLine,
    Refusal,
    RefusedError,
    ServerRequest,
    Suppressed,
    noise,
)
from symphony.config import CodexSettings
from symphony.domain import Blame, Category, Failure, ToolResult, session_id
from symphony.scheduler import Thread

# The answer to everything the app-server may ask (AG13-AG18; AGENT-FACTS 2.4). Pure.
#
# `decide` turns one server request into an `Answer`, or into a `ToolCall` that the session has to run
# first. There is no third way: what we do not know is refused with a JSON-RPC error, because silence hangs
# a turn.


METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
NOBODY_THERE = -32000

OnApproval = Literal["decline", "accept", "block"]
Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a session was bound to at its start (AG19): approval posture and the tools it advertised."""

    approval_policy: str | Mapping[str, Any]
    on_approval: OnApproval
    tool_names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back: `result`, or `error` as (code, message); and what to tell upwards."""

    result: Params | None = None
    error: tuple[int, str] | None = None
    event: AgentEvent | None = None


Decision = Answer | ToolCall


def decide(request: ServerRequest, policy: Policy, *, now_s: int) -> Decision:
    """What to do about one request of the server; never raises. `now_s` is the wall clock in Unix seconds."""
    try:
        params = parse(request.params)
    except ValueError as error:
        return Answer(error=(INVALID_PARAMS, redact(str(error))))
    if request.method == "currentTime/read":
        return Answer(result={"currentTimeAt": now_s})
    handler = _HANDLERS.get(request.method)
    return _unknown(request.method) if handler is None else handler(params, policy)


def tool_answer(name: str, result: ToolResult) -> Answer:
    """A tool's result on the wire, in the shape of both protocol generations (AG17)."""
    return Answer(
        result={
            "success": result.success,
            "output": result.text,
            "contentItems": [{"type": "inputText", "text": result.text}],
        },
        event=ToolCalled(name=name, success=result.success),
    )


def _unknown(method: str) -> Answer:
    text = redact(f"unsupported request {method}", 200)
    return Answer(
        error=(METHOD_NOT_FOUND, text), event=Notice(level="warning", message=f"{text} was refused")
    )


def _tool_call(params: Params, policy: Policy) -> Decision:
    name, offered = params.get("tool"), policy.tool_names
    foreign = bool(params.get("namespace"))
    judged = unsupported(name, offered) if foreign else judge(name, params.get("arguments"), offered)
    return tool_answer(judged.name, judged.result) if isinstance(judged, RefusedCall) else judged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """How one generation of approval methods spells yes and no; `stop` also ends the turn."""

    yes: tuple[str, ...]
    no: Any
    stop: Any


_CURRENT = _Words(yes=("acceptForSession", "accept"), no="decline", stop="cancel")
_LEGACY = _Words(
    yes=("approved_for_session",),
    no={"denied": {"rejection": "this session runs unattended; nobody can approve it"}},
    stop="abort",
)


def _approval(kind: str, words: _Words) -> Callable[[Params, Policy], Answer]:
    def handle(params: Params, policy: Policy) -> Answer:
        match policy.on_approval:
            case "accept":
                return _decided(kind, "accept", _first_offered(words.yes, params.get("availableDecisions")))
            case "decline":
                return _decided(kind, "decline", words.no)
            case "block":
                return Answer(result={"decision": words.stop}, event=_blocked(kind, params))

    return handle


def _decided(kind: str, decision: str, word: object) -> Answer:
    return Answer(result={"decision": word}, event=ApprovalAnswered(kind=kind, decision=decision))


def _first_offered(words: Sequence[str], offered: object) -> str:
    if isinstance(offered, list):
        return next((word for word in words if word in offered), words[-1])
    return words[0]


def _blocked(kind: str, params: Params) -> InputRequired:
    command, reason = params.get("command"), params.get("reason")
    if isinstance(command, list):
        command = " ".join(str(word) for word in command)
    details = [redact(str(part), 300) for part in (command, reason) if part]
    return InputRequired(reason=": ".join([f"approval required for {kind}", *details]), approval=True)


def _permissions(params: Params, policy: Policy) -> Answer:
    kind, wanted = "permissions", params.get("permissions")
    nothing = {"permissions": {}, "scope": "turn"}
    match policy.on_approval:
        case "accept":
            granted = wanted if isinstance(wanted, dict) else {}
            answer = {"permissions": granted, "scope": "session"}
            return Answer(result=answer, event=ApprovalAnswered(kind=kind, decision="accept"))
        case "decline":
            return Answer(result=nothing, event=ApprovalAnswered(kind=kind, decision="decline"))
        case "block":
            return Answer(result=nothing, event=_blocked(kind, params))


_LONGEST_QUESTION = 4_000
_MCP_QUESTION = "mcp_tool_call_approval_"
_PREFERRED_LABELS = ("Approve this Session", "Approve Once")


def _user_input(params: Params, policy: Policy) -> Answer:
    listed = params.get("questions")
    questions = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    labels = {str(entry.get("id")): _approving_label(entry) for entry in questions}
    automatic = policy.approval_policy == "never" and all(name.startswith(_MCP_QUESTION) for name in labels)
    if labels and automatic and all(labels.values()):
        answers = {name: {"answers": [label]} for name, label in labels.items()}
        event = ApprovalAnswered(kind="mcpToolCall", decision="accept")
        return Answer(result={"answers": answers}, event=event)
    return Answer(error=(NOBODY_THERE, "nobody is here to answer"), event=_asked(questions))


def _approving_label(question: Params) -> str | None:
    options = question.get("options")
    found = (
        [entry.get("label") for entry in options if isinstance(entry, dict)]
        if isinstance(options, list)
        else []
    )
    labels = [label for label in found if isinstance(label, str)]
    preferred = [label for label in _PREFERRED_LABELS if label in labels]
    fitting = [label for label in labels if label.strip().lower().startswith(("approve", "allow"))]
    return next(iter([*preferred, *fitting]), None)


def _asked(questions: Sequence[Params]) -> InputRequired:
    texts = [text for entry in questions if isinstance(text := entry.get("question"), str)]
    told = "; ".join(redact(text, 300) for text in texts) or "something it did not word"
    words = "\n".join(redact(text, _LONGEST_QUESTION) for text in texts) or None
    return InputRequired(reason=f"the agent asks: {told}", question=words)


def _elicitation(params: Params, policy: Policy) -> Answer:
    """A form for a person, which no posture allows us to fill in (AG16), or a question about a tool call.

    Codex asks whether a tool of an MCP server may run in the words of an elicitation, and marks it as such.
    """
    meta = params.get("_meta")
    if isinstance(meta, dict) and meta.get("codex_approval_kind") == "mcp_tool_call":
        return _tool_approval(params, meta, policy)
    text = params.get("message")
    reason = redact(text, 300) if isinstance(text, str) else "an MCP server asks for input"
    result = {"action": "decline", "content": None}
    return Answer(result=result, event=InputRequired(reason=f"MCP elicitation: {reason}"))


def _tool_approval(params: Params, meta: Params, policy: Policy) -> Answer:
    kind, no = "mcpToolCall", {"action": "decline", "content": None}
    match policy.on_approval:
        case "accept":
            yes = {"action": "accept", "content": {}}
            return Answer(result=yes, event=ApprovalAnswered(kind=kind, decision="accept"))
        case "decline":
            return Answer(result=no, event=ApprovalAnswered(kind=kind, decision="decline"))
        case "block":
            asked = {"command": meta.get("tool_name"), "reason": params.get("message")}
            return Answer(result=no, event=_blocked(kind, asked))


_HANDLERS: Mapping[str, Callable[[Params, Policy], Decision]] = {
    "item/commandExecution/requestApproval": _approval("commandExecution", _CURRENT),
    "item/fileChange/requestApproval": _approval("fileChange", _CURRENT),
    "execCommandApproval": _approval("commandExecution", _LEGACY),
    "applyPatchApproval": _approval("fileChange", _LEGACY),
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _user_input,
    "mcpServer/elicitation/request": _elicitation,
    "item/tool/call": _tool_call,
}

ANSWERED = frozenset({*_HANDLERS, "currentTime/read"})
"""What the server may ask and gets an answer to."""

REFUSED = frozenset({"account/chatgptAuthTokens/refresh", "attestation/generate"})
"""What it may ask and is refused for good: logins are Codex's own, and we attest nothing."""


# How a conversation with Codex begins: who answers, how it refuses, and which thread a session gets (AG4).
#
# A session goes on with the thread asked for, else with a new one (AGENT-FACTS 2.6).


_AGENT = re.compile(r"^([^/\s]+)/(\d+\.\d+\S*)")
_OUR_NAME = str(protocol.initialize()["clientInfo"]["name"])
_INVALID = frozenset({-32600, -32602})
_POLICY_HINT = "check codex.approval_policy, codex.thread_sandbox, codex.turn_sandbox_policy and codex.model"

Call = Callable[[str, protocol.Params], Awaitable[dict[str, Any]]]
"""Sends a request and gives its result; raises `RefusedError` where the agent says no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A thread to run turns on; `refused` says why it is not the one that was asked for."""

    thread_id: str
    resumed: bool = False
    refused: Failure | None = None


async def open_thread(
    call: Call,
    settings: CodexSettings,
    briefing: Briefing,
    *,
    resume: Thread | None,
    cwd: Path,
    credentials: Collection[str],
) -> Opened:
    """Resume that thread or start one; a thread that is refused is answered by a new one.

    Raises:
        AgentError: see `Connection.call`; also when the answer names no thread.
    """
    refused = None
    if resume is not None:
        asked = protocol.thread_resume(
            settings,
            thread_id=resume.thread_id,
            cwd=cwd,
            credentials=credentials,
            agent_lists_skills=briefing.agent_lists_skills,
        )
        try:
            return Opened(thread_id=id_in(await call("thread/resume", asked), "thread"), resumed=True)
        except RefusedError as error:
            refused = error.failure
    asked = protocol.thread_start(
        settings,
        cwd=cwd,
        envelope=briefing.envelope,
        tools=briefing.tools,
        credentials=credentials,
        agent_lists_skills=briefing.agent_lists_skills,
    )
    return Opened(thread_id=id_in(await call("thread/start", asked), "thread"), refused=refused)


def listed_skills(result: dict[str, Any]) -> frozenset[Path] | None:
    """The paths of the skills that are on in an answer to `skills/list`; `None` for one of another form."""
    entries = result.get("data")
    if not isinstance(entries, list):
        return None
    skills = [
        skill
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("skills"), list)
        for skill in entry["skills"]
    ]
    return frozenset(
        Path(skill["path"])
        for skill in skills
        if isinstance(skill, dict) and isinstance(skill.get("path"), str) and skill.get("enabled") is True
    )


def id_in(result: dict[str, Any], key: str) -> str:
    """`<key>.id` of an answer, of at most `MAX_ID_CHARS`, without which there is no session.

    Raises:
        AgentError: `response_error`.
    """
    found = result.get(key)
    identifier = found.get("id") if isinstance(found, dict) else None
    if isinstance(identifier, str) and 0 < len(identifier) <= MAX_ID_CHARS:
        return identifier
    text = f"the answer of the agent names no {key}"
    raise AgentError(Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=text))


# --- who answers, and how it refuses -----------------------------------------------------------------------


def who(user_agent: str) -> tuple[str | None, str | None]:
    """Name and version, null where they are not told.

    Codex calls itself by the name of its client, which is ours; other speakers have their own.
    """
    found = _AGENT.match(user_agent)
    if found is None:
        return None, None
    return "codex" if found[1] == _OUR_NAME else redact(found[1], 100), redact(found[2], 100)


def _refusal(answer: Refusal) -> Failure:
    """A start refused as invalid will be refused again: the settings name something unknown."""
    ours = answer.code in _INVALID and answer.method in {"thread/start", "turn/start"}
    return Failure(
        category=Category.RESPONSE_ERROR,
        blame=Blame.CONFIG if ours else Blame.AGENT,
        message=redact(f"{answer.method} was refused: {answer.message} ({answer.code})"),
        retryable=not ours,
        hint=_POLICY_HINT if ours else None,
    )


MANNER = JsonRpcDialect(missing=Category.CODEX_NOT_FOUND, install_hint=INSTALL_HINT, refusal=_refusal)
"""How Codex speaks, for the connection that all JSON-RPC agents share."""

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
        self._compare(await self._call("initialize", protocol.initialize()))
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

    async def _call(self, method: str, asked: protocol.Params) -> dict[str, Any]:
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
        asked = protocol.turn_start(
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
        if isinstance(message, Suppressed):
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
        elif isinstance(message, PlainLine | MalformedLine):
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

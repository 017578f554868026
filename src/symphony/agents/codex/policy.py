"""The answer to everything the app-server may ask (AG13-AG18; AGENT-FACTS 2.4). Pure.

`decide` turns one server request into an `Answer`, or into a `ToolCall` that the session has to run first.
There is no third way: what we do not know is refused with a JSON-RPC error, because silence hangs a turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from symphony.agents.events import AgentEvent, ApprovalAnswered, InputRequired, Notice, ToolCalled
from symphony.agents.redaction import redact
from symphony.agents.toolcalls import RefusedCall, ToolCall, judge, unsupported
from symphony.agents.wire.jsonrpc import ServerRequest, parse
from symphony.domain.tools import ToolResult

__all__ = ["ANSWERED", "REFUSED", "Answer", "OnApproval", "Policy", "ToolCall", "decide", "tool_answer"]

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

"""The answer to everything an agent may ask of its client (AG13-AG16). Pure.

Permissions are chosen by the `kind` of an option and never by its id, which every agent spells in its own
way. Files and terminals are refused, as we said at `initialize`: what an agent does it does with its own
hands, where `workspace.isolation` holds them; a daemon that wrote files for it would reach out of that.
OpenCode asks for `fs/write_text_file` all the same, to keep an editor up to date, and gets on without.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from symphony.agents.events import AgentEvent, ApprovalAnswered, InputRequired, Notice
from symphony.agents.mcp.protocol import SERVER_NAME
from symphony.agents.redaction import redact
from symphony.agents.wire.jsonrpc import ServerRequest, parse

__all__ = ["INVALID_PARAMS", "METHOD_NOT_FOUND", "Answer", "OnApproval", "decide", "own_tool"]

METHOD_NOT_FOUND = -32_601
INVALID_PARAMS = -32_602

OnApproval = Literal["decline", "accept", "block"]
Params = Mapping[str, Any]

_CANCELLED: Params = {"outcome": {"outcome": "cancelled"}}
_KINDS: Mapping[str, Sequence[str]] = {
    "accept": ("allow_once", "allow_always"),
    "decline": ("reject_once", "reject_always"),
}
_SPELLINGS = (
    f"mcp__{SERVER_NAME}__{{}}",
    f"mcp.{SERVER_NAME}.{{}}",
    f"{SERVER_NAME}_{{}}",
    f"{{}} ({SERVER_NAME} MCP Server)",
)
_LENT = ("fs/", "terminal/")
_LONGEST_QUESTION = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back: `result`, or `error` as (code, message); and what to tell upwards."""

    result: Params | None = None
    error: tuple[int, str] | None = None
    event: AgentEvent | None = None


def own_tool(title: str, tools: Collection[str]) -> bool:
    """Whether a tool call is one of a tool of ours, by the names that agents make of server and tool."""
    names = (spelling.format(tool) for tool in tools for spelling in _SPELLINGS)
    return title.strip() in names


def decide(
    request: ServerRequest, on_approval: OnApproval, *, ours: bool = False, stopping: bool = False
) -> Answer:
    """What to say to one request of the agent; never raises.

    A call of `ours` is granted: the daemon runs it, by rules of its own. While `stopping` nothing is.
    """
    try:
        params = parse(request.params)
    except ValueError as error:
        return Answer(error=(INVALID_PARAMS, redact(str(error))))
    match request.method:
        case "session/request_permission":
            return (
                Answer(result=_CANCELLED)
                if stopping
                else _permission(params, "accept" if ours else on_approval)
            )
        case "elicitation/create":
            return _elicitation(params)
        case method:
            return _unknown(method)


def _unknown(method: str) -> Answer:
    text = redact(f"unsupported request {method}", 200)
    lent = method.startswith(_LENT)
    event = None if lent else Notice(level="warning", message=f"{text} was refused")
    return Answer(error=(METHOD_NOT_FOUND, text), event=event)


def _permission(params: Params, on_approval: OnApproval) -> Answer:
    call = params.get("toolCall")
    call = call if isinstance(call, dict) else {}
    kind = str(call.get("kind") or "other")[:40]
    listed = params.get("options")
    options = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    if on_approval == "block":
        return Answer(result=_CANCELLED, event=_blocked(kind, call))
    # Once, and not for ever: what an agent remembers would outlive this workflow's word.
    chosen = _option(options, _KINDS[on_approval])
    decision = "decline" if chosen is None else on_approval
    result = _CANCELLED if chosen is None else {"outcome": {"outcome": "selected", "optionId": chosen}}
    return Answer(result=result, event=ApprovalAnswered(kind=kind, decision=decision))


def _option(options: Sequence[Params], kinds: Sequence[str]) -> object:
    for kind in kinds:
        for option in options:
            if option.get("kind") == kind and option.get("optionId") is not None:
                return option["optionId"]
    return None


def _blocked(kind: str, call: Params) -> InputRequired:
    title, raw = call.get("title"), call.get("rawInput")
    command = raw.get("command") if isinstance(raw, dict) else None
    details = [redact(part, 300) for part in (command, title) if isinstance(part, str) and part.strip()]
    return InputRequired(reason=": ".join([f"approval required for {kind}", *details[:1]]), approval=True)


def _elicitation(params: Params) -> Answer:
    text = params.get("message")
    asked = text if isinstance(text, str) and text.strip() else None
    reason = f"the agent asks: {redact(asked, 300) if asked else 'something it did not word'}"
    question = None if asked is None else redact(asked, _LONGEST_QUESTION)
    return Answer(result={"action": "decline"}, event=InputRequired(reason=reason, question=question))

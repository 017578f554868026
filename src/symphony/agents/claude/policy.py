"""The answer to everything Claude Code may ask on its control channel (AG13-AG16). Pure.

Nobody is there to be asked: what is not known is refused, because silence hangs a turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from symphony.agents.claude.codec import Question, parse
from symphony.agents.events import AgentEvent, ApprovalAnswered, InputRequired, Notice
from symphony.agents.redaction import redact

__all__ = ["Answer", "OnApproval", "decide"]

OnApproval = Literal["decline", "accept", "block"]
Body = Mapping[str, Any]

_UNATTENDED = "this session runs unattended; nobody can approve it"
_NOBODY = "nobody is here to answer"
_LONGEST_QUESTION = 4_000
_TELLING = ("command", "file_path", "notebook_path", "url", "plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back: `response`, or `error`; and what to tell upwards."""

    response: Body | None = None
    error: str | None = None
    event: AgentEvent | None = None


def decide(question: Question, on_approval: OnApproval, *, own_tools: str) -> Answer:
    """What to do about one question; never raises.

    `own_tools` is what the names of our own tools begin with: asking for them is always granted.
    """
    try:
        request = parse(question.request)
    except ValueError as error:
        return Answer(error=redact(f"unreadable request: {error}", 200))
    if request.get("subtype") == "can_use_tool":
        return _tool(request, on_approval, own_tools)
    text = redact(f"unsupported request {request.get('subtype')}", 200)
    return Answer(error=text, event=Notice(level="warning", message=f"{text} was refused"))


def _tool(request: Body, on_approval: OnApproval, own_tools: str) -> Answer:
    name, given = str(request.get("tool_name")), request.get("input")
    arguments = given if isinstance(given, dict) else {}
    if name.startswith(own_tools):
        return Answer(response=_allow(arguments))
    if name == "AskUserQuestion":
        return Answer(response=_deny(_NOBODY, interrupt=True), event=_asked(arguments))
    kind = redact(name, 100)
    match on_approval:
        case "accept":
            event = ApprovalAnswered(kind=kind, decision="accept")
            return Answer(response=_allow(arguments), event=event)
        case "decline":
            event = ApprovalAnswered(kind=kind, decision="decline")
            return Answer(response=_deny(_UNATTENDED, interrupt=False), event=event)
        case "block":
            return Answer(
                response=_deny(_UNATTENDED, interrupt=True), event=_blocked(kind, request, arguments)
            )


def _allow(arguments: Body) -> Body:
    return {"behavior": "allow", "updatedInput": arguments}


def _deny(message: str, *, interrupt: bool) -> Body:
    return {"behavior": "deny", "message": message, "interrupt": interrupt}


def _blocked(kind: str, request: Body, arguments: Body) -> InputRequired:
    parts = (*(arguments.get(key) for key in _TELLING), request.get("decision_reason"))
    details = [redact(part, 300) for part in parts if isinstance(part, str) and part]
    return InputRequired(reason=": ".join([f"approval required for {kind}", *details]), approval=True)


def _asked(arguments: Body) -> InputRequired:
    listed = arguments.get("questions")
    questions = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    texts = [text for one in questions if isinstance(text := one.get("question"), str)]
    told = "; ".join(redact(text, 300) for text in texts) or "something it did not word"
    words = "\n".join(_worded(one) for one in questions if isinstance(one.get("question"), str)) or None
    return InputRequired(reason=f"the agent asks: {told}", question=words)


def _worded(question: Body) -> str:
    """A question and, where there are some, the answers that it offers."""
    text = redact(str(question["question"]), _LONGEST_QUESTION)
    labels = _labels(question.get("options"))
    return f"{text} ({' / '.join(labels)})" if labels else text


def _labels(options: object) -> Sequence[str]:
    found = (
        [one.get("label") for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    )
    return [redact(label, 100) for label in found if isinstance(label, str)]

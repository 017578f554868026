"""What an operator may ask for now, and why not."""

from dataclasses import dataclass

from symphony.scheduler.inputs import Verb
from symphony.scheduler.state import Drain, State

__all__ = ["Refusal", "refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a verb does not fit the present state; `code` is stable, `message` for people."""

    code: str
    message: str


def refusal(  # noqa: C901, PLR0911 - a stand-in
    state: State, verb: Verb, issue_id: str | None, text: str | None
) -> Refusal | None:
    """Why the verb does nothing now; null when it fits."""
    match verb:
        case Verb.PAUSE:
            return Refusal(code="already_paused", message="it is paused already") if state.paused else None
        case Verb.RESUME:
            return None if state.paused else Refusal(code="not_paused", message="it is not paused")
        case Verb.DRAIN:
            ending = state.drain is not Drain.NO
            return Refusal(code="draining", message="the daemon is ending already") if ending else None
        case Verb.STOP:
            if issue_id not in state.running and issue_id not in state.retrying:
                return Refusal(code="not_running", message="nothing of it is running")
        case Verb.RETRY:
            if issue_id in state.running:
                return Refusal(code="running", message="an agent is running")
        case Verb.UNBLOCK:
            if issue_id not in state.blocked:
                return Refusal(code="not_blocked", message="it is not blocked")
        case Verb.ANSWER:
            blocked = state.blocked.get(issue_id or "")
            if blocked is None or blocked.question is None:
                return Refusal(code="no_question", message="nobody asked anything")
            if not (text or "").strip():
                return Refusal(code="empty_answer", message="the answer is empty")
    return None

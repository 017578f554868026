"""What an operator orders: judged, put into the mailbox, and answered once the scheduler has taken it.

So whoever looks after the answer sees what the order did. The verdict is that of `scheduler.verbs` on the
very state in which the order was taken: of two people who answer one question, one hears that it is too late.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from symphony.api.port import RefusedError
from symphony.domain.issue import Issue
from symphony.domain.plain import one_line
from symphony.scheduler.inputs import OperatorAsked, Verb
from symphony.scheduler.state import State
from symphony.scheduler.verbs import Refusal, already, refusal

__all__ = ["Order", "Orders"]

TAKEN_S = 10.0


@dataclass(slots=True, eq=False)
class Order:
    """An order in the mailbox; `refused` and `already` are the verdict once it is `taken`."""

    fact: OperatorAsked
    taken: anyio.Event = field(default_factory=anyio.Event)
    refused: Refusal | None = None
    already: bool = False

    def take(self, before: State) -> None:
        """Judge it by the state in which the scheduler took it."""
        self.refused = refusal(before, self.fact.verb, self.fact.issue_id, self.fact.text)
        self.already = already(before, self.fact.verb)
        self.taken.set()


class Orders:
    """Gives orders to one scheduler; the reader of its mailbox, `post`, calls `Order.take`."""

    def __init__(self, post: Callable[[Order], None], *, taken_s: float = TAKEN_S) -> None:
        self._post = post
        self._taken_s = taken_s

    async def give(self, state: State, verb: Verb, issue: Issue | None, text: str | None) -> tuple[str, bool]:
        """Have it done; what happens now, in one line, and whether anything changed.

        An order that is still in the mailbox after a while counts as taken: it will be.

        Raises:
            RefusedError: it does not fit the present state.
        """
        issue_id = None if issue is None else issue.id
        refused = refusal(state, verb, issue_id, text)
        settled = already(state, verb)
        if refused is None and not settled:
            order = Order(OperatorAsked(verb=verb, issue_id=issue_id, text=text))
            self._post(order)
            with anyio.move_on_after(self._taken_s):
                await order.taken.wait()
            refused, settled = order.refused, order.already
        if refused is not None:
            raise RefusedError(refused.code, refused.message, hint=refused.hint or _hint(refused.code, issue))
        return (_ALREADY[verb], False) if settled else (_WORDS[verb](state, issue_id or ""), True)


# --- words -----------------------------------------------------------------------------------------------


def _stopped(state: State, issue_id: str) -> str:
    what = "the run is being stopped" if issue_id in state.running else "it is not tried again by itself"
    return f"{what}; the issue stays blocked until somebody has it retried"


def _tried(state: State, _: str) -> str:
    if state.paused:
        return "it is tried once the daemon is resumed"
    return "it is tried now, or as soon as a slot is free"


def _unblocked(state: State, issue_id: str) -> str:
    return f"its budget counts anew, and {_tried(state, issue_id)}"


def _answered(state: State, issue_id: str) -> str:
    blocked = state.blocked.get(issue_id)
    goes_on = blocked is not None and blocked.resume is not None and blocked.resume.thread is not None
    how = "the agent gets the answer in the same conversation" if goes_on else "the next attempt is told it"
    return f"{how}; {_tried(state, issue_id)}"


def _paused(state: State, _: str) -> str:
    return f"nothing new is started until `symphony resume`; {_agents(state)}"


def _resumed(*_: object) -> str:
    return "issues are started again"


def _drained(state: State, _: str) -> str:
    if not state.running:
        return "nothing is running, so the daemon ends now"
    return f"nothing new is started; the daemon ends after the present turns ({len(state.running)} running)"


def _agents(state: State) -> str:
    count = len(state.running)
    if not count:
        return "none is running"
    return f"{count} running agent{'' if count == 1 else 's'} may go on"


_WORDS: dict[Verb, Callable[[State, str], str]] = {
    Verb.STOP: _stopped,
    Verb.RETRY: _tried,
    Verb.UNBLOCK: _unblocked,
    Verb.ANSWER: _answered,
    Verb.PAUSE: _paused,
    Verb.RESUME: _resumed,
    Verb.DRAIN: _drained,
}

_ALREADY = {
    Verb.PAUSE: "the daemon is paused already",
    Verb.RESUME: "the daemon is not paused",
    Verb.DRAIN: "the daemon is shutting down already",
}

_HINTS = {
    "running": "`symphony stop {}` ends its run",
    "empty_answer": 'say something: symphony answer {} "…"',
}


def _hint(code: str, issue: Issue | None) -> str:
    """What to do instead of what was refused."""
    name = "" if issue is None else shlex.quote(one_line(issue.identifier))
    fallback = (
        "`symphony status` tells how the daemon is" if issue is None else "`symphony explain {}` tells why"
    )
    return _HINTS.get(code, fallback).format(name)

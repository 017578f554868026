"""What an operator orders: judged, put into the mailbox, and answered once the scheduler has taken it.

So whoever looks after the answer sees what the order did. The verdict is that of `scheduler.verbs` on the
very state in which the order was taken: of two people who answer one question, one hears that it is too late.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from symphony.domain.issue import Issue
from symphony.domain.plain import one_line
from symphony.scheduler.inputs import Input, OperatorAsked, Verb
from symphony.scheduler.state import State
from symphony.scheduler.verbs import Refusal, refusal
from symphony.web.port import RefusedError

__all__ = ["Orders"]

TAKEN_S = 10.0


@dataclass(slots=True)
class _Taking:
    """An order in the mailbox; `refused` is the verdict once it is `taken`."""

    taken: anyio.Event = field(default_factory=anyio.Event)
    refused: Refusal | None = None


class Orders:
    """Gives orders to one scheduler; `post` is its mailbox."""

    def __init__(self, post: Callable[[Input], None], *, taken_s: float = TAKEN_S) -> None:
        self._post = post
        self._taken_s = taken_s
        self._open: dict[int, _Taking] = {}

    async def give(self, state: State, verb: Verb, issue: Issue | None, text: str | None) -> str:
        """Have it done; what happens now, in one line.

        An order that is still in the mailbox after a while counts as taken: it will be.

        Raises:
            RefusedError: it does not fit the present state.
        """
        issue_id = None if issue is None else issue.id
        refused = refusal(state, verb, issue_id, text)
        if refused is None:
            refused = await self._have_taken(OperatorAsked(verb=verb, issue_id=issue_id, text=text))
        if refused is not None:
            raise RefusedError(refused.code, refused.message, hint=refused.hint or _hint(refused.code, issue))
        return _WORDS[verb](state, issue_id or "")

    def taken(self, before: State, fact: OperatorAsked) -> None:
        """See that an order was taken in this state."""
        taking = self._open.get(id(fact))
        if taking is not None:
            taking.refused = refusal(before, fact.verb, fact.issue_id, fact.text)
            taking.taken.set()

    async def _have_taken(self, fact: OperatorAsked) -> Refusal | None:
        taking = self._open[id(fact)] = _Taking()
        try:
            self._post(fact)
            with anyio.move_on_after(self._taken_s):
                await taking.taken.wait()
        finally:
            del self._open[id(fact)]
        return taking.refused


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

_HINTS = {
    "running": "`symphony stop {}` ends its run",
    "empty_answer": 'say something: symphony answer {} "…"',
    "already_paused": "`symphony resume` has issues started again",
    "not_paused": "`symphony status` tells why nothing starts",
    "draining": "the next `symphony run` takes up what is left",
}


def _hint(code: str, issue: Issue | None) -> str:
    """What to do instead of what was refused."""
    name = "" if issue is None else shlex.quote(one_line(issue.identifier))
    fallback = (
        "`symphony status` tells how the daemon is" if issue is None else "`symphony explain {}` tells why"
    )
    return _HINTS.get(code, fallback).format(name)

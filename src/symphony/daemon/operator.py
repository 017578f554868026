"""Answers the web layer out of what the service holds: immutable states, so nothing waits and nothing locks.

The tracker is never asked for a snapshot: while it hangs, people still see what runs and why the rest waits.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial

import anyio
from anyio import CapacityLimiter, to_thread
from msgspec import structs

from symphony import __version__
from symphony.api import models
from symphony.api.documents import issue_document, state_document
from symphony.api.history import History, utc_now
from symphony.api.interface import ConflictError, UnavailableError
from symphony.api.models import utc_text
from symphony.daemon.context import RuntimeContext
from symphony.daemon.prompts import preview_prompt, prompt_document
from symphony.domain import ALL_ISSUES, Issue, Redaction, Selection, SymphonyError, one_line
from symphony.journal.model import Health, RunRecord
from symphony.observability.redaction import masked
from symphony.revision import commit
from symphony.scheduler import (
    AgentChoice,
    Command,
    Drain,
    Event,
    OperatorAction,
    OperatorAsked,
    Refusal,
    Resume,
    State,
    WakeAsked,
    already_done,
    plan_run,
    refusal,
    would_coalesce,
)

# What an operator orders: judged, put into the mailbox, and answered once the scheduler has taken it.
#
# So whoever looks after the answer sees what the order did. The verdict is that of `scheduler.verbs` on the
# very state in which the order was taken: of two people who answer one question, one hears that it is too
# late.


TAKEN_S = 10.0


@dataclass(slots=True, eq=False)
class ActionRequest:
    """An order in the mailbox; `refused` and `already` are the verdict once it is `taken`."""

    fact: OperatorAsked
    taken: anyio.Event = field(default_factory=anyio.Event)
    refused: Refusal | None = None
    already: bool = False

    def take(self, before: State) -> None:
        """Judge it by the state in which the scheduler took it."""
        self.refused = refusal(before, self.fact.action, self.fact.issue_id, self.fact.text)
        self.already = already_done(before, self.fact.action)
        self.taken.set()


class Orders:
    """Gives orders to one scheduler; the reader of its mailbox, `post`, calls `ActionRequest.take`."""

    def __init__(self, post: Callable[[ActionRequest], None], *, taken_s: float = TAKEN_S) -> None:
        self._post = post
        self._taken_s = taken_s

    async def give(
        self, state: State, verb: OperatorAction, issue: Issue | None, text: str | None
    ) -> tuple[str, bool]:
        """Have it done; what happens now, in one line, and whether anything changed.

        An order that is still in the mailbox after a while counts as taken: it will be.

        Raises:
            ConflictError: it does not fit the present state.
        """
        issue_id = None if issue is None else issue.id
        refused = refusal(state, verb, issue_id, text)
        settled = already_done(state, verb)
        if refused is None and not settled:
            order = ActionRequest(OperatorAsked(action=verb, issue_id=issue_id, text=text))
            self._post(order)
            with anyio.move_on_after(self._taken_s):
                await order.taken.wait()
            refused, settled = order.refused, order.already
        if refused is not None:
            raise ConflictError(
                refused.code, refused.message, hint=refused.hint or _hint(refused.code, issue)
            )
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


_WORDS: dict[OperatorAction, Callable[[State, str], str]] = {
    OperatorAction.STOP: _stopped,
    OperatorAction.RETRY: _tried,
    OperatorAction.UNBLOCK: _unblocked,
    OperatorAction.ANSWER: _answered,
    OperatorAction.PAUSE: _paused,
    OperatorAction.RESUME: _resumed,
    OperatorAction.DRAIN: _drained,
}

_ALREADY = {
    OperatorAction.PAUSE: "the daemon is paused already",
    OperatorAction.RESUME: "the daemon is not paused",
    OperatorAction.DRAIN: "the daemon is shutting down already",
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


SNAPSHOT_TIMEOUT_S = 15.0
PREVIEW_TIMEOUT_S = 60.0
_PREVIEWS = 2
_REASON = "operator"
_KEPT_TEXTS = 50_000
_MAX_KEPT_CHARS = 300


class ServiceOperator:
    """The port of one service; also an observer of it, to know what is still in its mailbox.

    `state`, `context` and `journal_health` give what holds now, `runs` the last runs of an issue by its
    identifier. A state is made into a document in a thread of its own, one at a time, and few prompts are
    looked ahead at together: neither a large board nor a crowd slows the loop.
    """

    def __init__(
        self,
        *,
        state: Callable[[], State | None],
        history: History,
        context: Callable[[], RuntimeContext | None],
        post: Callable[[Event | ActionRequest], None],
        now_ms: Callable[[], int],
        now: Callable[[], datetime] = utc_now,
        journal_health: Callable[[], Health | None] = lambda: None,
        runs: Callable[[str], Sequence[RunRecord]] = lambda _: (),
        timeout_s: float = SNAPSHOT_TIMEOUT_S,
        preview_timeout_s: float = PREVIEW_TIMEOUT_S,
    ) -> None:
        self._current = state
        self._history = history
        self._context = context
        self._post = post
        self._now_ms = now_ms
        self._now = now
        self._journal_health = journal_health
        self._runs = runs
        self._timeout_s = timeout_s
        self._preview_timeout_s = preview_timeout_s
        self._asked = False
        self._one_at_a_time = CapacityLimiter(1)
        self._previews = anyio.Semaphore(_PREVIEWS)
        self._mask = _Mask()
        self._orders = Orders(post)

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """See that a refresh was taken."""
        del before, after, commands
        if isinstance(fact, WakeAsked) and fact.reason == _REASON:
            self._asked = False

    # --- questions ---------------------------------------------------------------------------------------

    async def state(self, only: Selection = ALL_ISSUES) -> models.State:
        """See `api.interface.Operator`."""
        state, context = self._ready()
        build = partial(
            self._build, state, self._now_ms(), self._now(), self._journal_health(), context, only
        )
        try:
            with anyio.fail_after(self._timeout_s):
                return await to_thread.run_sync(build, abandon_on_cancel=True, limiter=self._one_at_a_time)
        except TimeoutError:
            message = f"no snapshot within {self._timeout_s:g} s: the machine is overloaded"
            raise UnavailableError("snapshot_timeout", message) from None

    def _build(
        self,
        state: State,
        now_ms: int,
        now: datetime,
        journal: Health | None,
        context: RuntimeContext,
        only: Selection,
    ) -> models.State:
        document = state_document(
            state,
            self._history,
            now_ms=now_ms,
            now=now,
            journal=journal,
            workspace=context.settings.workspace,
            only=only,
        )
        shown: models.State = masked(document, self._mask.of(context.redaction))
        return structs.replace(shown, version=__version__, commit=commit())

    async def issue(self, identifier: str) -> models.Issue | None:
        """See `api.interface.Operator`."""
        runs = await to_thread.run_sync(self._runs, identifier)
        state, context = self._ready()
        document = issue_document(
            state,
            self._history,
            identifier,
            now_ms=self._now_ms(),
            now=self._now(),
            journal=self._journal_health(),
            runs=runs,
            workspace=context.settings.workspace,
        )
        shown: models.Issue | None = masked(document, context.redaction.text)
        return shown

    async def prompt(self, identifier: str) -> models.Prompt | None:
        """See `api.interface.Operator`."""
        state, context = self._ready()
        found = _find(state, identifier)
        if found is None:
            return None
        try:
            with anyio.fail_after(self._preview_timeout_s):
                async with self._previews:
                    issue, attempt = found
                    agent, resume = _plan(state, issue)
                    seen = await preview_prompt(context, issue, attempt, resume, agent=agent)
                    build = partial(prompt_document, seen, source="daemon", redaction=context.redaction)
                    return await to_thread.run_sync(build)
        except SymphonyError as error:
            raise SymphonyError(context.redaction.failure(error.failure)) from error
        except TimeoutError:
            message = f"no prompt within {self._preview_timeout_s:g} s: the workspace or the disk is slow"
            raise UnavailableError("snapshot_timeout", message) from None

    def refresh(self) -> models.Refresh:
        """See `api.interface.Operator`. A burst of requests puts one fact into the mailbox."""
        state = self._current()
        if state is None or state.drain is not Drain.NO:
            message = "the daemon is not polling yet" if state is None else "the daemon is shutting down"
            raise UnavailableError("orchestrator_unavailable", message)
        coalesced = self._asked or would_coalesce(state)
        if not self._asked:
            self._asked = True
            self._post(WakeAsked(reason=_REASON, by_operator=True))
        return models.Refresh(
            queued=True,
            coalesced=coalesced,
            requested_at=utc_text(self._now()),
            operations=("poll", "reconcile"),
        )

    async def act(self, verb: str, identifier: str | None, text: str | None = None) -> models.Verb | None:
        """See `api.interface.Operator`."""
        state, context = self._current(), self._context()
        if state is None or context is None or state.drain is Drain.EXITED:
            message = "the daemon has ended" if state and context else "the daemon is starting"
            raise UnavailableError("orchestrator_unavailable", message)
        issue = None
        if identifier is not None:
            issue = _named(state, identifier)
            if issue is None:
                return None
        asked_at = self._now()
        try:
            message, changed = await self._orders.give(state, OperatorAction(verb), issue, text)
        except ConflictError as error:
            mask = context.redaction.text
            hint = None if error.hint is None else mask(error.hint)
            raise ConflictError(error.code, mask(error.message), hint=hint) from None
        return models.Verb(
            verb=verb,
            issue_identifier=identifier,
            changed=changed,
            message=message,
            requested_at=utc_text(asked_at),
        )

    def _ready(self) -> tuple[State, RuntimeContext]:
        state, context = self._current(), self._context()
        if state is None or context is None:
            raise UnavailableError("snapshot_unavailable", "the daemon is starting")
        return state, context


class _Mask:
    """Masks texts, and remembers the short ones: the same few thousand titles go out again and again."""

    def __init__(self) -> None:
        self._redaction: Redaction | None = None
        self._text: Callable[[str], str] = str

    def of(self, redaction: Redaction) -> Callable[[str], str]:
        """The function for what is secret now; another redaction forgets what the last one masked."""
        if redaction is not self._redaction:
            kept = lru_cache(maxsize=_KEPT_TEXTS)(redaction.text)
            self._redaction = redaction
            self._text = lambda text: kept(text) if len(text) <= _MAX_KEPT_CHARS else redaction.text(text)
        return self._text


def _plan(state: State, issue: Issue) -> tuple[AgentChoice, Resume | None]:
    """Who runs an issue next, or now, and what it goes on with."""
    if run := state.running.get(issue.id):
        return run.agent, run.resume
    entry = state.retrying.get(issue.id) or state.blocked.get(issue.id)
    return plan_run(state, issue, entry.resume if entry else None)


def _named(state: State, identifier: str) -> Issue | None:
    """The issue of that identifier, also where nothing can be done about it any more."""
    if found := _find(state, identifier):
        return found[0]
    known = (result.issue for result in state.results.values())
    return next((issue for issue in known if issue.identifier == identifier), None)


def _find(state: State, identifier: str) -> tuple[Issue, int | None] | None:
    """The issue of that identifier, and the number that its next attempt would have."""
    for run in state.running.values():
        if run.issue.identifier == identifier:
            return run.issue, run.attempt
    for retry in state.retrying.values():
        if retry.issue.identifier == identifier:
            return retry.issue, retry.attempt
    for issue in (*(one.issue for one in state.blocked.values()), *state.candidates.values()):
        if issue.identifier == identifier:
            return issue, None
    return None

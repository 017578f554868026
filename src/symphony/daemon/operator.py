"""Answers the web layer out of what the service holds: immutable states, so nothing waits and nothing locks.

The tracker is never asked for a snapshot: while it hangs, people still see what runs and why the rest waits.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache, partial

import anyio
from anyio import CapacityLimiter, to_thread
from msgspec import structs

from symphony import __version__
from symphony.api.port import RefusedError, UnavailableError
from symphony.daemon.bound import Bound
from symphony.daemon.orders import Order, Orders
from symphony.daemon.preview import preview, prompt_document
from symphony.domain.failures import SymphonyError
from symphony.domain.issue import EVERY_ISSUE, Issue, Selection
from symphony.domain.redaction import Redaction
from symphony.journal.model import Health, RunRecord
from symphony.observability import model
from symphony.observability.documents import issue_document, state_document
from symphony.observability.history import History, utc_now
from symphony.observability.masking import masked
from symphony.observability.moments import utc_text
from symphony.revision import commit
from symphony.scheduler import choice
from symphony.scheduler.commands import Command
from symphony.scheduler.cycle import would_coalesce
from symphony.scheduler.inputs import Input, Resume, Verb, WakeAsked
from symphony.scheduler.state import AgentChoice, Drain, State

__all__ = ["ServiceOperator"]

SNAPSHOT_TIMEOUT_S = 15.0
PREVIEW_TIMEOUT_S = 60.0
_PREVIEWS = 2
_REASON = "operator"
_KEPT_TEXTS = 50_000
_MAX_KEPT_CHARS = 300


class ServiceOperator:
    """The port of one service; also an observer of it, to know what is still in its mailbox.

    `state`, `bound` and `journal_health` give what holds now, `runs` the last runs of an issue by its
    identifier. A state is made into a document in a thread of its own, one at a time, and few prompts are
    looked ahead at together: neither a large board nor a crowd slows the loop.
    """

    def __init__(
        self,
        *,
        state: Callable[[], State | None],
        history: History,
        bound: Callable[[], Bound | None],
        post: Callable[[Input | Order], None],
        now_ms: Callable[[], int],
        now: Callable[[], datetime] = utc_now,
        journal_health: Callable[[], Health | None] = lambda: None,
        runs: Callable[[str], Sequence[RunRecord]] = lambda _: (),
        timeout_s: float = SNAPSHOT_TIMEOUT_S,
        preview_timeout_s: float = PREVIEW_TIMEOUT_S,
    ) -> None:
        self._current = state
        self._history = history
        self._bound = bound
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

    def __call__(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
        """See that a refresh was taken."""
        del before, after, commands
        if isinstance(fact, WakeAsked) and fact.reason == _REASON:
            self._asked = False

    # --- questions ---------------------------------------------------------------------------------------

    async def state(self, only: Selection = EVERY_ISSUE) -> model.State:
        """See `web.port.Operator`."""
        state, bound = self._ready()
        build = partial(self._build, state, self._now_ms(), self._now(), self._journal_health(), bound, only)
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
        bound: Bound,
        only: Selection,
    ) -> model.State:
        document = state_document(
            state,
            self._history,
            now_ms=now_ms,
            now=now,
            journal=journal,
            workspace=bound.settings.workspace,
            only=only,
        )
        shown: model.State = masked(document, self._mask.of(bound.redaction))
        return structs.replace(shown, version=__version__, commit=commit())

    async def issue(self, identifier: str) -> model.Issue | None:
        """See `web.port.Operator`."""
        runs = await to_thread.run_sync(self._runs, identifier)
        state, bound = self._ready()
        document = issue_document(
            state,
            self._history,
            identifier,
            now_ms=self._now_ms(),
            now=self._now(),
            journal=self._journal_health(),
            runs=runs,
            workspace=bound.settings.workspace,
        )
        shown: model.Issue | None = masked(document, bound.redaction.text)
        return shown

    async def prompt(self, identifier: str) -> model.Prompt | None:
        """See `web.port.Operator`."""
        state, bound = self._ready()
        found = _find(state, identifier)
        if found is None:
            return None
        try:
            with anyio.fail_after(self._preview_timeout_s):
                async with self._previews:
                    issue, attempt = found
                    agent, resume = _plan(state, issue)
                    seen = await preview(bound, issue, attempt, resume, agent=agent)
                    build = partial(prompt_document, seen, source="daemon", redaction=bound.redaction)
                    return await to_thread.run_sync(build)
        except SymphonyError as error:
            raise SymphonyError(bound.redaction.failure(error.failure)) from error
        except TimeoutError:
            message = f"no prompt within {self._preview_timeout_s:g} s: the workspace or the disk is slow"
            raise UnavailableError("snapshot_timeout", message) from None

    def refresh(self) -> model.Refresh:
        """See `web.port.Operator`. A burst of requests puts one fact into the mailbox."""
        state = self._current()
        if state is None or state.drain is not Drain.NO:
            message = "the daemon is not polling yet" if state is None else "the daemon is shutting down"
            raise UnavailableError("orchestrator_unavailable", message)
        coalesced = self._asked or would_coalesce(state)
        if not self._asked:
            self._asked = True
            self._post(WakeAsked(reason=_REASON, by_operator=True))
        return model.Refresh(
            queued=True,
            coalesced=coalesced,
            requested_at=utc_text(self._now()),
            operations=("poll", "reconcile"),
        )

    async def act(self, verb: str, identifier: str | None, text: str | None = None) -> model.Verb | None:
        """See `web.port.Operator`."""
        state, bound = self._current(), self._bound()
        if state is None or bound is None or state.drain is Drain.EXITED:
            message = "the daemon has ended" if state and bound else "the daemon is starting"
            raise UnavailableError("orchestrator_unavailable", message)
        issue = None
        if identifier is not None:
            issue = _named(state, identifier)
            if issue is None:
                return None
        asked_at = self._now()
        try:
            message, changed = await self._orders.give(state, Verb(verb), issue, text)
        except RefusedError as error:
            mask = bound.redaction.text
            hint = None if error.hint is None else mask(error.hint)
            raise RefusedError(error.code, mask(error.message), hint=hint) from None
        return model.Verb(
            verb=verb,
            issue_identifier=identifier,
            changed=changed,
            message=message,
            requested_at=utc_text(asked_at),
        )

    def _ready(self) -> tuple[State, Bound]:
        state, bound = self._current(), self._bound()
        if state is None or bound is None:
            raise UnavailableError("snapshot_unavailable", "the daemon is starting")
        return state, bound


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
    return choice.plan(state, issue, entry.resume if entry else None)


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

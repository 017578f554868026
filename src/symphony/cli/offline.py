"""The documents of the API without a daemon: one look at the tracker, judged by the real scheduler.

The workflow is loaded, the journal is read, the tracker is asked once for its candidates and for what is
blocked, and `step` takes what a daemon would take at its start. What it then wants done is not done: nothing
is started, made, cleaned or posted. So the reasons, blocks, retries and budgets are those that a daemon would
begin with; what only a running one knows (sessions, its history) is absent.
"""

import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from anyio import to_thread
from msgspec import structs

from symphony import __version__
from symphony.api import models
from symphony.api.documents import WaitingReason, issue_document, state_document, waiting_issues
from symphony.api.history import History
from symphony.cli.serving import open_store
from symphony.config import read_secrets
from symphony.daemon.clock import monotonic_ms
from symphony.daemon.context import RuntimeContext, build_context, redaction_for, scheduler_settings
from symphony.daemon.journal_writer import past_runs, recovery_event
from symphony.daemon.prompts import preview_prompt, prompt_document
from symphony.domain import (
    EVERY_ISSUE,
    Blame,
    Category,
    Failure,
    Issue,
    Selection,
    SymphonyError,
    normalise_state,
)
from symphony.journal.model import RecoveredState, RunRecord, UnusableError
from symphony.journal.reader import open_reader
from symphony.observability.logs import configure
from symphony.observability.redaction import masked
from symphony.processes.local import LocalHost
from symphony.revision import commit
from symphony.scheduler import (
    Command,
    Event,
    FetchCandidates,
    Polled,
    PollFailed,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    State,
    WorkspaceRef,
    initial,
    operator,
    policy,
    step,
)
from symphony.trackers.base import skipped_by

_T = TypeVar("_T")

TRACKER_S: Final = 30.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WOULD_START: Final = "it would start now, and no daemon is running"
_NOT_ASKED = Failure(
    category=Category.TRACKER_REQUEST, blame=Blame.TRACKER, message="not asked without a daemon"
)


def open_offline(
    workflow: Path, environment: Mapping[str, str], *, journal: Path | None = None, begins: bool = True
) -> "Offline":
    """Load the workflow as a daemon would; of its log only errors are shown, on stderr.

    `journal` tells of past runs; one that cannot be read tells nothing. With `begins` the answers are those
    of a daemon that begins with what it remembers: not where one runs, which has its own to tell.

    Settings without a sandbox are fine here: nothing is started, so nobody has to answer for it.

    Raises:
        SymphonyError: the workflow is not usable.
    """
    configure(stream=sys.stderr, level="error")
    environment = read_secrets(environment).environment
    loaded = open_store(workflow, environment, acknowledged=True).current()
    configure(stream=sys.stderr, level="error", redaction=redaction_for(loaded, environment))
    remembered = RecoveredState() if journal is None or not begins else _remembered(journal)
    return Offline(build_context(loaded, host=LocalHost(), environment=environment), remembered, journal)


def _remembered(journal: Path) -> RecoveredState:
    try:
        with open_reader(journal) as reader:
            return reader.remembered()
    except UnusableError:
        return RecoveredState()


@dataclass(frozen=True, slots=True)
class Offline:
    """Answers for one workflow from its files; every answer asks the tracker anew."""

    bound: RuntimeContext
    remembered: RecoveredState
    journal: Path | None = None

    async def state(self, only: Selection = EVERY_ISSUE) -> models.State:
        """The document of `/api/v1/state`, with rows of those issues only."""
        state, now_ms, now = await self._look()
        document = state_document(
            state,
            History(),
            now_ms=now_ms,
            now=now,
            workspace=self.bound.settings.workspace,
            only=only,
            reasons=_offline_reasons,
        )
        shown: models.State = masked(document, self.bound.redaction.text)
        return structs.replace(
            shown,
            health=structs.replace(shown.health, status="stopped", polls=0),
            polling=structs.replace(shown.polling, checking=False, next_poll_in_ms=None),
            tracker=structs.replace(shown.tracker, asks_next_at=None),
            version=__version__,
            commit=await to_thread.run_sync(commit),
        )

    async def issue(self, identifier: str) -> models.Issue | None:
        """The document of `/api/v1/<identifier>`; `None` for unknown issues.

        One that is no candidate is `inactive`, with the reason of `policy`.

        Raises:
            SymphonyError: the tracker cannot tell.
        """
        state, now_ms, now = await self._look()
        found = await self._find(identifier, state)
        listed = {} if found is None else {found.id: found}
        known = replace(state, candidates={**state.candidates, **listed})
        document = issue_document(
            known,
            History(),
            identifier,
            now_ms=now_ms,
            now=now,
            runs=await self._runs(identifier),
            workspace=self.bound.settings.workspace,
        )
        if document is not None and document.waiting is not None and found is not None:
            given = document.waiting.reason
            told = _offline_reason(found, WaitingReason(given.code, given.message), known)
            waits = models.Waiting(reason=models.Reason(code=told.code, message=told.message))
            active = policy.in_active_state(found, state.settings)
            status = document.status if active else "inactive"
            document = structs.replace(document, waiting=waits, status=status)
        shown: models.Issue | None = masked(document, self.bound.redaction.text)
        return shown

    async def inactive(self, identifier: str) -> tuple[str, str] | None:
        """Why nobody works on an issue as it stands, and what to do; `None` where the tracker has none.

        Raises:
            SymphonyError: the tracker cannot tell.
        """
        state, *_ = await self._look()
        found = await self._find(identifier, state)
        if found is None:
            return None
        if policy.tracker_status(found, state.settings) is policy.TrackerStatus.ACTIVE:
            return f"nothing was done for {identifier} so far", f"`symphony explain {identifier}` tells why"
        return operator.not_active(found, state.settings)

    async def prompt(self, identifier: str) -> models.Prompt | None:
        """The document of `/api/v1/<identifier>/prompt` for a first dispatch; `None` for unknown issues.

        Raises:
            SymphonyError: the tracker cannot tell, or the dispatch would fail.
        """
        state, *_ = await self._look()
        found = await self._find(identifier, state)
        if found is None:
            return None
        seen = await preview_prompt(self.bound, found, None, agent=policy.choose(state, found))
        document = prompt_document(seen, source="files", redaction=self.bound.redaction)
        if policy.tracker_status(found, state.settings) is not policy.TrackerStatus.ACTIVE:
            message, hint = operator.not_active(found, state.settings)
            standing = self.bound.redaction.text(f"{message}; {hint}")
            document = structs.replace(document, note="; ".join(filter(None, (standing, document.note))))
        return document

    async def identifiers(self) -> tuple[str, ...]:
        """The identifiers of what the tracker lists and of what has a workspace, to guess what was meant."""
        state, *_ = await self._look()
        listed = [issue.identifier for issue in state.candidates.values()]
        return tuple(dict.fromkeys([*listed, *(ref.identifier for ref in state.parked.values())]))

    async def _look(self) -> tuple[State, int, datetime]:
        """The state that a daemon would have after its first poll, and its moment on both clocks."""
        settings, now_ms, now = scheduler_settings(self.bound), monotonic_ms(), datetime.now(UTC)
        fact: Event = recovery_event(
            self.remembered,
            settings,
            now_ms=now_ms,
            wall_ms=(now - _EPOCH) // timedelta(milliseconds=1),
            workspaces=await self._workspaces(),
        )
        state, asked = initial(settings, epoch="files"), list[Command]()
        while True:
            state, commands = step(state, fact, now_ms)
            if state.polls:
                return _without_ended(state), now_ms, now
            asked += (one for one in commands if isinstance(one, RefreshIssues | FetchCandidates))
            # What is blocked comes first, in whatever order it is asked: the poll is the end.
            asked.sort(key=lambda one: isinstance(one, FetchCandidates))
            fact = await self._answer(asked.pop(0), state)

    async def _answer(self, command: Command, state: State) -> Event:
        """The answer to one of the questions that the way to the first poll leaves open."""
        match command:
            case FetchCandidates(request=request):
                return await self._poll(request)
            case RefreshIssues(request=request, ids=ids):
                left = ids & (state.parked.keys() - state.results.keys())
                if left:
                    return RefreshFailed(request=request, failure=_NOT_ASKED, culprits=left)
                return await self._refresh(request, ids)
            case _:
                raise AssertionError("the scheduler asks nothing else")

    async def _refresh(self, request: int, ids: frozenset[str]) -> Event:
        try:
            found = await _bounded(lambda: self.bound.tracker.fetch_issues_by_ids(ids))
        except SymphonyError:
            return RefreshFailed(request=request, failure=_NOT_ASKED)  # the poll says what is wrong
        return Refreshed(request=request, issues=tuple(found))

    async def _poll(self, request: int) -> Event:
        try:
            issues = await _bounded(
                lambda: self.bound.tracker.fetch_issues_by_states(self.bound.active_states)
            )
        except SymphonyError as error:
            return PollFailed(request=request, failure=error.failure)
        return Polled(request=request, issues=tuple(issues), skipped=skipped_by(self.bound.tracker))

    async def _find(self, identifier: str, state: State) -> Issue | None:
        """The issue among the candidates; else by the id its workspace tells, or by itself as an id."""
        if state.last_poll_failure is not None:
            raise SymphonyError(self.bound.redaction.failure(state.last_poll_failure))
        for issue in state.candidates.values():
            if issue.identifier == identifier:
                return issue
        held = (result.issue for result in state.results.values())
        runs = await self._runs(identifier)
        ids = {
            *(ref.issue_id for ref in state.parked.values() if ref.identifier == identifier),
            *(issue.id for issue in held if issue.identifier == identifier),
            *(run.issue_id for run in runs),
        } or {identifier}
        found = await _bounded(lambda: self.bound.tracker.fetch_issues_by_ids(ids))
        return next((issue for issue in found if issue.identifier == identifier), None)

    async def _runs(self, identifier: str) -> tuple[RunRecord, ...]:
        if self.journal is None:
            return ()
        return await to_thread.run_sync(past_runs, self.journal, identifier)

    async def _workspaces(self) -> tuple[WorkspaceRef, ...]:
        """What is recorded; a root that cannot be read only costs the knowledge of what was left there."""
        try:
            records = await self.bound.workspaces.records()
        except SymphonyError:
            return ()
        return tuple(
            WorkspaceRef(issue_id=record.issue_id, identifier=record.identifier, path=str(record.path))
            for record in records
        )


def _without_ended(state: State) -> State:
    """Without the retries that a daemon would give up at once: their issues are not active any more."""
    if state.last_poll_failure is not None:
        return state
    active = {key: retry for key, retry in state.retrying.items() if key in state.candidates}
    return replace(state, retrying=active)


def _offline_reasons(state: State) -> Iterator[tuple[Issue, WaitingReason]]:
    for issue, reason in waiting_issues(state):
        yield issue, _offline_reason(issue, reason, state)


def _offline_reason(issue: Issue, reason: WaitingReason, state: State) -> WaitingReason:
    """A reason that does not say that the issue starts; who would have to queue is told so."""
    if reason.code not in {"starting", "deferred"}:
        return reason
    if issue.id not in state.picks:
        ahead = (normalise_state(state.candidates[one].state) for one in state.picks)
        if shortage := policy.slot_shortage(issue, state, picked=Counter(ahead)):
            return WaitingReason(
                shortage.code.value, f"others would start before it, and then {shortage.message}"
            )
    return WaitingReason("starting", _WOULD_START)


async def _bounded(ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """An answer of the tracker, or a failure after a while."""
    try:
        with anyio.fail_after(TRACKER_S):
            return await ask()
    except TimeoutError as error:
        raise SymphonyError(
            Failure(
                category=Category.TRACKER_REQUEST,
                blame=Blame.TRACKER,
                message=f"the tracker did not answer within {TRACKER_S:g} s",
            )
        ) from error

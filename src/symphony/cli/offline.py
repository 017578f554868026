"""The documents of the API without a daemon: one poll of the tracker, judged by the real scheduler.

Loads the workflow, reads the journal, asks the tracker once for its candidates and for the blocked issues,
and feeds the scheduler's `step` with the events of a daemon that starts. Its commands are not carried out:
nothing is started, created, removed or posted. So reasons, blocks, retries and budgets are those that a
daemon would start with; what only a running daemon knows (sessions, its history) is absent.
"""

import shlex
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
from msgspec import Struct

from symphony import domain, scheduler, to_thread
from symphony.api import answers, models
from symphony.api.history import History
from symphony.api.interface import ConflictError
from symphony.cli.documents import RehearsalShown
from symphony.cli.failures import CommandError
from symphony.config import read_secrets
from symphony.daemon.admission import open_store
from symphony.daemon.clock import monotonic_ms
from symphony.daemon.combined_verification import verify_together
from symphony.daemon.comments import PeopleCommentReader
from symphony.daemon.context import RuntimeContext, build_context, redaction_for, scheduler_settings
from symphony.daemon.journal_writer import recovery_event, told_comments
from symphony.daemon.rehearsals import rehearse_merges
from symphony.daemon.runs.prompts import phase_or_requested, preview_prompt, public_prompt
from symphony.daemon.state_dir import library_key
from symphony.journal.model import RecoveredState, UnusableError
from symphony.journal.reader import open_reader, past_issue_id
from symphony.library.store import Library, library_path
from symphony.observability.logs import configure
from symphony.observability.redaction import masked
from symphony.processes.base import Host
from symphony.processes.local import LocalHost
from symphony.trackers.base import find_issue, skipped_by

_TRACKER_S: Final = 30.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_ASKED: Final = domain.Failure(
    category=domain.Category.TRACKER_REQUEST, blame=domain.Blame.TRACKER, message="not asked without a daemon"
)
_T = TypeVar("_T")


def open_context(
    workflow: Path, environment: Mapping[str, str], *, host: Host | None = None
) -> RuntimeContext:
    """Load a workflow for a command that works without the daemon; errors of its log go to stderr.

    Settings without a sandbox are accepted: no session is started. `host` starts commands of agents.

    Raises:
        SymphonyError: the workflow is not usable.
    """
    configure(stream=sys.stderr, level="error")
    environment = read_secrets(environment).environment
    loaded = open_store(workflow, environment, acknowledged=True).current()
    configure(stream=sys.stderr, level="error", redaction=redaction_for(loaded, environment))
    return build_context(loaded, host=host or LocalHost(), environment=environment)


def open_offline(
    workflow: Path,
    environment: Mapping[str, str],
    *,
    journal: Path,
    remembers: bool,
    timeout_s: float = _TRACKER_S,
) -> "Offline":
    """Answers from the files of a workflow.

    Args:
        workflow: the workflow file.
        environment: variables that it may refer to.
        journal: names past runs; may be missing or unreadable.
        remembers: whether the answers build on the claims in the journal, as those of a starting daemon.
            False while a daemon runs, because the claims belong to it.
        timeout_s: the limit for one question to the tracker.

    Raises:
        SymphonyError: the workflow is not usable.
    """
    recovered = RecoveredState()
    context = open_context(workflow, environment)
    library = Library(library_path(journal.parent, context.settings.agent.library.path))
    if remembers:
        try:
            with open_reader(journal) as reader:
                recovered = reader.recovered_state()
        except UnusableError:
            pass
    return Offline(
        context=replace(context, library=library),
        recovered=recovered,
        journal=journal,
        timeout_s=timeout_s,
    )


class Offline(Struct, frozen=True, kw_only=True):
    """Answers for one workflow from its files; each answer asks the tracker again."""

    context: RuntimeContext
    recovered: RecoveredState
    journal: Path
    timeout_s: float

    async def state(self, only: domain.Selection = domain.ALL_ISSUES) -> models.State:
        """The document of `/api/v1/state` with the selected issues."""
        snapshot = self._snapshot(*await self._first_poll())
        return await to_thread.run_sync(partial(answers.state, snapshot, only))

    async def issue(self, identifier: str) -> models.Issue | None:
        """The document of `/api/v1/<identifier>`; None for an unknown issue.

        An issue that is not a candidate has the status `inactive` and the scheduler's reason.

        Raises:
            SymphonyError: the tracker does not answer.
        """
        state, now_ms, now = await self._first_poll()
        found, snapshot = await self._find(identifier, state), self._snapshot(state, now_ms, now)
        if found is not None:
            return await to_thread.run_sync(answers.issue_of_tracker, snapshot, found)
        return await to_thread.run_sync(answers.issue, snapshot, identifier)

    def _snapshot(self, state: scheduler.State, now_ms: int, now: datetime) -> answers.Snapshot:
        context = self.context
        return answers.Snapshot(
            state=state,
            settings=context.settings,
            history=History(),
            now_ms=now_ms,
            now=now,
            mask=context.redaction.text,
            workspaces=context.workspaces,
            journal=self.journal,
            library=context.library,
            key=library_key(self.journal.parent),
            live=False,
            pull_requests={record.issue.id: record for record in self.recovered.pull_requests},
        )

    async def prompt(self, identifier: str, phase: str | None = None) -> models.Prompt | None:
        """The document of `/api/v1/<identifier>/prompt` for a first dispatch; None for an unknown issue.

        Raises:
            SymphonyError: the tracker does not answer, or the dispatch would fail.
        """
        state, *_ = await self._first_poll()
        issue = await self._find(identifier, state)
        if issue is None:
            return None
        comments = await PeopleCommentReader(partial(told_comments, self.journal)).read(
            self.context, issue, None
        )
        preview = await preview_prompt(
            self.context,
            issue,
            None,
            agent=scheduler.choose_agent(state, issue),
            comments=comments.shown,
            phase=phase_or_requested(issue, state.settings, phase),
            source="files",
        )
        return public_prompt(preview, issue, state.settings, self.context.redaction)

    async def rehearse(self, identifiers: Sequence[str]) -> models.Rehearsal:
        """The document of `/api/v1/rehearsal`.

        Raises:
            ConflictError: an issue has no branch, or nothing is ready.
            SymphonyError: the tracker does not answer, or the repository or git cannot do it.
        """
        state, *_ = await self._first_poll()
        if state.last_poll_failure is not None:
            raise domain.SymphonyError(self.context.redaction.failure(state.last_poll_failure))
        found: models.Rehearsal = masked(
            await rehearse_merges(self.context, state, identifiers), self.context.redaction.text
        )
        return found

    async def inactive(self, identifier: str) -> tuple[str, str] | None:
        """Why nothing was done for an issue of the tracker, and what to do; None for an unknown issue.

        Raises:
            SymphonyError: the tracker does not answer.
        """
        state, *_ = await self._first_poll()
        issue = await self._find(identifier, state)
        if issue is None:
            return None
        if scheduler.tracker_status(issue, state.settings) is scheduler.TrackerStatus.ACTIVE:
            command = f"symphony explain {shlex.quote(identifier)}"
            return f"nothing was done for {identifier} so far", f"`{command}` tells why"
        return scheduler.not_active_text(issue, state.settings)

    async def identifiers(self) -> tuple[str, ...]:
        """Identifiers of the issues that the tracker lists or that have a workspace."""
        state, *_ = await self._first_poll()
        listed = [issue.identifier for issue in state.candidates.values()]
        remembered = [result.issue.identifier for result in state.results.values()]
        idle = [ref.identifier for ref in state.idle_workspaces.values()]
        return tuple(dict.fromkeys([*listed, *remembered, *idle]))

    async def _first_poll(self) -> tuple[scheduler.State, int, datetime]:
        """The state of a daemon after its first poll, and its time on the monotonic and the wall clock."""
        settings, now_ms, now = scheduler_settings(self.context), monotonic_ms(), datetime.now(UTC)
        event: scheduler.Event = recovery_event(
            self.recovered,
            settings,
            now_ms=now_ms,
            wall_ms=(now - _EPOCH) // timedelta(milliseconds=1),
            workspaces=await self._recorded_workspaces(),
        )
        state = scheduler.initial_state(settings, epoch="files")
        questions = list[scheduler.FetchCandidates | scheduler.RefreshIssues]()
        while True:
            commands: tuple[scheduler.Command, ...]
            state, commands = scheduler.step(state, event, now_ms)
            if state.polls:
                break
            questions += (
                one
                for one in commands
                if isinstance(one, scheduler.RefreshIssues | scheduler.FetchCandidates)
            )
            # The poll ends the loop, so the refresh of blocked issues goes first.
            questions.sort(key=lambda one: isinstance(one, scheduler.FetchCandidates))
            question = questions.pop(0)
            if isinstance(question, scheduler.FetchCandidates):
                event = await self._poll(question)
            else:
                event = await self._refresh(question, state)
        if state.last_poll_failure is None:  # a daemon gives up the retries of inactive issues at once
            active = {key: retry for key, retry in state.retrying.items() if key in state.candidates}
            state = state.changed(retrying=active)
        waiting = {key: replace(one, pushing_since_ms=None) for key, one in state.results.items()}
        return state.changed(results=waiting), now_ms, now  # no daemon pushes them now

    async def _poll(self, question: scheduler.FetchCandidates) -> scheduler.Event:
        tracker = self.context.tracker
        try:
            issues = await self._in_time(tracker.fetch_issues_by_states(self.context.active_states))
        except domain.SymphonyError as error:
            return scheduler.PollFailed(request=question.request, failure=error.failure)
        return scheduler.Polled(
            request=question.request, issues=tuple(issues), skipped_records=skipped_by(tracker)
        )

    async def _refresh(self, question: scheduler.RefreshIssues, state: scheduler.State) -> scheduler.Event:
        """Refresh the blocked issues. Those that only have a workspace are not worth a request."""
        if idle := question.ids & (state.idle_workspaces.keys() - state.results.keys()):
            return scheduler.RefreshFailed(request=question.request, failure=_NOT_ASKED, culprits=idle)
        try:
            issues = await self._in_time(self.context.tracker.fetch_issues_by_ids(question.ids))
        except domain.SymphonyError:
            # The poll reports the failure.
            return scheduler.RefreshFailed(request=question.request, failure=_NOT_ASKED)
        return scheduler.Refreshed(request=question.request, issues=tuple(issues))

    async def _find(self, identifier: str, state: scheduler.State) -> domain.Issue | None:
        """The issue among the candidates; otherwise by a known id of that identifier, or by itself."""
        if state.last_poll_failure is not None:
            raise domain.SymphonyError(self.context.redaction.failure(state.last_poll_failure))
        for issue in state.candidates.values():
            if issue.identifier == identifier:
                return issue
        results = (result.issue for result in state.results.values())
        past_id = await to_thread.run_sync(past_issue_id, self.journal, identifier)
        ids = {
            *(ref.issue_id for ref in state.idle_workspaces.values() if ref.identifier == identifier),
            *(issue.id for issue in results if issue.identifier == identifier),
            *([] if past_id is None else [past_id]),
        }
        if not ids:
            return await self._in_time(find_issue(self.context.tracker, identifier))
        found = await self._in_time(self.context.tracker.fetch_issues_by_ids(ids))
        present = next((issue for issue in found if issue.identifier == identifier), None)
        return present or next((issue for issue in found if issue.id == past_id), None)

    async def _in_time(self, answer: Awaitable[_T]) -> _T:
        """The tracker's answer. Raises `SymphonyError` if it does not come in time."""
        try:
            with anyio.fail_after(self.timeout_s):
                return await answer
        except TimeoutError as error:
            raise domain.SymphonyError(
                domain.Failure(
                    category=domain.Category.TRACKER_REQUEST,
                    blame=domain.Blame.TRACKER,
                    message=f"the tracker did not answer within {self.timeout_s:g} s",
                )
            ) from error

    async def _recorded_workspaces(self) -> tuple[scheduler.WorkspaceRef, ...]:
        """The recorded workspaces; empty if the workspace root cannot be read."""
        try:
            records = await self.context.workspaces.records()
        except domain.SymphonyError:
            return ()
        return tuple(
            scheduler.WorkspaceRef(
                issue_id=record.issue_id, identifier=record.identifier, path=str(record.path)
            )
            for record in records
        )


def verify_rehearsal(
    workflow: Path,
    environment: Mapping[str, str],
    found: RehearsalShown,
    *,
    on_try: Callable[[int], None],
    on_check: Callable[[domain.CheckRun], None],
) -> RehearsalShown:
    """A rehearsal with what `verify.commands` say of the branches that merge.

    Raises:
        SymphonyError: there are no commands, or the checkouts cannot be made.
    """
    host = LocalHost(instance=uuid.uuid4().hex)  # processes that a command leaves running end with it
    context = open_context(workflow, environment, host=host)
    try:
        done = anyio.run(partial(verify_together, context, found, on_try=on_try, on_check=on_check))
    except ConflictError as error:
        raise CommandError.of(error.message, hint=error.hint or "see docs/verification.md") from error
    shown: RehearsalShown = masked(done, context.redaction.text)
    return shown

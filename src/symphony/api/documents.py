"""Makes the documents of the API from the state of the scheduler.

All functions are pure. The API, `symphony status` and `symphony explain` show these documents, so they agree.
The types of the documents are in `models`.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, reduce
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct, structs

from symphony.api import models
from symphony.api.history import History, IssueHistory
from symphony.api.models import utc_text
from symphony.api.runs import past_run, usd
from symphony.config import WorkspaceSettings
from symphony.domain import (
    ALL_ISSUES,
    NO_COST,
    AgentChoice,
    CheckRun,
    Cost,
    DeliveredBranch,
    Failure,
    Issue,
    Phase,
    ReviewerVerdict,
    Selection,
    Spent,
    Verification,
    one_line,
)
from symphony.journal.jobs import Job, JobState
from symphony.journal.model import HealthState, JournalStatus, PullRequestRecord, RunRecord
from symphony.library.model import Learned, StoredFeedback
from symphony.scheduler import (
    Blocked,
    Cycle,
    Drain,
    Ineligible,
    IssueResult,
    ReasonCode,
    ResultStatus,
    Resume,
    Retry,
    Running,
    State,
    Timer,
    TimerKind,
    Totals,
    attempt_numbers,
    awaits_answer,
    choose_agent,
    circuit_state,
    eligibility,
    overlaps,
    phase_of,
    requests_paused_until,
    results_with_status,
    runs_by_host,
    slots_of,
    thread_agent,
    totals_with,
    unpushed_results,
    used_slots,
)
from symphony.workspaces import locate_branch

# --- why issues wait -------------------------------------------------------------------------------------


class WaitingReason(Struct, frozen=True):
    """Why an issue does not run.

    Attributes:
        code: stable: a `ReasonCode`, `starting` or `deferred`.
        message: for people.
    """

    code: str
    message: str


_MAX_PATHS: Final = 20
PullRequests = Mapping[str, PullRequestRecord]
"""Pull requests by issue id."""

Reasons = Callable[[State], Iterable[tuple[Issue, WaitingReason]]]
"""Returns the waiting issues with their reasons, in the order in which they would start."""

_STARTING = WaitingReason("starting", "starts as soon as it is refreshed")
_DEFERRED = WaitingReason("deferred", "its refresh failed; it is asked about again after the next poll")


def waiting_issues(state: State, *, identifier: str | None = None) -> Iterator[tuple[Issue, WaitingReason]]:
    """The candidates without a claim and their reasons, in the order in which they would start.

    With `identifier`, only issues with that identifier.
    """
    used = used_slots(state)
    for issue in state.candidates.values():
        if identifier is not None and issue.identifier != identifier:
            continue
        if not (issue.id in state.running or issue.id in state.retrying or issue.id in state.blocked):
            verdict = eligibility(issue, state, used=used)
            if isinstance(verdict, Ineligible):
                yield issue, _reason(verdict.code, verdict.message)
            else:
                yield issue, _DEFERRED if issue.id in state.skipped_until_poll else _STARTING


@lru_cache(maxsize=256)
def _reason(code: ReasonCode, message: str) -> WaitingReason:
    """The reason of a verdict, cached because thousands of issues share a few reasons."""
    return WaitingReason(code.value, message)


# --- how to review delivered work ------------------------------------------------------------------------


def review_commands(
    identifier: str,
    branch: str,
    workspace: WorkspaceSettings | None,
    *,
    pushed: bool,
    placed: bool = True,
) -> tuple[str, ...]:
    """Commands that show the work: `symphony diff`, and a git command that shows or fetches the branch.

    Args:
        identifier: the issue.
        branch: its branch.
        workspace: the settings of workspaces; `None` if unknown.
        pushed: whether `origin` has the branch.
        placed: whether a local repository has it.
    """
    diff = f"symphony diff {shlex.quote(identifier)}"
    where = None if workspace is None else locate_branch(workspace, branch, pushed=pushed, placed=placed)
    if workspace is None or where is None:
        return (diff,)
    base = workspace.base_branch or "HEAD"
    return (diff, where.fetch or f"git diff {shlex.quote(f'{base}...{branch}')}")


# --- documents -------------------------------------------------------------------------------------------


def state_document(
    state: State,
    history: History,
    *,
    now_ms: int,
    now: datetime,
    journal: JournalStatus | None = None,
    workspace: WorkspaceSettings | None = None,
    pull_requests: PullRequests = MappingProxyType({}),
    only: Selection = ALL_ISSUES,
    reasons: Reasons = waiting_issues,
) -> models.State:
    """The document of the daemon: health, counts, one row per issue, totals and limits.

    Args:
        state: the state of the scheduler.
        history: what happened before.
        now_ms: the present time on the scheduler's clock.
        now: the same time on the wall clock.
        journal: whether records survive a restart; `None` if unknown.
        workspace: the settings of workspaces; `None` if unknown.
        pull_requests: pull requests by issue id.
        only: selects the issues that get a row; counts are of all issues.
        reasons: returns the waiting issues.
    """
    view = _View(state, history, now_ms, now, workspace=workspace, pull_requests=pull_requests)
    totals = totals_with(state, *state.running.values(), now_ms=now_ms)
    ready = results_with_status(state, ResultStatus.READY)
    # An issue may have left the state in which the last poll saw it.
    reviewed = {result.issue.id for result in ready}
    waits = [(issue, reason) for issue, reason in reasons(state) if issue.id not in reviewed]
    chosen = [place for place, (issue, reason) in enumerate(waits) if only.includes(issue, reason.code)]
    listed = chosen[: only.limit]
    return models.State(
        generated_at=utc_text(now),
        health=_health(state, history, journal),
        counts=models.Counts(
            running=len(state.running),
            retrying=len(state.retrying),
            blocked=len(state.blocked),
            waiting=len(waits),
            ready=len(ready),
        ),
        slots=models.Slots(used=len(state.running), limit=state.settings.max_concurrent_agents),
        hosts=view.hosts(),
        running=tuple(
            view.running(run) for run in state.running.values() if only.includes(run.issue, "running")
        ),
        retrying=tuple(
            view.retrying(one) for one in state.retrying.values() if only.includes(one.issue, "retrying")
        ),
        blocked=tuple(
            view.blocked(one) for one in state.blocked.values() if only.includes(one.issue, "blocked")
        ),
        waiting=tuple(view.waiting(*waits[place], position=place + 1) for place in listed),
        waiting_by_reason=dict(Counter(reason.code for _, reason in waits).most_common()),
        waiting_left_out=len(chosen) - len(listed),
        ready=tuple(
            view.result(one, one.delivered)
            for one in reversed(ready)
            if one.delivered is not None and only.includes(one.issue, "ready")
        ),
        failed_pushes=tuple(
            push for result in unpushed_results(state) for push in view.failed_pushes(result)
        ),
        pushes=tuple(push for result in unpushed_results(state) for push in view.pushes(result)),
        codex_totals=_totals(totals),
        token_usage=_token_usage(totals),
        skills_totals=history.skill_totals,
        rate_limits=None if state.rate_limits is None else dict(state.rate_limits),
        agents=view.agents(),
        polling=_polling(state, now_ms),
        drain=state.drain.value,
        paused=state.paused,
        budgets=_budgets(state),
        tracker=view.tracker(),
        journal=_journal(journal),
    )


def issue_document(
    state: State,
    history: History,
    identifier: str,
    *,
    now_ms: int,
    now: datetime,
    journal: JournalStatus | None = None,
    runs: Sequence[RunRecord] = (),
    workspace: WorkspaceSettings | None = None,
    pull_requests: PullRequests = MappingProxyType({}),
) -> models.Issue | None:
    """The document of one issue; `None` if neither the daemon nor its journal knows the identifier.

    `runs` are all runs in the journal, the newest first. The other arguments are as in `state_document`.
    """
    view = _View(state, history, now_ms, now, journal, runs, workspace, pull_requests)
    return view.claimed_issue(identifier) or view.unclaimed_issue(identifier)


def pull_request_document(record: PullRequestRecord) -> models.PullRequest:
    """The pull request of an issue."""
    pull = record.pull
    state = "wanted" if record.number is None else "open" if pull is None else pull.state.value
    return models.PullRequest(
        number=record.number,
        url=None if pull is None else pull.url,
        state=state,
        draft=pull is not None and pull.draft,
        code=record.code,
        message=record.message,
        needs_you=record.needs_you,
        failure=_failure(record.failure),
    )


def feedback_document(feedback: StoredFeedback) -> models.Feedback:
    """Feedback, and its effect."""
    learned = feedback.learned or Learned(run_id="")
    return models.Feedback.of(
        feedback.rating,
        id=feedback.id,
        at=models.wall_text(feedback.at_ms),
        learning=models.Learning.of(
            learned,
            state=feedback.learning.value,
            reason=feedback.reason,
            attempts=feedback.attempts,
            run_id=learned.run_id or None,
        ),
    )


# --- the daemon ------------------------------------------------------------------------------------------


def _health(state: State, history: History, journal: JournalStatus | None) -> models.DaemonHealth:
    """The health of the daemon; `status` is `starting`, `ok`, `degraded` or `draining`."""
    journal_failed = journal is not None and journal.state is not HealthState.OK
    if state.drain is not Drain.NO:
        status = "draining"
    elif state.config_error is not None or state.last_poll_failure is not None or journal_failed:
        status = "degraded"
    else:
        status = "ok" if state.polls else "starting"
    return models.DaemonHealth(
        status=status,
        polls=state.polls,
        last_poll_at=_text(history.last_poll_at),
        poll_failure=_failure(state.last_poll_failure),
        workflow_failure=_failure(state.config_error),
        skipped_records=tuple(_failure_document(each) for each in state.skipped_records),
    )


def _polling(state: State, now_ms: int) -> models.Polling:
    due = state.next_poll_ms
    return models.Polling(
        checking=state.cycle is not Cycle.IDLE,
        next_poll_in_ms=None if due is None else max(due - now_ms, 0),
        poll_interval_ms=state.settings.poll_interval_ms,
    )


def _totals(totals: Totals) -> models.Totals:
    """Tokens, cost and agent time of all runs, including running ones."""
    return models.Totals(
        **totals.usage.tokens.counts(),
        cost_usd=usd(totals.usage.cost_usd),
        unpriced_tokens=totals.usage.unpriced_tokens,
        seconds_running=round(totals.running_ms / 1000, 1),
    )


def _token_usage(totals: Totals) -> models.TokenUsage:
    return models.TokenUsage(
        input=totals.usage.tokens.input_tokens,
        output=totals.usage.tokens.output_tokens,
        total=totals.usage.tokens.total_tokens,
        issue_count=totals.issues,
        session_count=totals.sessions,
    )


def _budgets(state: State) -> models.Budgets:
    spender = state.day_spender
    return models.Budgets(
        **structs.asdict(state.settings.budget),
        day=state.day,
        day_tokens=state.day_tokens,
        day_cost_usd=usd(state.day_cost.cost_usd),
        day_unpriced_tokens=state.day_cost.unpriced_tokens,
        used_up_by=None
        if spender is None
        else models.Spender(issue_identifier=spender.issue, agent=spender.agent, tokens=spender.tokens),
    )


def _next_request_ms(state: State) -> int | None:
    """When the next request to the tracker is due; `None` while one is in progress."""
    if state.cycle is not Cycle.IDLE or state.refresh is not None:
        return None
    refresh_ms = state.timer_due_ms(Timer(TimerKind.TRACKER_PAUSE)) if state.ids_to_refresh else None
    return min((due for due in (state.next_poll_ms, refresh_ms) if due is not None), default=None)


def _journal(health: JournalStatus | None) -> models.JournalHealth | None:
    if health is None:
        return None
    failure = health.failure
    return models.JournalHealth(
        state=health.state.value,
        reason=None if failure is None else failure.message,
        hint=None if failure is None else failure.hint,
    )


# --- issues ----------------------------------------------------------------------------------------------

_NO_HISTORY = IssueHistory()
_SHOWN_RUNS: Final = 50


class _View(Struct, frozen=True):
    """The state at one moment, with wall-clock times for the monotonic ones of the scheduler."""

    state: State
    history: History
    now_ms: int
    now: datetime
    journal: JournalStatus | None = None
    runs: Sequence[RunRecord] = ()
    workspace: WorkspaceSettings | None = None
    pull_requests: PullRequests = msgspec.field(default_factory=dict)

    def agents(self) -> tuple[models.AgentInUse, ...]:
        """The agents that issues may get."""
        return tuple(
            models.AgentInUse(name=name, kind=agent.kind, model=agent.model, limited=self._limited(name))
            for name, agent in self.state.settings.agents.items()
        )

    def hosts(self) -> tuple[models.HostInUse, ...]:
        state = self.state
        used = runs_by_host(state)
        return tuple(self._host(name, used[name]) for name in dict.fromkeys((*state.settings.hosts, *used)))

    def _host(self, name: str, used: int) -> models.HostInUse:
        trouble = self.state.troubled_hosts.get(name)
        until_ms = None if trouble is None else trouble.until_ms
        chosen = [run.placed for run in self.state.running.values() if run.host == name]
        return models.HostInUse(
            name=name,
            used=used,
            limit=slots_of(self.state, name) if name in self.state.settings.hosts else 0,
            failures=0 if trouble is None else trouble.failures,
            rests_until=None if until_ms is None else self._moment(until_ms),
            failure=None if trouble is None else trouble.failure.message,
            machines=dict(Counter(machine for machine in chosen if machine is not None)),
        )

    def _limited(self, name: str) -> models.AgentLimit | None:
        held = self.state.limited_agents.get(name)
        if held is None or held.until_ms is None:
            return None
        return models.AgentLimit(
            until=self._moment(held.until_ms),
            code=held.failure.category.value,
            message=held.failure.message,
            times=held.times,
        )

    def tracker(self) -> models.TrackerHealth:
        breaker, until_ms = self.state.breaker, requests_paused_until(self.state, self.now_ms)
        next_ms = _next_request_ms(self.state)
        return models.TrackerHealth(
            circuit=circuit_state(self.state, self.now_ms).value,
            failures_in_a_row=breaker.failures,
            until=None if until_ms is None else self._moment(until_ms),
            asks_next_at=None if next_ms is None else self._moment(next_ms),
            last_error=None if breaker.failure is None else breaker.failure.message,
        )

    def _agent_of(self, issue: Issue, resume: Resume | None = None) -> AgentChoice:
        """The agent that an issue would get if a run began now."""
        return choose_agent(self.state, issue, thread_agent(resume))

    def _phase_of(self, issue: Issue) -> Phase | None:
        """The phase of a turn that started now."""
        return phase_of(issue, self.state.settings)

    def _moment(self, moment_ms: int) -> str:
        return utc_text(self.history.wall(moment_ms, now_ms=self.now_ms, now=self.now))

    def running(self, run: Running) -> models.RunningRow:
        issue, skills = run.issue, self._history_of(run.issue).skills
        return models.RunningRow(
            **structs.asdict(self._run(run)),
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            issue_url=issue.url,
            title=issue.title,
            agent=run.agent,
            worker_host=run.machine,
            skills=None if skills is None else _names(skills),
            instructions=self._history_of(run.issue).instructions,
        )

    def retrying(self, retry: Retry) -> models.RetryingRow:
        issue = retry.issue
        return models.RetryingRow(
            **structs.asdict(self._retry(retry)),
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            issue_url=issue.url,
            title=issue.title,
            state=issue.state,
            agent=self._agent_of(issue, retry.resume),
            last_error=self._history_of(issue).last_error,
            worker_host=self._host_of(issue),
            workspace_path=retry.workspace_path,
            phase=self._phase_of(issue),
        )

    def blocked(self, blocked: Blocked) -> models.BlockedRow:
        issue = blocked.issue
        return models.BlockedRow(
            **structs.asdict(self._block(blocked)),
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            issue_url=issue.url,
            title=issue.title,
            agent=self._agent_of(issue, blocked.resume),
            spent=self._spent(issue),
            worker_host=self._host_of(issue),
            workspace_path=blocked.workspace_path,
            phase=self._phase_of(issue),
        )

    def _host_of(self, issue: Issue) -> str | None:
        """The host that has the workspace of an issue; `None` for this machine."""
        workspace = self.state.remote_workspaces.get(issue.id)
        return None if workspace is None else workspace.host

    def waiting(self, issue: Issue, reason: WaitingReason, *, position: int) -> models.WaitingRow:
        return models.WaitingRow(
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            issue_url=issue.url,
            title=issue.title,
            state=issue.state,
            reason=models.Reason(code=reason.code, message=reason.message),
            agent=self._agent_of(issue),
            phase=self._phase_of(issue),
            position=position,
        )

    def claimed_issue(self, identifier: str) -> models.Issue | None:
        """The running, retrying or blocked issue with this identifier."""
        for run in self.state.running.values():
            if run.issue.identifier == identifier:
                return self.issue(run.issue, "running", run=run)
        for retry in self.state.retrying.values():
            if retry.issue.identifier == identifier:
                return self.issue(retry.issue, "retrying", retry=retry)
        for blocked in self.state.blocked.values():
            if blocked.issue.identifier == identifier:
                return self.issue(blocked.issue, "blocked", blocked=blocked)
        return None

    def unclaimed_issue(self, identifier: str) -> models.Issue | None:
        """The waiting or ended issue with this identifier."""
        found = [each for each in self.state.results.values() if each.issue.identifier == identifier]
        for result in found:
            if result.status is not ResultStatus.OPEN:
                status = "ready" if result.status is ResultStatus.READY else "ended"
                return self.issue(result.issue, status)
        for issue, reason in waiting_issues(self.state, identifier=identifier):
            idle = self.state.idle_workspaces.get(issue.id)
            return self.issue(issue, "waiting", reason=reason, path=idle.path if idle else None)
        if found:  # it is about to be refreshed
            return self.issue(found[0].issue, "ended")
        if self.runs:
            issue_id = self.runs[0].issue_id
            known = Issue(id=issue_id, identifier=identifier, title="", state="", dispatchable=False)
            return self.issue(known, "ended")
        return None

    def result(self, result: IssueResult, delivered: DeliveredBranch) -> models.ReadyRow:
        """The result of an issue with delivered work, as a row of `ready`."""
        issue = result.issue
        look = review_commands(
            issue.identifier,
            delivered.branch,
            self.workspace,
            pushed=delivered.pushed,
            placed=delivered.branch_failure is None,
        )
        pull = self.pull_requests.get(issue.id)
        if pull is not None and pull.code == "merged":  # the branch may be deleted
            look = look[:1]
        return models.ReadyRow(
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            issue_url=issue.url,
            title=issue.title,
            state=issue.state,
            delivered=models.ReadyBranch.of(
                delivered,
                push=_push(delivered, is_pushing=result.pushing_since_ms is not None),
                push_failure=_failure(delivered.push_failure),
                branch_failure=_failure(delivered.branch_failure),
            ),
            turns=result.turns,
            **structs.asdict(result.usage.rounded()),
            summary=result.summary,
            pull_request_url=None if pull is None or pull.pull is None else pull.pull.url,
            look=look,
            ended_at=self._moment(result.ended_ms),
            pull_request=None if pull is None else pull_request_document(pull),
            verified=_verified(result),
        )

    def failed_pushes(self, result: IssueResult) -> Iterator[models.FailedPush]:
        """The repositories to which a delivered branch could not be pushed."""
        if (delivered := result.delivered) is None:
            return
        failures = {"repository": delivered.branch_failure, "origin": delivered.push_failure}
        for place, failure in failures.items():
            if failure is not None:
                yield models.FailedPush(
                    issue_identifier=result.issue.identifier,
                    branch=delivered.branch,
                    place=place,
                    failure=_failure_document(failure),
                )

    def pushes(self, result: IssueResult) -> Iterator[models.Push]:
        """The push of a delivered branch, if one is in progress."""
        if result.delivered is not None and result.pushing_since_ms is not None:
            yield models.Push(
                issue_identifier=result.issue.identifier,
                branch=result.delivered.branch,
                began_at=self._moment(result.pushing_since_ms),
            )

    def issue(
        self,
        issue: Issue,
        status: str,
        *,
        run: Running | None = None,
        retry: Retry | None = None,
        blocked: Blocked | None = None,
        reason: WaitingReason | None = None,
        path: str | None = None,
    ) -> models.Issue:
        history = self._history_of(issue)
        for claim in (retry, blocked):
            path = claim.workspace_path if claim else path
        attempt, claim, going = _attempt(run, retry), retry or blocked, run or retry
        number, last = attempt_numbers(going, self.state.settings) if going else (None, None)
        resume = claim.resume if claim else None
        report = run.report if run else blocked.report if blocked else None
        result = self.state.results.get(issue.id)
        past: list[Cost] = [one.facts for one in self.runs if run is None or one.run_id != run.run_id]
        if not self.runs and result is not None:  # without a journal
            past = [result.usage]
        cost = reduce(Cost.plus, past, NO_COST.plus(run.report.facts) if run else NO_COST)
        delivered = None if result is None else result.delivered
        branch = report.facts.branch if report else None
        if branch is None and delivered is not None:
            branch = delivered.branch
        return models.Issue(
            generated_at=utc_text(self.now),
            issue_id=issue.id,
            issue_identifier=issue.identifier,
            issue_url=issue.url,
            title=issue.title,
            state=issue.state,
            status=status,
            agent=run.agent if run else self._agent_of(issue, resume),
            workspace=models.WorkspacePlace(
                path=run.report.facts.workspace_path if run else path,
                host=run.machine if run else self._host_of(issue),
                branch=branch,
            ),
            attempts=models.Attempts(
                number=number,
                limit=last,
                restart_count=max(attempt - 1, 0),
                current_retry_attempt=attempt,
                runs_started=history.runs,
            ),
            running=self._run(run) if run else None,
            retry=self._retry(retry) if retry else None,
            blocked=self._block(blocked) if blocked else None,
            waiting=models.Waiting(reason=models.Reason(code=reason.code, message=reason.message))
            if reason
            else None,
            result=None if result is None or delivered is None else self.result(result, delivered),
            runs=tuple(past_run(record) for record in self.runs[:_SHOWN_RUNS]),
            **structs.asdict(cost.rounded()),
            logs=models.Logs(codex_session_logs=_session_logs(run)),
            recent_events=tuple(
                models.Event(at=utc_text(one.at), event=one.event, message=one.message)
                for one in history.recent()
            ),
            last_error=blocked.failure.line if blocked else history.last_error,
            skills=history.skills,
            phase=run.phase if run else self._phase_of(issue),
            instructions=history.instructions,
            spent=self._spent(issue),
            tracked={},
            paused=self.state.paused,
            budgets=_budgets(self.state),
            tracker=self.tracker(),
            journal=_journal(self.journal),
        )

    def _history_of(self, issue: Issue) -> IssueHistory:
        return self.history.of(issue.id) or _NO_HISTORY

    def _spent(self, issue: Issue) -> Spent:
        """What an issue has used of its budget."""
        return self.state.spent.get(issue.id) or Spent()

    def _run(self, run: Running) -> models.Run:
        report, history = run.report, self._history_of(run.issue)
        number, last = attempt_numbers(run, self.state.settings)
        facts = structs.replace(report.facts.rounded(), model=report.facts.model or run.agent.model)
        return models.Run(
            **structs.asdict(facts),
            run_id=run.run_id,
            state=run.issue.state,
            stage=report.stage.value,
            attempt=run.attempt,
            attempt_number=number,
            attempt_limit=last,
            turn=run.turn,
            stopping=None if run.stopping is None else run.stopping.value,
            last_event=report.last_event,
            last_message=report.last_message,
            last_words=report.last_words,
            started_at=self._noted(history.started_at, run.started_ms),
            last_event_at=_text(history.last_event_at)
            if run.last_activity_ms is None
            else self._noted(history.last_event_at, run.last_activity_ms),
            resumed_from=_resumed_from(run.resume),
            phase=run.phase,
            overlaps=tuple(
                models.Overlap(
                    issue_identifier=one.identifier,
                    paths=one.paths[:_MAX_PATHS],
                    paths_left_out=max(0, len(one.paths) - _MAX_PATHS),
                )
                for one in overlaps(self.state, run)
            ),
        )

    def _retry(self, retry: Retry) -> models.Retry:
        number, last = attempt_numbers(retry, self.state.settings)
        return models.Retry(
            attempt=retry.attempt,
            attempt_number=number,
            attempt_limit=last,
            due_at=self._moment(retry.due_ms),
            error=retry.error,
        )

    def _block(self, blocked: Blocked) -> models.Block:
        report, history = blocked.report, self._history_of(blocked.issue)
        return models.Block(
            state=blocked.issue.state,
            error=blocked.failure.message,
            failure=_failure_document(blocked.failure),
            session_id=report.facts.session_id if report else None,
            blocked_at=self._noted(history.blocked_at, blocked.blocked_ms),
            last_event=report.last_event if report else None,
            last_message=report.last_message if report else None,
            last_event_at=_text(history.last_event_at),
            question=_question(blocked),
            resumable=blocked.resume is not None and blocked.resume.thread is not None,
            not_obeyed=tuple(models.Remark.of(one) for one in blocked.answer_check.unauthorized),
            answers_failure=_failure(blocked.answer_check.failure),
        )

    def _noted(self, noted: datetime | None, moment_ms: int) -> str:
        """The time that was noted then, which no clock change affects; else the converted time."""
        return self._moment(moment_ms) if noted is None else utc_text(noted)


def _question(blocked: Blocked) -> str | None:
    """The question of the agent, in its own words if there are any; `None` if it asks nothing."""
    return blocked.question or (blocked.failure.message if awaits_answer(blocked) else None)


def _resumed_from(resume: Resume | None) -> models.ResumedFrom | None:
    """What a run resumes, without the question and answer, which may be long."""
    if resume is None:
        return None
    thread = resume.thread
    return models.ResumedFrom(
        reason=resume.reason.value, thread_id=None if thread is None else thread.thread_id
    )


def check_documents(checks: Iterable[CheckRun]) -> tuple[models.VerifiedCheck, ...]:
    """The checks of a commit."""
    return tuple(
        models.VerifiedCheck(
            name=check.name,
            passed=check.passed,
            exit_code=check.exit_code,
            duration_ms=check.duration_ms,
            result=check.ended,
            output_tail=check.output_tail,
            fails_on_base=check.fails_on_base,
        )
        for check in checks
    )


def _verified(result: IssueResult) -> models.Verified | None:
    """The verification of the delivered head; a verification of another commit is stale."""
    made, delivered = result.verification, result.delivered
    if made is None or (delivered is not None and made.head != delivered.head):
        return None
    return verified_document(made, result.issue.identifier)


def verified_document(verification: Verification, identifier: str) -> models.Verified:
    """The verification of a delivered commit of the issue with this identifier."""
    place = f"/issues/{quote(identifier, safe='')}/artifacts"
    return models.Verified(
        head=verification.head,
        passed=verification.passed,
        status=verification.status.value,
        message=one_line(verification.line),
        checks=check_documents(verification.checks),
        protected_changes=verification.protected_changes,
        weakened=verification.weakened,
        base=verification.base,
        artifacts=tuple(
            models.Artifact(
                name=kept.name,
                bytes=kept.size,
                path=None if kept.size is None else f"{place}/{kept.file}",
            )
            for kept in verification.artifacts
        ),
        reviewer=None if verification.reviewer is None else _reviewer(verification.reviewer),
    )


def _reviewer(verdict: ReviewerVerdict) -> models.VerifiedReviewer:
    return models.VerifiedReviewer(
        agent=verdict.reviewer,
        verdict="approve" if verdict.approves else "request_changes",
        remarks=verdict.remarks,
    )


def _push(delivered: DeliveredBranch, *, is_pushing: bool) -> str | None:
    """Whether `origin` has the branch; `None` if it need not be pushed."""
    if delivered.to_push and is_pushing:
        return "pushing"
    if delivered.push_failure is not None:
        return "failed"
    if delivered.to_push:
        return "waiting"
    return "pushed" if delivered.pushed else None


def _attempt(run: Running | None, retry: Retry | None) -> int:
    """The number of the present or next attempt; 0 is the first."""
    if retry is not None:
        return retry.attempt
    return 0 if run is None else run.attempt or 0


def _session_logs(run: Running | None) -> tuple[models.LogFile, ...]:
    """The stderr log of the agent, as a path below the state directory."""
    if run is None or run.agent_started_ms is None:
        return ()
    return (models.LogFile(label="stderr", path=f"logs/{run.run_id}.stderr.log", url=None),)


def _names(skills: models.Skills) -> models.SkillNames:
    malformed = (one.path for one in skills.problems if one.severity == "error")
    return models.SkillNames(
        listed=tuple(skill.name for skill in skills.listed),
        dropped=tuple(skill.name for skill in skills.dropped if skill.reason != "search"),
        malformed=tuple(dict.fromkeys(malformed)),
    )


def _failure(failure: Failure | None) -> models.Failure | None:
    return None if failure is None else _failure_document(failure)


def _failure_document(failure: Failure) -> models.Failure:
    return models.Failure(
        code=failure.category.value, message=failure.message, hint=failure.hint, where=failure.where
    )


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)


# --- the outbox ------------------------------------------------------------------------------------------


def outbox_document(jobs: Iterable[Job]) -> models.Outbox:
    """The jobs that wait or were given up."""
    return models.Outbox(
        jobs=tuple(
            models.OutboxJob(
                key=job.key,
                kind=job.kind,
                issue_id=job.issue_id,
                issue_identifier=job.issue_identifier,
                state=job.state.value,
                attempts=job.attempts,
                since=models.wall_text(job.created_wall_ms),
                due_at=None if job.state is JobState.GIVEN_UP else models.wall_text(job.due_wall_ms),
                failure=job.failure,
            )
            for job in jobs
        )
    )


def created_document(issue: Issue) -> models.CreatedIssue:
    """A newly created issue."""
    return models.CreatedIssue(
        issue_id=issue.id,
        issue_identifier=issue.identifier,
        issue_url=issue.url,
        title=issue.title,
        state=issue.state,
    )


def outbox_counts(jobs: Sequence[Job]) -> models.OutboxCounts:
    """The counts of jobs that are not done."""
    waiting = [job for job in jobs if job.state is JobState.WAITING]
    failed = [job for job in jobs if job.attempts]
    return models.OutboxCounts(
        waiting=len(waiting),
        failing=sum(job.attempts > 0 for job in waiting),
        given_up=len(jobs) - len(waiting),
        failure=failed[-1].failure if failed else None,
    )

"""Counts what the daemon does, for `GET /metrics`.

`Metrics` observes the service and counts each fact once, in the step that decides it. Gauges are read from
the state at each scrape. Counters and histograms start at zero with the daemon.
"""

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import anyio
from anyio import CapacityLimiter
from typing_extensions import override

import symphony
from symphony import to_thread
from symphony.api.documents import waiting_issues
from symphony.api.interface import Exposition
from symphony.api.models import Skills
from symphony.api.observer import Observer
from symphony.daemon.core import Core
from symphony.domain import Category, Failure
from symphony.journal.model import HealthState, JournalStatus, PullRequestRecord
from symphony.observability import metrics
from symphony.observability.metrics import Counters, Sample
from symphony.revision import commit
from symphony.scheduler import (
    AgentReported,
    AnswersRead,
    AnswersReadFailed,
    CircuitState,
    Command,
    Event,
    FetchCandidates,
    Notify,
    Polled,
    PollFailed,
    ReadAnswers,
    Recovered,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    ResultStatus,
    RunEnded,
    Running,
    StartRun,
    State,
    StopReason,
    circuit_state,
    results_with_status,
    slots_of,
)

_LAG_INTERVAL_S: Final = 1.0
_SEVERITIES: Final = ("error", "warning", "info")
_OPERATIONS: Final = ("poll", "refresh", "answers")
_TOKEN_KINDS: Final = ("input", "output", "cache_read", "cache_write", "reasoning")
_DEFAULT_MODEL: Final = "default"
_MAX_CHECKS: Final = 100
"""How many names of checks are counted; further names, after changes of WORKFLOW.md, count as `other`."""


class Metrics(Observer):
    """Observes the service; one per daemon.

    Args:
        core: state and clocks.
        journal_health: whether records survive a restart; `None` if there is no journal.
        pull_requests: the pull requests of issues.
    """

    def __init__(
        self,
        core: Core,
        *,
        journal_health: Callable[[], JournalStatus | None],
        pull_requests: Callable[[], Iterable[PullRequestRecord]] = tuple,
    ) -> None:
        self._core = core
        self._journal_health = journal_health
        self._pull_requests = pull_requests
        self._counts = Counters()
        self._found_ms: dict[str, int] = {}  # when a poll found a candidate that has no claim
        self._launching: dict[str, int] = {}  # the same time, by the first run of the issue
        self._requests: dict[tuple[str, object], int] = {}  # when a read of the tracker began
        self._last_poll_ms: int | None = None
        self._checks: set[str] = set()
        self._skills: Skills | None = None
        self._runs_with_skills: set[str] = set()
        self._scrapes = CapacityLimiter(1)
        for result in ("ok", "failed", "skipped"):
            self._counts.add(metrics.POLLS, result, by=0)
        for operation in _OPERATIONS:
            self._counts.add(metrics.TRACKER_REQUESTS, operation, "failed", by=0)

    # --- what happens ------------------------------------------------------------------------------------

    @override
    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...], /) -> None:
        now_ms = self._core.now_ms()
        if after.settings is not before.settings or isinstance(event, Recovered):
            for agent in after.settings.agents:
                self._counts.add(metrics.RUNS_STARTED, agent, by=0)
        self._count_tracker(before, event, after, now_ms)
        match event:
            case AgentReported(run_id=run_id):
                self._count_report(_run(before, run_id), _run(after, run_id), now_ms)
            case RunEnded(run_id=run_id) if run := _run(before, run_id):
                self._count_end(run, event, now_ms)
            case _:
                pass
        if after.blocked is not before.blocked and not isinstance(event, Recovered):
            for issue_id in after.blocked.keys() - before.blocked.keys():
                self._counts.add(metrics.BLOCKS, after.blocked[issue_id].failure.category.value)
        for command in commands:
            self._count_command(before, event, command, now_ms)
        if after.candidates is not before.candidates:
            self._note_candidates(after, now_ms)

    def found_ms(self, issue_id: str) -> int | None:
        """When a poll found the waiting issue; `None` if it does not wait."""
        return self._found_ms.get(issue_id)

    @override
    def tool_called(self, agent: str, *, success: bool) -> None:
        """An agent called a tool of the daemon."""
        self._counts.add(metrics.TOOL_CALLS, agent, "succeeded" if success else "failed")

    @override
    def skills_loaded(self, issue_id: str, run_id: str, skills: Skills) -> None:
        """A run lists these skills; called again when it reads one of them."""
        self._skills = skills
        if run_id not in self._runs_with_skills:
            self._runs_with_skills.add(run_id)
            for dropped in skills.dropped:
                self._counts.add(metrics.SKILLS_DROPPED, dropped.reason)

    def webhook_received(self, result: str) -> None:
        """A webhook was judged: `accepted`, `duplicate`, `ignored`, `handshake` or `refused`."""
        self._counts.add(metrics.WEBHOOKS, result)

    def notified(self, kind: str, result: str, count: int) -> None:
        """A target of this kind received notifications (`delivered`), or did not (`failed`)."""
        self._counts.add(metrics.NOTIFICATIONS, kind, result, by=count)

    def rehearsed(self, result: str) -> None:
        """Merges were rehearsed (`ok`), or could not be (`failed`)."""
        self._counts.add(metrics.REHEARSALS, result)

    async def measure_loop_lag(self) -> None:
        """Measure how late the event loop is, until cancelled."""
        while True:
            due_s = anyio.current_time() + _LAG_INTERVAL_S
            await anyio.sleep_until(due_s)
            self._counts.observe(metrics.LOOP_LAG, anyio.current_time() - due_s)

    def _count_command(self, before: State, event: Event, command: Command, now_ms: int) -> None:
        match command:
            case StartRun(run_id=run_id, issue=issue, agent=agent):
                self._counts.add(metrics.RUNS_STARTED, agent)
                found_ms = self._found_ms.pop(issue.id, None)
                if found_ms is not None and issue.id not in before.retrying:
                    self._launching[run_id] = found_ms
                    self._counts.observe(metrics.QUEUE_WAIT, (now_ms - found_ms) / 1000, agent)
            case Notify(event="run_retrying", issue_id=str(issue_id)):
                self._counts.add(metrics.RETRIES, _retry_cause(before, event, issue_id))
            case FetchCandidates(request=request):
                self._requests["poll", request] = now_ms
            case RefreshIssues(request=request):
                self._requests["refresh", request] = now_ms
            case ReadAnswers(question=question, comment=comment):
                self._requests["answers", (comment.issue.id, question)] = now_ms
            case _:
                pass

    def _count_tracker(self, before: State, event: Event, after: State, now_ms: int) -> None:
        match event:
            case Polled(request=request):
                self._count_request("poll", request, None, now_ms)
                self._last_poll_ms = self._core.wall_ms()
            case PollFailed(request=request, failure=failure):
                self._count_request("poll", request, failure, now_ms)
            case Refreshed(request=request):
                self._count_request("refresh", request, None, now_ms)
            case RefreshFailed(request=request, failure=failure):
                self._count_request("refresh", request, failure, now_ms)
            case AnswersRead(issue_id=issue_id, question=question):
                self._count_request("answers", (issue_id, question), None, now_ms)
            case AnswersReadFailed(issue_id=issue_id, question=question, failure=failure):
                self._count_request("answers", (issue_id, question), failure, now_ms)
            case _:
                pass
        if after.polls > before.polls:
            failed = isinstance(event, PollFailed)
            result = "ok" if isinstance(event, Polled) else "failed" if failed else "skipped"
            self._counts.add(metrics.POLLS, result)

    def _count_request(self, operation: str, key: object, failure: Failure | None, now_ms: int) -> None:
        began_ms = self._requests.pop((operation, key), None)
        if began_ms is None:
            return
        result = "ok" if failure is None else "failed"
        if failure is not None and failure.category is Category.TRACKER_RATE_LIMITED:
            result = "rate_limited"
        self._counts.add(metrics.TRACKER_REQUESTS, operation, result)
        self._counts.observe(metrics.TRACKER_REQUEST, (now_ms - began_ms) / 1000, operation)

    def _count_report(self, before: Running | None, after: Running | None, now_ms: int) -> None:
        if before is None or after is None:
            return
        agent, old, new = after.agent.name, before.report, after.report
        if before.agent_started_ms is None and after.agent_started_ms is not None:
            found_ms = self._launching.pop(after.run_id, None)
            if found_ms is not None:
                self._counts.observe(metrics.DISPATCH, (now_ms - found_ms) / 1000, agent)
        self._counts.add(metrics.TURNS, agent, by=max(new.facts.turn_count - old.facts.turn_count, 0))
        model = after.agent.model or _DEFAULT_MODEL
        used = new.facts.tokens.above(old.facts.tokens).counts()
        for kind in _TOKEN_KINDS:
            self._counts.add(metrics.TOKENS, agent, model, kind, by=used[f"{kind}_tokens"])

    def _count_end(self, run: Running, event: RunEnded, now_ms: int) -> None:
        agent, model, outcome = run.agent.name, run.agent.model or _DEFAULT_MODEL, event.outcome
        kind, failure = outcome.kind.value, outcome.failure
        category = failure.category.value if failure else run.stopping.value if run.stopping else "none"
        self._counts.add(metrics.RUNS_ENDED, agent, kind, category)
        self._counts.observe(metrics.RUN_DURATION, (now_ms - run.started_ms) / 1000, agent, kind)
        self._counts.add(metrics.UNPRICED_TOKENS, agent, model, by=run.report.facts.unpriced_tokens)
        if run.report.facts.cost_usd is not None:
            self._counts.add(metrics.COST, agent, model, by=run.report.facts.cost_usd)
        for check in outcome.verification.checks if outcome.verification else ():
            name = check.name if check.name in self._checks or len(self._checks) < _MAX_CHECKS else "other"
            self._checks.add(name)
            self._counts.add(metrics.CHECKS, name, check.result)
            if not check.skipped:
                self._counts.observe(metrics.CHECK_DURATION, check.duration_ms / 1000, name)
        self._launching.pop(run.run_id, None)
        self._runs_with_skills.discard(run.run_id)

    def _note_candidates(self, after: State, now_ms: int) -> None:
        claimed = after.running.keys() | after.retrying.keys() | after.blocked.keys()
        for issue_id in after.candidates.keys() - self._found_ms.keys() - claimed:
            self._found_ms[issue_id] = now_ms
        for issue_id in self._found_ms.keys() - after.candidates.keys():
            del self._found_ms[issue_id]

    # --- a scrape ----------------------------------------------------------------------------------------

    async def exposition(self) -> Exposition:
        """All metrics as text. It is made in a thread, one at a time."""
        samples = [*self._counts.samples(), *self._own_gauges()]
        state, clocks = self._core.state, (self._core.now_ms(), self._core.wall_ms())
        return await to_thread.run_sync(
            partial(_exposition, samples, state, *clocks), abandon_on_cancel=True, limiter=self._scrapes
        )

    def _own_gauges(self) -> Iterator[Sample]:
        """The gauges that are not part of the scheduler's state."""
        health = self._journal_health()
        if health is not None:
            yield Sample(metrics.JOURNAL_OK, (), health.state is HealthState.OK)
        waits = Counter(record.code for record in self._pull_requests() if record.code != "merged")
        for code, count in sorted(waits.items()):
            yield Sample(metrics.PULL_REQUESTS, (code,), count)
        if self._last_poll_ms is not None:
            yield Sample(metrics.LAST_POLL, (), self._last_poll_ms / 1000)
        if self._skills is not None:
            yield Sample(metrics.SKILLS_LISTED, (), len(self._skills.listed))
            found = Counter(problem.severity for problem in self._skills.problems)
            for severity in _SEVERITIES:
                yield Sample(metrics.SKILL_PROBLEMS, (severity,), found[severity])


def _exposition(samples: list[Sample], state: State | None, now_ms: int, wall_ms: int) -> Exposition:
    from symphony.observability.exposition import (  # noqa: PLC0415 - loaded with the first scrape
        CONTENT_TYPE,
        exposition,
    )

    version = (symphony.__version__, commit() or "unknown", platform.python_version())
    gauges = () if state is None else state_gauges(state, now_ms=now_ms, wall_ms=wall_ms)
    build = Sample(metrics.BUILD_INFO, version, 1)
    return Exposition(content=exposition([build, *samples, *gauges]), content_type=CONTENT_TYPE)


def state_gauges(state: State, *, now_ms: int, wall_ms: int) -> Iterator[Sample]:
    """The gauges of a state. `now_ms` and `wall_ms` are the same time."""
    settings, runs = state.settings, state.running.values()
    ready = results_with_status(state, ResultStatus.READY)
    reviewed = {result.issue.id for result in ready}
    reasons = Counter(reason.code for issue, reason in waiting_issues(state) if issue.id not in reviewed)
    stopping = sum(run.stopping is not None for run in runs)
    statuses = {
        "running": len(runs) - stopping,
        "stopping": stopping,
        "retrying": len(state.retrying),
        "blocked": len(state.blocked),
        "waiting": reasons.total(),
        "ready": len(ready),
    }
    for status, count in statuses.items():
        yield Sample(metrics.ISSUES, (status,), count)
    for reason, count in reasons.items():
        yield Sample(metrics.WAITING_ISSUES, (reason,), count)
    yield Sample(metrics.SLOTS, (), settings.max_concurrent_agents)
    yield Sample(metrics.SLOTS_USED, (), len(runs))
    machines = Counter(dict.fromkeys(settings.hosts, 0))
    machines.update(run.machine for run in runs if run.machine is not None)
    for machine, count in machines.items():
        yield Sample(metrics.HOST_RUNS, (machine,), count)
    for host in settings.hosts:
        trouble = state.troubled_hosts.get(host)
        yield Sample(metrics.HOST_SLOTS, (host,), slots_of(state, host))
        yield Sample(metrics.HOST_FAILURES, (host,), 0 if trouble is None else trouble.failures)
    yield Sample(metrics.DAY_TOKENS, (), state.day_tokens)
    if state.day_cost.cost_usd is not None:
        yield Sample(metrics.DAY_COST, (), state.day_cost.cost_usd)
    if settings.budget.max_tokens_per_day:
        yield Sample(metrics.BUDGET_USED, ("day",), state.day_tokens / settings.budget.max_tokens_per_day)
    for agent in settings.agents:
        limited = state.limited_agents.get(agent)
        until_ms = None if limited is None else limited.until_ms
        yield Sample(metrics.AGENT_LIMITED, (agent,), until_ms is not None)
        if until_ms is not None:
            yield Sample(metrics.AGENT_LIMIT_RESET, (agent,), (wall_ms + until_ms - now_ms) / 1000)
    yield Sample(metrics.CIRCUIT_OPEN, (), circuit_state(state, now_ms) is not CircuitState.CLOSED)
    yield Sample(metrics.WORKFLOW_VALID, (), state.config_error is None)
    yield Sample(metrics.PAUSED, (), state.paused)


def _run(state: State, run_id: str) -> Running | None:
    return next((run for run in state.running.values() if run.run_id == run_id), None)


def _retry_cause(before: State, event: Event, issue_id: str) -> str:
    """Why an issue is retried: the category of a failure, or `no_slot`."""
    match event:
        case RunEnded(outcome=outcome):
            run = before.running.get(issue_id)
            if run is not None and run.stopping is StopReason.STALLED:
                return Category.STALLED.value
            return (outcome.failure.category if outcome.failure else Category.INTERNAL).value
        case RefreshFailed(failure=failure):
            return failure.category.value
        case _:
            return "no_slot"

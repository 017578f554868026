"""The scheduler's state, the table of claims, and `Step`, which collects the changes of one step.

Everything here but `Step` is an immutable value; each step of the scheduler replaces the `State` as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, assert_never

import msgspec
from msgspec import Struct

from symphony.domain import NO_COST, AgentChoice, Cost, Failure, Issue, Phase, Spent
from symphony.scheduler import messages

# --- claims ----------------------------------------------------------------------------------------------


class Claim(StrEnum):
    """The states of the claim on an issue."""

    UNCLAIMED = "unclaimed"
    RUNNING = "running"
    STOPPING = "stopping"
    RETRYING = "retrying"
    BLOCKED = "blocked"


class Trigger(StrEnum):
    """What changes a claim."""

    RECOVER = "recover"
    FEEDBACK = "feedback"
    VERIFY = "verify"
    START = "start"
    STOP = "stop"
    RETRY = "retry"
    BLOCK = "block"
    RELEASE = "release"


TRANSITIONS: Final[Mapping[tuple[Claim, Trigger], Claim]] = {
    (Claim.UNCLAIMED, Trigger.START): Claim.RUNNING,
    (Claim.UNCLAIMED, Trigger.RECOVER): Claim.RETRYING,
    (Claim.UNCLAIMED, Trigger.FEEDBACK): Claim.RETRYING,
    (Claim.UNCLAIMED, Trigger.VERIFY): Claim.RETRYING,
    (Claim.UNCLAIMED, Trigger.BLOCK): Claim.BLOCKED,
    (Claim.RUNNING, Trigger.STOP): Claim.STOPPING,
    (Claim.RUNNING, Trigger.RETRY): Claim.RETRYING,
    (Claim.RUNNING, Trigger.BLOCK): Claim.BLOCKED,
    (Claim.RUNNING, Trigger.RELEASE): Claim.UNCLAIMED,
    (Claim.STOPPING, Trigger.RETRY): Claim.RETRYING,
    (Claim.STOPPING, Trigger.BLOCK): Claim.BLOCKED,
    (Claim.STOPPING, Trigger.RELEASE): Claim.UNCLAIMED,
    (Claim.RETRYING, Trigger.START): Claim.RUNNING,
    (Claim.RETRYING, Trigger.RETRY): Claim.RETRYING,
    (Claim.RETRYING, Trigger.BLOCK): Claim.BLOCKED,
    (Claim.RETRYING, Trigger.RELEASE): Claim.UNCLAIMED,
    (Claim.BLOCKED, Trigger.RETRY): Claim.RETRYING,
    (Claim.BLOCKED, Trigger.RELEASE): Claim.UNCLAIMED,
}
"""All legal changes of a claim. `change_claim` applies them and refuses everything else.

An issue is unclaimed until a run starts for it. A run that is asked to stop keeps its slot and its claim
until `RunEnded` arrives, because its processes may still be alive. After the end of a run, its claim waits
for a retry, waits for a person (blocked), or is released. Feedback on finished work claims its issue again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A claim with a run, from `StartRun` to `RunEnded`; it holds a slot.

    Attributes:
        attempt: the attempt number of the specification; `None` for the first run.
        attempts_without_progress: consecutive earlier attempts of this claim without progress.
        failures: consecutive earlier attempts of this claim that failed for any reason.
        runs: the runs of this claim including this one, counted from zero after a block.
        agent_started_ms: when the agent was launched. The stall timeout does not cover hooks and clones.
        last_activity_ms: when the agent last produced an event.
        turns_without_progress: consecutive turns without a trace.
        awaiting_refresh: a turn ended, and the issue is refreshed before the next one.
        in_grace_period: the session may have moved its own issue out of the active states; its turn may end.
        finishing: why the run gets no further turn.
        stopping: why the run is being stopped.
        resume: what the run continues.
        phase: the phase of the work in the present turn, if any.
        host: where the run is carried out; `None` is this machine.
        reported_turn: the latest turn in which the agent reported tokens.
        placed: the machine that the cluster chose.
        changed: the paths that the work changed by the end of the last turn; empty if that is not known.
        told_overlaps: ids of other issues and paths that the agent was told of.
        worked_in: the last active state in which the issue was seen; `None` if none was seen yet.
        verifies: the worker was asked to verify what it delivers.
    """

    run_id: str
    issue: Issue
    attempt: int | None
    started_ms: int
    max_turns: int
    attempts_without_progress: int
    failures: int = 0
    runs: int = 1
    report: messages.RunReport = field(
        default_factory=lambda: messages.RunReport(stage=messages.RunStage.PREPARING_WORKSPACE)
    )
    agent_started_ms: int | None = None
    last_activity_ms: int | None = None
    turn: int = 1
    turns_without_progress: int = 0
    awaiting_refresh: bool = False
    in_grace_period: bool = False
    finishing: messages.FinishReason | None = None
    stopping: messages.StopReason | None = None
    resume: messages.Resume | None = None
    agent: AgentChoice = field(default_factory=AgentChoice)
    phase: Phase | None = None
    host: str | None = None
    reported_turn: int = 0
    placed: str | None = None
    changed: frozenset[str] = frozenset()
    told_overlaps: frozenset[tuple[str, str]] = frozenset()
    worked_in: str | None = None
    verifies: bool = False

    @property
    def machine(self) -> str | None:
        """The host, or the machine that a cluster chose."""
        return self.placed or self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A claim that waits for its next attempt.

    Attributes:
        attempt: the attempt number of the specification for the next run.
        error: why the last attempt failed; `None` after a clean end or an interruption.
        cause: the same, while `error` says that no slot is free.
        refreshing: the retry is due, and its issue is being refreshed.
        failures: consecutive failed attempts and refreshes.
        non_retryable: the last failure does not resolve itself. Only `run --once` gives up because of it.
        runs: the runs of the claim so far, without interrupted ones.
        may_have_moved: the agent of the last run may have moved the issue before that run was cut off.
    """

    issue: Issue
    attempt: int
    due_ms: int
    error: str | None
    attempts_without_progress: int
    workspace_path: str | None = None
    refreshing: bool = False
    failures: int = 0
    non_retryable: bool = False
    runs: int = 0
    resume: messages.Resume | None = None
    cause: str | None = None
    may_have_moved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCheck:
    """The comments on an issue that waits for an answer.

    Attributes:
        in_progress: they are being read.
        requested_again: they must be read again, because something changed meanwhile.
        unauthorized: the newest comments by people who may not answer.
        failure: why the last reading failed.
    """

    in_progress: bool = False
    requested_again: bool = False
    unauthorized: tuple[messages.IssueComment, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A claim that waits for a person.

    Attributes:
        failure: why; every surface shows it.
        report: the last report of the run that was blocked.
        has_baseline: the issue was refreshed after the block; changes from now on unblock it.
        over: the issue had ended when it was blocked. A stop by an operator then does not outlast that end.
        attempt: the attempt number of the run that was blocked.
        question: what the agent asked.
        resume: how the next run continues.
        unblock_reason: why the issue continues once it is back in an active state.
        run_id: the run that was blocked; it also identifies its question.
        answer_check: the latest reading of the comments that may answer the question.
    """

    issue: Issue
    failure: Failure
    blocked_ms: int
    report: messages.RunReport | None = None
    workspace_path: str | None = None
    has_baseline: bool = False
    over: bool = False
    attempt: int | None = None
    question: str | None = None
    resume: messages.Resume | None = None
    unblock_reason: str | None = None
    run_id: str | None = None
    answer_check: AnswerCheck = field(default_factory=AnswerCheck)


ClaimEntry = Running | Retry | Blocked

# --- the state -------------------------------------------------------------------------------------------


class Cycle(StrEnum):
    """The phase of the poll cycle."""

    IDLE = "idle"
    RECONCILING = "reconciling"
    POLLING = "polling"


class Drain(StrEnum):
    """Shutdown progress of the daemon: `stopping` waits for nothing but the ends of stopped runs."""

    NO = "no"
    DRAINING = "draining"
    STOPPING = "stopping"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedAgent:
    """An agent that is rate limited or out of credit, or whose model does not answer.

    Attributes:
        until_ms: no session of it starts before this time; `None` once the wait is over. The entry then lasts
            until a run shows that the agent works again.
        since_ms: when the first of these waits began.
        failure: the latest failure that reported the limit.
        times: consecutive waits.
        probe: the run that tests the agent after the wait. No other session starts before the model answers
            it.
    """

    until_ms: int | None
    since_ms: int
    failure: Failure
    times: int = 1
    probe: str | None = None


class RecoveredAgent(Struct, frozen=True, kw_only=True):
    """An agent whose model has answered after a limit.

    If another limit follows soon, it counts as this one.
    """

    limited: LimitedAgent
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubledHost:
    """A host where the last runs failed because of it.

    Attributes:
        failures: how many in a row.
        until_ms: it gets no run before this time; `None` if it does not rest.
        failure: the latest.
    """

    failures: int
    until_ms: int | None
    failure: Failure


class BudgetSpender(Struct, frozen=True, kw_only=True):
    """The run that used up the daily budget: its issue by identifier, its agent, its tokens."""

    issue: str
    agent: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """Consecutive failed requests to the tracker.

    Attributes:
        failures: how many; failures of one burst count once.
        since_ms: the first of them.
        counted_ms: the last one that was counted.
        until_ms: the circuit is open until then. The next request decides whether it closes.
        failure: the latest.
    """

    failures: int = 0
    since_ms: int | None = None
    counted_ms: int | None = None
    until_ms: int | None = None
    failure: Failure | None = None


class RefreshInFlight(Struct, frozen=True, kw_only=True):
    """The one refresh by id that is in progress."""

    request: int
    ids: frozenset[str]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decisions depend on. Mappings are keyed by issue id unless stated otherwise.

    It is no dataclass, because a step copies it several times, and copying a dataclass with so many fields
    takes 60 times as long.

    Attributes:
        epoch: unique name of this daemon lifetime, the stem of run ids.
        serial: numbers runs, requests and timer tokens.
        results: what the runs of issues produced, for review.
        candidates: the issues of the last poll, in dispatch order.
        pending_candidates: candidates that are refreshed before they start.
        skipped_until_poll: candidates whose refresh failed; they wait for the next poll.
        idle_workspaces: workspaces without a claim. Their issues are refreshed at times, to clean up after
            ended ones.
        cycle_request: the request that the poll cycle waits for.
        poll_again: another cycle follows the current one at once.
        poll_soon: the next poll is due in a moment.
        refresh: the refresh in progress; `ids_to_refresh` go together in the next one.
        timers: the latest `SetTimer` of each armed timer.
        throttled_until_ms: the tracker asked for no requests until then.
        config_error: why the workflow is invalid; nothing starts while it is set.
        skipped_records: malformed records of the last poll, for information.
        completed: issues with a run that succeeded; `Step.remember` bounds such sets.
        known_issues: issues that have had a session of an agent.
        silent_turns: by issue, the turns in which its agents reported no tokens.
        silence_told: issues whose silent turns were already warned about.
        day_cost: the cost of what was used on `day`.
        budget_waivers: issues that today's budget does not stop.
        limited_agents: by agent name; `recovered_agents` too.
        troubled_hosts: by host.
        remote_workspaces: the workspaces on hosts.
    """

    settings: messages.SchedulerSettings
    epoch: str
    serial: int = 0
    running: Mapping[str, Running] = msgspec.field(default_factory=dict)
    retrying: Mapping[str, Retry] = msgspec.field(default_factory=dict)
    blocked: Mapping[str, Blocked] = msgspec.field(default_factory=dict)
    results: Mapping[str, messages.IssueResult] = msgspec.field(default_factory=dict)
    candidates: Mapping[str, Issue] = msgspec.field(default_factory=dict)
    pending_candidates: frozenset[str] = frozenset()
    skipped_until_poll: frozenset[str] = frozenset()
    idle_workspaces: Mapping[str, messages.WorkspaceRef] = msgspec.field(default_factory=dict)
    idle_workspaces_checked_ms: int | None = None
    cycle: Cycle = Cycle.IDLE
    cycle_request: int | None = None
    poll_again: bool = False
    poll_soon: bool = False
    polls: int = 0
    refresh: RefreshInFlight | None = None
    ids_to_refresh: frozenset[str] = frozenset()
    timers: Mapping[messages.Timer, messages.SetTimer] = msgspec.field(default_factory=dict)
    throttled_until_ms: int | None = None
    next_poll_ms: int | None = None
    config_error: Failure | None = None
    last_poll_failure: Failure | None = None
    skipped_records: tuple[Failure, ...] = ()
    drain: Drain = Drain.NO
    completed: frozenset[str] = frozenset()
    totals: messages.Totals = msgspec.field(default_factory=messages.Totals)
    known_issues: frozenset[str] = frozenset()
    paused: bool = False
    spent: Mapping[str, Spent] = msgspec.field(default_factory=dict)
    silent_turns: Mapping[str, int] = msgspec.field(default_factory=dict)
    silence_told: frozenset[str] = frozenset()
    day: str | None = None
    day_tokens: int = 0
    day_cost: Cost = NO_COST
    day_spender: BudgetSpender | None = None
    budget_waivers: frozenset[str] = frozenset()
    breaker: CircuitBreaker = msgspec.field(default_factory=CircuitBreaker)
    rate_limits: Mapping[str, Any] | None = None
    limited_agents: Mapping[str, LimitedAgent] = msgspec.field(default_factory=dict)
    recovered_agents: Mapping[str, RecoveredAgent] = msgspec.field(default_factory=dict)
    troubled_hosts: Mapping[str, TroubledHost] = msgspec.field(default_factory=dict)
    remote_workspaces: Mapping[str, messages.RemoteWorkspace] = msgspec.field(default_factory=dict)

    def changed(self, **changes: Any) -> "State":
        """A copy with other values in these fields."""
        return msgspec.structs.replace(self, **changes)

    def entry(self, issue_id: str) -> ClaimEntry | None:
        """The claim on an issue."""
        return self.running.get(issue_id) or self.retrying.get(issue_id) or self.blocked.get(issue_id)

    def timer_due_ms(self, timer: messages.Timer) -> int | None:
        """When an armed timer fires, or `None`."""
        armed = self.timers.get(timer)
        return None if armed is None else armed.due_ms


def initial_state(settings: messages.SchedulerSettings, *, epoch: str) -> State:
    """The state before the first event."""
    return State(settings=settings, epoch=epoch)


def _claim_of_entry(entry: ClaimEntry | None) -> Claim:
    match entry:
        case None:
            return Claim.UNCLAIMED
        case Running():
            return Claim.RUNNING if entry.stopping is None else Claim.STOPPING
        case Retry():
            return Claim.RETRYING
        case Blocked():
            return Claim.BLOCKED
        case _:
            assert_never(entry)


def claim_of(state: State, issue_id: str) -> Claim:
    """The state of the claim on an issue."""
    return _claim_of_entry(state.entry(issue_id))


def change_claim(
    state: State, issue_id: str, trigger: Trigger, entry: ClaimEntry | None = None
) -> State | None:
    """The state after a claim changed to `entry`, or `None` if the table has no such transition."""
    target = TRANSITIONS.get((claim_of(state, issue_id), trigger))
    if target is None or target is not _claim_of_entry(entry):
        return None
    running, retrying, blocked = dict(state.running), dict(state.retrying), dict(state.blocked)
    if not isinstance(entry, Running):
        running.pop(issue_id, None)
    retrying.pop(issue_id, None)
    blocked.pop(issue_id, None)
    match entry:
        case Running():
            running[issue_id] = entry
        case Retry():
            retrying[issue_id] = entry
        case Blocked():
            blocked[issue_id] = entry
    return state.changed(running=running, retrying=retrying, blocked=blocked)


MAX_REMEMBERED: Final = 1_000
"""How many issues are remembered. Beyond that, issues that have left the board are forgotten."""

# --- one step --------------------------------------------------------------------------------------------


class Step:
    """One step in progress: the state as changed so far, and the commands so far."""

    __slots__ = ("commands", "now_ms", "state")

    def __init__(self, state: State, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.commands: list[messages.Command] = []

    def emit(self, command: messages.Command) -> None:
        """Add a command."""
        self.commands.append(command)

    def update(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = self.state.changed(**changes)

    def next_serial(self) -> int:
        """Draw the next serial number."""
        self.update(serial=self.state.serial + 1)
        return self.state.serial

    def notify(self, level: str, event: str, issue: Issue | None = None, **fields: Any) -> None:
        """Add a log line."""
        self.emit(
            messages.Notify(
                level=level,
                event=event,
                issue_id=issue.id if issue else None,
                issue_identifier=issue.identifier if issue else None,
                fields=fields,
            )
        )

    def request_refresh(self, *issue_ids: str) -> None:
        """Have issues refreshed with the next request by id."""
        self.update(ids_to_refresh=self.state.ids_to_refresh.union(issue_ids))

    # --- claims ---

    def change_claim(self, issue: Issue, trigger: Trigger, entry: ClaimEntry | None = None) -> bool:
        """Change the claim on an issue by the table. An illegal change is logged and does nothing."""
        changed = change_claim(self.state, issue.id, trigger, entry)
        if changed is None:
            self.notify("error", "claim_transition_refused", issue, trigger=trigger.value)
            return False
        self.state = changed
        result = changed.results.get(issue.id)
        if entry is not None and result is not None and result.status is not messages.ResultStatus.OPEN:
            reopened = replace(result, status=messages.ResultStatus.OPEN)
            self.update(results={**changed.results, issue.id: reopened})
        return True

    def replace_entry(self, entry: ClaimEntry) -> None:
        """Replace the entry of a claim without a transition."""
        issue_id = entry.issue.id
        match entry:
            case Running():
                self.update(running={**self.state.running, issue_id: entry})
            case Retry():
                self.update(retrying={**self.state.retrying, issue_id: entry})
            case Blocked():
                self.update(blocked={**self.state.blocked, issue_id: entry})
            case _:
                assert_never(entry)

    def remember(self, known: frozenset[str], issue_id: str) -> frozenset[str]:
        """Add an issue to known ones. Beyond `MAX_REMEMBERED` only issues on the board stay.

        On the board are candidates, claimed issues, and those with results.
        """
        known |= {issue_id}
        if len(known) > MAX_REMEMBERED:
            state = self.state
            known &= {
                issue_id,
                *state.candidates,
                *state.running,
                *state.retrying,
                *state.blocked,
                *state.results,
            }
        return known

    def run_by_id(self, run_id: str) -> Running | None:
        """The live run with this id."""
        return next((run for run in self.state.running.values() if run.run_id == run_id), None)

    def forget_idle_workspace(self, issue_id: str) -> None:
        """Remove a workspace from the idle ones, because it belongs to a claim again."""
        if issue_id in self.state.idle_workspaces:
            others = {key: ref for key, ref in self.state.idle_workspaces.items() if key != issue_id}
            self.update(idle_workspaces=others)

    # --- timers ---

    def set_timer(self, timer: messages.Timer, due_ms: int) -> None:
        """Arm a timer; an earlier arming becomes stale."""
        armed = messages.SetTimer(timer=timer, token=self.next_serial(), due_ms=due_ms)
        self.update(timers={**self.state.timers, timer: armed})
        self.emit(armed)

    def clear_timer(self, timer: messages.Timer) -> None:
        """Disarm a timer."""
        if timer in self.state.timers:
            self.update(timers={key: armed for key, armed in self.state.timers.items() if key != timer})

    def set_retry_timer(self, issue_id: str, due_ms: int) -> None:
        """Arm the timer of a retry.

        During a shutdown do nothing, because the next daemon takes the retry over.
        """
        if self.state.drain is Drain.NO:
            self.set_timer(messages.Timer(messages.TimerKind.RETRY, issue_id), due_ms)

    def overdue_ms(self, timer: messages.Timer) -> int:
        """How late an armed timer is, or 0."""
        due_ms = self.state.timer_due_ms(timer)
        return 0 if due_ms is None else max(self.now_ms - due_ms, 0)

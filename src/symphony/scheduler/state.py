"""What the scheduler knows: immutable values, replaced as a whole by each step (DM15-DM18)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, assert_never

from symphony.domain import Failure, Issue
from symphony.scheduler.messages import (
    Command,
    FinishReason,
    IssueComment,
    IssueResult,
    Notify,
    ResultStatus,
    Resume,
    RunReport,
    RunStage,
    SchedulerSettings,
    SetTimer,
    Spent,
    StopReason,
    Timer,
    TimerKind,
    WorkspaceRef,
)


class Cycle(StrEnum):
    """Where the poll cycle is (SC3)."""

    IDLE = "idle"
    RECONCILING = "reconciling"
    POLLING = "polling"


class Drain(StrEnum):
    """Whether the daemon is on its way out."""

    NO = "no"
    DRAINING = "draining"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChoice:
    """Which agent gets an issue, and why: the same words on every surface.

    Attributes:
        name: of the agent; `kind` and `model` are its own, null where they are not told.
        reason: one clause for people.
        instead_of: whose place it takes, by name; null where it is the one that rules ask for.
    """

    name: str = "codex"
    kind: str | None = None
    model: str | None = None
    reason: str = "the default"
    instead_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedAgent:
    """An agent that said it was asked too often, or is out of credit.

    Until `until_ms` no session of it is started; null means that this is over, and not shown yet to have
    helped. `times` counts such ends in a row, `failure` is the last.
    """

    until_ms: int | None
    failure: Failure
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A run from `StartRun` to `RunEnded`; holds a slot and the claim.

    `agent_ms` is when the agent was launched, null before: hooks and clones are not silence (SC11).
    `awaiting` means a turn ended and the issue is being refreshed. `idle_attempts` counts the attempts of
    this claim before this one that left no progress (RT5), `failures` those that failed, for any reason.
    `idle_turns` counts the turns in a row up to now that left no trace, `runs` the runs of this claim, with
    this one, since it was made or a block was lifted. `resume` is what the run went on with, `agent` who runs
    it.
    """

    run_id: str
    issue: Issue
    attempt: int | None
    started_ms: int
    max_turns: int
    attempts_without_progress: int
    failures: int = 0
    runs: int = 1
    report: RunReport = field(default_factory=lambda: RunReport(stage=RunStage.PREPARING_WORKSPACE))
    agent_started_ms: int | None = None
    last_activity_ms: int | None = None
    turn: int = 1
    turns_without_progress: int = 0
    awaiting_refresh: bool = False
    in_grace_period: bool = False
    finishing: FinishReason | None = None
    stopping: StopReason | None = None
    resume: Resume | None = None
    agent: AgentChoice = field(default_factory=AgentChoice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A claim that waits for its next attempt (DM16). `firing` means due and being refreshed.

    `failures` counts the failed attempts and refreshes in a row; `hopeless` means that the last one said it
    would not mend by itself. Both are read by `run --once` alone: a daemon goes on trying. `runs` counts the
    runs so far, as in `Running`; one that only was interrupted does not count.
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
    resume: Resume | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCheck:
    """What is known of the comments on an issue that waits for an answer (`answers`).

    `under_way` means that they are being read, `again` that somebody woke us meanwhile. `others` are the
    newest comments of people whose words are no answer, `failure` is why the last reading failed.
    """

    in_progress: bool = False
    requested_again: bool = False
    unauthorized: tuple[IssueComment, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A claim that waits for a person (SM7, RT5); `failure` is the reason shown on every surface.

    `settled` is set by the first refresh after the block: only later changes unblock. `question` is what the
    agent asked, `resume` how it would go on, and `attempt` the number of the run that was blocked.
    `returning` is why the issue shall go on, once it is back in an active state (`moves`). `run_id` is of the
    run that was blocked, which also names its question; `comments` is what was read on the issue since.
    """

    issue: Issue
    failure: Failure
    blocked_ms: int
    report: RunReport | None = None
    workspace_path: str | None = None
    has_baseline: bool = False
    attempt: int | None = None
    question: str | None = None
    resume: Resume | None = None
    unblock_reason: str | None = None
    run_id: str | None = None
    answer_check: AnswerCheck = field(default_factory=AnswerCheck)


ClaimEntry = Running | Retry | Blocked


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """Whose report used up the budget of the day: its issue by identifier, and what its run had used."""

    issue: str
    agent: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Tokens and agent time of all ended runs; running ones are added when a snapshot is taken (TK6)."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    running_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """How the tracker answers: `failures` questions in a row that went wrong, since when.

    `counted_ms` is when the last of them was counted: those of one burst count once. The circuit is open
    while `until_ms` lies ahead: then nothing is asked. After it, one question decides.
    """

    failures: int = 0
    since_ms: int | None = None
    counted_ms: int | None = None
    until_ms: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshInFlight:
    """The one by-id request under way; further ids wait and go together in the next."""

    request: int
    ids: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything a decision depends on.

    `epoch` is the caller's unique name of this daemon lifetime, the stem of run ids; `serial` numbers
    runs, requests and timer tokens. `picks` are candidates whose guard refresh is pending (SC9). `results`
    are what the runs of issues came to, for people to review (`results`). `parked`
    are workspaces without a claim, asked about now and then so that ended ones are cleaned (SC2).
    `deferred` are candidates whose guard refresh failed; they wait for the next poll. `poll_soon` means that
    the next poll is due in a moment, because something changed during the last one.
    `timers` holds the newest command for each armed timer. `quiet_until_ms` is set
    when the tracker asked not to be asked before.
    `hold` is set while the workflow is invalid. `skipped` are the first of the records that the last answered
    poll left out; they only inform. `limited` tells of agents by name.
    """

    settings: SchedulerSettings
    epoch: str
    serial: int = 0
    running: Mapping[str, Running] = field(default_factory=dict)
    retrying: Mapping[str, Retry] = field(default_factory=dict)
    blocked: Mapping[str, Blocked] = field(default_factory=dict)
    results: Mapping[str, IssueResult] = field(default_factory=dict)
    candidates: Mapping[str, Issue] = field(default_factory=dict)
    pending_candidates: frozenset[str] = frozenset()
    skipped_until_poll: frozenset[str] = frozenset()
    idle_workspaces: Mapping[str, WorkspaceRef] = field(default_factory=dict)
    idle_workspaces_checked_ms: int | None = None
    cycle: Cycle = Cycle.IDLE
    cycle_request: int | None = None
    poll_again: bool = False
    poll_soon: bool = False
    polls: int = 0
    refresh: RefreshInFlight | None = None
    ids_to_refresh: frozenset[str] = frozenset()
    timers: Mapping[Timer, SetTimer] = field(default_factory=dict)
    throttled_until_ms: int | None = None
    next_poll_ms: int | None = None
    config_error: Failure | None = None
    last_poll_failure: Failure | None = None
    skipped_records: tuple[Failure, ...] = ()
    drain: Drain = Drain.NO
    completed: frozenset[str] = frozenset()
    totals: Totals = field(default_factory=Totals)
    paused: bool = False
    spent: Mapping[str, Spent] = field(default_factory=dict)
    day: str | None = None
    day_tokens: int = 0
    day_spender: Spender | None = None
    budget_waivers: frozenset[str] = frozenset()
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    rate_limits: Mapping[str, Any] | None = None
    limited_agents: Mapping[str, LimitedAgent] = field(default_factory=dict)

    def timer_due_ms(self, timer: Timer) -> int | None:
        """When an armed timer fires, or `None`."""
        armed = self.timers.get(timer)
        return None if armed is None else armed.due_ms


def initial_state(settings: SchedulerSettings, *, epoch: str) -> State:
    """The state before the first input."""
    return State(settings=settings, epoch=epoch)


# Claims: who holds an issue, and the only way a claim may change hands.
#
# The table is the rule; `move` is its interpreter and the only code that touches the three claim maps.
#
#     An issue is Unclaimed until a run starts for it. A run that is asked to stop keeps slot and claim
#     until its end arrives, because its processes may still be alive. After its end the claim waits for
#     a retry, waits for a person (Blocked), or is released. A pair that is not in the table leaves the
#     state as it is, and the caller gets null (SM1-SM3).


class Claim(StrEnum):
    """The states of a claim (SM1)."""

    UNCLAIMED = "unclaimed"
    RUNNING = "running"
    STOPPING = "stopping"
    RETRYING = "retrying"
    BLOCKED = "blocked"


class Trigger(StrEnum):
    """What changes a claim."""

    RECOVER = "recover"
    START = "start"
    STOP = "stop"
    RETRY = "retry"
    BLOCK = "block"
    RELEASE = "release"


TRANSITIONS: Mapping[tuple[Claim, Trigger], Claim] = {
    (Claim.UNCLAIMED, Trigger.START): Claim.RUNNING,
    (Claim.UNCLAIMED, Trigger.RECOVER): Claim.RETRYING,
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


def claim_of(state: State, issue_id: str) -> Claim:
    """The claim on an issue."""
    if run := state.running.get(issue_id):
        return Claim.RUNNING if run.stopping is None else Claim.STOPPING
    if issue_id in state.retrying:
        return Claim.RETRYING
    return Claim.BLOCKED if issue_id in state.blocked else Claim.UNCLAIMED


def _fits(target: Claim, entry: ClaimEntry | None) -> bool:
    match entry:
        case Running():
            return target is (Claim.RUNNING if entry.stopping is None else Claim.STOPPING)
        case Retry():
            return target is Claim.RETRYING
        case Blocked():
            return target is Claim.BLOCKED
        case None:
            return target is Claim.UNCLAIMED
        case _:
            assert_never(entry)


def change_claim(
    state: State, issue_id: str, trigger: Trigger, entry: ClaimEntry | None = None
) -> State | None:
    """The state after the claim changed hands, or null when the table has no such transition."""
    target = TRANSITIONS.get((claim_of(state, issue_id), trigger))
    if target is None or not _fits(target, entry):
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
    return replace(state, running=running, retrying=retrying, blocked=blocked)


# One step in progress: the state being replaced and the commands collected so far.


class Step:
    """Mutable only within one `step`; every change is made on a copy of the state."""

    __slots__ = ("commands", "now_ms", "state")

    def __init__(self, state: State, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.commands: list[Command] = []

    def emit(self, command: Command) -> None:
        """Add a command."""
        self.commands.append(command)

    def update(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def number(self) -> int:
        """The next serial number."""
        self.update(serial=self.state.serial + 1)
        return self.state.serial

    def notify(self, level: str, event: str, issue: Issue | None = None, **fields: Any) -> None:
        """Add a log line."""
        self.emit(
            Notify(
                level=level,
                event=event,
                issue_id=issue.id if issue else None,
                issue_identifier=issue.identifier if issue else None,
                fields=fields,
            )
        )

    def set_timer(self, timer: Timer, due_ms: int) -> None:
        """Arm a timer; an earlier arming of the same one becomes stale."""
        armed = SetTimer(timer=timer, token=self.number(), due_ms=due_ms)
        self.update(timers={**self.state.timers, timer: armed})
        self.emit(armed)

    def clear_timer(self, timer: Timer) -> None:
        """Make a timer stale."""
        if timer in self.state.timers:
            self.update(timers={key: armed for key, armed in self.state.timers.items() if key != timer})

    def await_retry(self, issue_id: str, due_ms: int) -> None:
        """Wake a waiting claim then; on the way out nobody waits any more, as the successor will."""
        if self.state.drain is Drain.NO:
            self.set_timer(Timer(TimerKind.RETRY, issue_id), due_ms)

    def unpark(self, issue_id: str) -> None:
        """The workspace of an issue belongs to its claim again."""
        if issue_id in self.state.idle_workspaces:
            self.update(
                idle_workspaces={
                    key: ref for key, ref in self.state.idle_workspaces.items() if key != issue_id
                }
            )

    def late_ms(self, timer: Timer) -> int:
        """By how much an armed timer is overdue; 0 where it is not."""
        due_ms = self.state.timer_due_ms(timer)
        return 0 if due_ms is None else max(self.now_ms - due_ms, 0)

    def claim(self, issue: Issue, trigger: Trigger, entry: ClaimEntry | None = None) -> bool:
        """Change the claim on an issue by the table; an illegal change is reported and changes nothing."""
        moved = change_claim(self.state, issue.id, trigger, entry)
        if moved is None:
            self.notify("error", "claim_transition_refused", issue, trigger=trigger.value)
            return False
        self.state = moved
        if entry is not None:
            self._reopen(issue.id)
        return True

    def _reopen(self, issue_id: str) -> None:
        """Work that was ready for review is not while its issue is claimed."""
        result = self.state.results.get(issue_id)
        if result is not None and result.status is not ResultStatus.OPEN:
            result = replace(result, status=ResultStatus.OPEN)
            self.update(results={**self.state.results, issue_id: result})

    def set_running(self, run: Running) -> None:
        """Replace a running entry without a change of claim."""
        self.update(running={**self.state.running, run.issue.id: run})

    def set_retry(self, retry: Retry) -> None:
        """Replace a retry entry without a change of claim."""
        self.update(retrying={**self.state.retrying, retry.issue.id: retry})

    def set_blocked(self, blocked: Blocked) -> None:
        """Replace a blocked entry without a change of claim."""
        self.update(blocked={**self.state.blocked, blocked.issue.id: blocked})

    def run_by_id(self, run_id: str) -> Running | None:
        """The live run with this id."""
        return next((run for run in self.state.running.values() if run.run_id == run_id), None)

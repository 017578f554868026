"""What the scheduler exchanges with the daemon: settings and run values, events in, commands out.

The daemon feeds one `Event` at a time to `machine.step` and carries out the `Command`s it returns. A recorded
list of `(now_ms, event)` replays exactly. All times are milliseconds of the daemon's monotonic clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from symphony.domain import (
    NO_COST,
    NO_FACTS,
    NO_TOKENS,
    NO_USAGE,
    BudgetLimits,
    Cost,
    DeliveredBranch,
    Failure,
    Issue,
    Phase,
    RunFacts,
    Spent,
    Tokens,
    Usage,
    Verification,
    normalise_state,
    one_line,
)

# --- settings --------------------------------------------------------------------------------------------

CLUSTER: Final = "ray"
"""The usual name of the host that is a cluster."""


class AgentInfo(Struct, frozen=True, kw_only=True):
    """The settings of one agent that decisions depend on.

    Attributes:
        kind: the backend of the agent.
        section: where its settings are written, for hints: `codex`, `agents.fast`.
        stall_timeout_ms: how long it may be silent; no limit if 0 or less.
        model: the configured model; `None` leaves the choice to the agent.
    """

    kind: str
    section: str
    stall_timeout_ms: int
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueRule:
    """Matches issues that have `label` and are in `state`, both in lower case; `None` matches every issue."""

    label: str | None = None
    state: str | None = None

    def matches(self, issue: Issue) -> bool:
        """Whether the rule is for the issue."""
        return (self.label is None or any(self.label == each.strip().lower() for each in issue.labels)) and (
            self.state is None or self.state == normalise_state(issue.state)
        )

    @property
    def condition(self) -> str:
        """What an issue must have, for people."""
        conditions = {"label": self.label, "state": self.state}
        return " and ".join(f"{key} {value!r}" for key, value in conditions.items() if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRule(IssueRule):
    """One of `agent.rules`: gives matching issues to the agent `use`.

    Without `fallback`, `agent.fallback` applies.
    """

    use: str
    fallback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRule(IssueRule):
    """One of `agent.phases.rules`: the phase of matching issues."""

    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """The part of the workflow's settings that decisions depend on; a reload brings a new one.

    State names are normalised, except `on_start` and similar ones, which are sent to the tracker. `agent` is
    the default agent, and `stall_timeout_ms` applies to agents that are not in `agents`. `phase` is the
    default phase. Without `hosts` runs are carried out on this machine. `cluster` is the host that chooses a
    machine for each run and counts the slots. Without `verify_rounds` finished work is not verified.
    Otherwise the agent gets failures back `verify_rounds` times before a person is asked.
    """

    active_states: frozenset[str]
    terminal_states: frozenset[str]
    budget: BudgetLimits
    required_labels: tuple[str, ...] = ()
    poll_interval_ms: int = 30_000
    max_concurrent_agents: int = 10
    max_concurrent_by_state: Mapping[str, int] = field(default_factory=dict)
    max_turns: int = 20
    max_retry_backoff_ms: int = 300_000
    stall_timeout_ms: int = 300_000
    drain_timeout_ms: int = 30_000
    on_start: str | None = None
    on_block: str | None = None
    on_return: str | None = None
    on_feedback: str | None = None
    comment_on_delivery: bool = True
    agent: str = "codex"
    fallback: str | None = None
    rules: tuple[AgentRule, ...] = ()
    agents: Mapping[str, AgentInfo] = field(default_factory=dict)
    phase: str | None = None
    phase_rules: tuple[PhaseRule, ...] = ()
    hosts: tuple[str, ...] = ()
    max_agents_per_host: int | None = None
    cluster: str | None = CLUSTER
    verify_rounds: int | None = None

    def agent_info(self, agent: str) -> AgentInfo:
        """The settings of an agent; defaults for one that is no longer configured."""
        return self.agents.get(agent) or AgentInfo(
            kind=agent, section=agent, stall_timeout_ms=self.stall_timeout_ms
        )


# --- runs ------------------------------------------------------------------------------------------------


class RunStage(StrEnum):
    """The stage of a run attempt (specification section 7)."""

    PREPARING_WORKSPACE = "preparing_workspace"
    BUILDING_PROMPT = "building_prompt"
    LAUNCHING_AGENT = "launching_agent"
    STREAMING_TURN = "streaming_turn"
    FINISHING = "finishing"
    VERIFYING = "verifying"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What the agent's event stream reported since the run started; counts are totals of the run.

    Attributes:
        pid: the agent's process id, `None` before it exists.
        event_count: rises with every event of the agent; any change proves that the agent is alive.
        tool_calls: calls of tracker tools that began in the current turn.
        last_event: the specification's name of the newest event (section 10.4).
        last_message: the newest event that says something, in one short line for display.
        last_words: the newest message of the agent to people, in one short line; `None` before the first.
        rate_limits: the newest payload, as the vendor sent it.
    """

    stage: RunStage
    facts: RunFacts = NO_FACTS
    pid: int | None = None
    event_count: int = 0
    tool_calls: int = 0
    last_event: str | None = None
    last_message: str | None = None
    last_words: str | None = None
    rate_limits: Mapping[str, Any] | None = None


class Thread(Struct, frozen=True, kw_only=True):
    """An agent's conversation that a later run can continue.

    Attributes:
        agent: the agent that owns the conversation; no other agent can continue it.
        tokens: the totals of the thread since its beginning. After a resume only tokens above them are new.
        begun: whether a turn of it is known to have begun; if not, the agent may not know its task.
    """

    thread_id: str
    agent: str = "codex"
    tokens: Tokens = NO_TOKENS
    begun: bool = True


class ResumeReason(StrEnum):
    """Why a run continues an earlier one."""

    INTERRUPTED = "interrupted"
    ANSWERED = "answered"
    FEEDBACK = "feedback"
    VERIFY = "verify"
    VERIFY_FAILED = "verify_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """How the next run of an issue continues instead of starting from nothing.

    Without a `thread` the run starts a new conversation. Its first prompt carries the `answer`: a person's
    answer, the text of the feedback, or the evidence of a failed verification. A run that only verifies
    (`VERIFY`) has no session.

    Attributes:
        after_handoff: the work was handed off already. The run may begin and finish its turn although the
            issue is in no active state. It gets another turn only in an active state.
        answered_by: who wrote the answer, for people.
        approves: whether the answer approves the request for approval that was open; `None` if it is text.
        request: the key of the request for approval that a person has not decided.
        decisions: by key, whether a person approved a request of this conversation.
        handed_over_to: the normalised state in which a run left the issue. Runs may go on in that state, even
            if it is not active, until the work is verified or the daemon has moved the issue back.
        back_to: the state in which the issue was worked on. A failed verification moves the issue back to it.
        by_hand: a person asked for this verification. Its result is shown and has no other effect.
    """

    reason: ResumeReason
    thread: Thread | None = None
    question: str | None = None
    answer: str | None = None
    after_handoff: bool = False
    answered_by: str | None = None
    approves: bool | None = None
    request: str | None = None
    decisions: Mapping[str, bool] = field(default_factory=dict)
    handed_over_to: str | None = None
    back_to: str | None = None
    by_hand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What all ended runs used, including the runs of earlier daemons.

    Attributes:
        sessions: runs with a session of an agent.
        issues: issues with such a run.
        running_ms: agent time.
    """

    usage: Usage = NO_USAGE
    sessions: int = 0
    issues: int = 0
    running_ms: int = 0


class OutcomeKind(StrEnum):
    """How a run attempt ended.

    `NO_PROGRESS` is a run that completed without a commit, a changed file or a change at the tracker.
    """

    SUCCEEDED = "succeeded"
    NO_PROGRESS = "no_progress"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INPUT_REQUIRED = "input_required"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a run.

    Attributes:
        progress: whether the run left a new commit or a changed tree. `None` means unknown, which counts as
            no progress only if no agent was launched.
        question: what the agent asked a person, in its own words.
        request: the key of the request for approval that ended the run. A repeated request has the same key.
        delivered: `None` if the branch has no commit of its own.
        commented: whether the agent commented on the issue with a tracker tool.
        summary: the agent's last message on one line.
        left: work in the workspace that is on no branch, and the command that shows it, in one line.
        verification: the result of the checks of the delivered head; `None` if they were not requested or did
            not finish.
    """

    kind: OutcomeKind
    failure: Failure | None = None
    progress: bool | None = None
    question: str | None = None
    request: str | None = None
    delivered: DeliveredBranch | None = None
    commented: bool = False
    summary: str | None = None
    left: str | None = None
    verification: Verification | None = None

    @property
    def clean(self) -> bool:
        """Whether the run completed on its own."""
        return self.kind in {OutcomeKind.SUCCEEDED, OutcomeKind.NO_PROGRESS}


class ResultStatus(StrEnum):
    """The state of the work on an issue.

    `OPEN` while the issue is claimed or in an active state, `READY` for review once it has left them, `ENDED`
    in a terminal state. `GONE` means that the tracker no longer has the issue.
    """

    OPEN = "open"
    READY = "ready"
    ENDED = "ended"
    GONE = "gone"


class PullBlock(Struct, frozen=True, kw_only=True):
    """Why the pull request of an issue needs a person.

    Attributes:
        key: identifies the occasion. A block that a person lifted stays lifted until another occasion.
    """

    key: str
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueResult:
    """What the runs of an issue produced.

    Attributes:
        issue: its latest snapshot, without the description.
        ended_ms: end of its last run; negative if that was before the clock's zero.
        delivered: the latest delivery, or `None` if no run has delivered.
        commented: whether the agent commented on the issue in the run that delivered.
        left: as in the `Outcome` of its last run.
        summary: the agent's last message in the last run.
        turns: the total of all runs; `usage` is a total too.
        pushing_since_ms: since when `delivered` is being pushed; `None` after an attempt.
        thread: the conversation of the last run that had one.
        feedback: the key of the last `FeedbackGiven` that was taken.
        restarts: how often work on the issue began again for another reason than feedback.
        pull_block: why no run of the issue starts even if its state is active.
        lifted: the key of a `pull_block` that a person lifted.
        verification: the last verification of the head of `delivered`; `None` if there is none.
        verify_rounds: how often in a row its work was sent back because a verification failed.
        not_reviewed: how often in a row its reviewer gave no verdict.
    """

    issue: Issue
    status: ResultStatus = ResultStatus.OPEN
    ended_ms: int = 0
    delivered: DeliveredBranch | None = None
    commented: bool = False
    left: str | None = None
    summary: str | None = None
    turns: int = 0
    usage: Usage = NO_USAGE
    pushing_since_ms: int | None = None
    thread: Thread | None = None
    feedback: str | None = None
    restarts: int = 0
    pull_block: PullBlock | None = None
    lifted: str | None = None
    verification: Verification | None = None
    verify_rounds: int = 0
    not_reviewed: int = 0


# --- recovery --------------------------------------------------------------------------------------------


class WorkspaceRef(Struct, frozen=True, kw_only=True):
    """A workspace on disk."""

    issue_id: str
    identifier: str
    path: str


class RemoteWorkspace(Struct, frozen=True, kw_only=True):
    """The host that has the workspace of an issue, and the identifier that the issue had when it was made."""

    identifier: str
    host: str


class ClaimKind(StrEnum):
    """The kind of claim that a previous daemon held."""

    RUNNING = "running"
    RETRYING = "retrying"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredClaim:
    """A claim that a previous daemon left, once none of its processes is alive any more.

    Attributes:
        run_id: the live run, or the run that was blocked.
        due_ms: when a retry is due, on the clock of the daemon that takes it over.
        since_ms: since when the issue is blocked, on that clock; may be negative.
        attempts_without_progress: see `state.Retry`, as for `failures`, `non_retryable`, `cause` and `runs`.
        failure: see `state.Blocked`, as for `question` and `has_baseline`. For a live run it says that an
            operator was stopping it.
    """

    issue: Issue
    kind: ClaimKind
    run_id: str | None = None
    attempt: int | None = None
    due_ms: int = 0
    since_ms: int = 0
    error: str | None = None
    attempts_without_progress: int = 0
    failures: int = 0
    non_retryable: bool = False
    cause: str | None = None
    workspace_path: str | None = None
    resume: Resume | None = None
    failure: Failure | None = None
    question: str | None = None
    has_baseline: bool = False
    runs: int = 0


# --- timers ----------------------------------------------------------------------------------------------


class TimerKind(StrEnum):
    """What a timer is for."""

    POLL = "poll"
    RETRY = "retry"
    STALL = "stall"
    GRACE = "grace"
    DRAIN = "drain"
    TRACKER_PAUSE = "tracker_pause"
    LIMIT = "limit"
    HOST = "host"


class Timer(Struct, frozen=True):
    """The identity of a timer: setting it again replaces it. `id` is an issue, a run, an agent or a host."""

    kind: TimerKind
    id: str = ""


class Refusal(Struct, frozen=True, kw_only=True):
    """Why an action of a person is not possible; `code` is stable, `message` and `hint` are for people."""

    code: str
    message: str
    hint: str | None = None


# --- events ----------------------------------------------------------------------------------------------


class Recovered(Struct, frozen=True, kw_only=True):
    """The first event: what a previous daemon left. Everything but the workspaces comes from the journal.

    `day_tokens` were used on `day`, which is today, and cost `day_cost`. `known_issues` have had a session.
    `remote_workspaces` are the workspaces on hosts, by issue id. `results` include work that this start
    delivered for interrupted runs.
    """

    workspaces: tuple[WorkspaceRef, ...] = ()
    claims: tuple[StoredClaim, ...] = ()
    results: tuple[IssueResult, ...] = ()
    spent: Mapping[str, Spent] = msgspec.field(default_factory=dict)
    day: str | None = None
    day_tokens: int = 0
    day_cost: Cost = NO_COST
    totals: Totals = msgspec.field(default_factory=Totals)
    known_issues: frozenset[str] = frozenset()
    budget_waivers: frozenset[str] = frozenset()
    paused: bool = False
    remote_workspaces: Mapping[str, RemoteWorkspace] = msgspec.field(default_factory=dict)


class SettingsChanged(Struct, frozen=True, kw_only=True):
    """A valid workflow was loaded."""

    settings: SchedulerSettings


class WorkflowRejected(Struct, frozen=True, kw_only=True):
    """The workflow file became invalid: no run starts until it is repaired."""

    failure: Failure


class WakeAsked(Struct, frozen=True, kw_only=True):
    """Something may have changed at the tracker, or an operator asked for a refresh."""

    reason: str
    by_operator: bool = False


class Polled(Struct, frozen=True, kw_only=True):
    """Answer to `FetchCandidates`: all issues in active states.

    `skipped_records` has one failure for each malformed record that the tracker adapter left out.
    """

    request: int
    issues: tuple[Issue, ...]
    skipped_records: tuple[Failure, ...] = ()


class PollFailed(Struct, frozen=True, kw_only=True):
    """Answer to `FetchCandidates`: the poll failed as a whole."""

    request: int
    failure: Failure


class Refreshed(Struct, frozen=True, kw_only=True):
    """Answer to `RefreshIssues`: current snapshots. A requested id that is absent no longer exists."""

    request: int
    issues: tuple[Issue, ...]


class RefreshFailed(Struct, frozen=True, kw_only=True):
    """Answer to `RefreshIssues`: it failed as a whole. `culprits` are the ids that caused it, if known."""

    request: int
    failure: Failure
    culprits: frozenset[str] = frozenset()


class RunPlaced(Struct, frozen=True, kw_only=True):
    """The cluster chose a machine for a run."""

    run_id: str
    host: str


class AgentReported(Struct, frozen=True, kw_only=True):
    """The agent's event stream moved on."""

    run_id: str
    report: RunReport


class TurnEnded(Struct, frozen=True, kw_only=True):
    """A turn completed, and the worker waits for `ContinueRun` or `FinishRun`.

    `trace` says whether the turn left a commit, a changed file or a change at the tracker; `None` is unknown.
    `changed` are the paths that the work of the issue changes so far; empty if the paths are unknown or too
    many.
    """

    run_id: str
    turn: int
    trace: bool | None = None
    changed: tuple[str, ...] = ()


class RunEnded(Struct, frozen=True, kw_only=True):
    """The worker and its processes are gone. Every `StartRun` is answered by exactly one of these."""

    run_id: str
    outcome: Outcome


class Pushed(Struct, frozen=True, kw_only=True):
    """Answer to `PushBranch`.

    Without a `failure` the remote has `head`, and without a `branch_failure` the repository of
    `workspace.repo` has it.
    """

    issue_id: str
    head: str
    failure: Failure | None = None
    branch_failure: Failure | None = None


class BranchDelivered(Struct, frozen=True, kw_only=True):
    """The removal of a workspace delivered a branch that has not reached its repositories."""

    issue_id: str
    identifier: str
    delivered: DeliveredBranch


class FeedbackGiven(Struct, frozen=True, kw_only=True):
    """The pull request of an issue has news for its agent.

    The scheduler takes it if the issue has a result and no claim, and only once for each `key`.
    `IssueResult.feedback` shows whether it was taken; until then it may be given again.

    Attributes:
        key: names the feedback.
        summary: one line for the log.
        text: the feedback for the agent. The daemon limits its length and fences text by others.
    """

    issue_id: str
    key: str
    summary: str
    text: str


class PullRequestJudged(Struct, frozen=True, kw_only=True):
    """The pull request of an issue needs a person. If `block` is `None`, it no longer needs one."""

    issue_id: str
    block: PullBlock | None = None


class TimerFired(Struct, frozen=True, kw_only=True):
    """A timer came due. It is stale if `token` is not the newest of the timer."""

    timer: Timer
    token: int


class OperatorAction(StrEnum):
    """What an operator can ask for."""

    STOP = "stop"
    RETRY = "retry"
    UNBLOCK = "unblock"
    ANSWER = "answer"
    APPROVE = "approve"
    DENY = "deny"
    VERIFY = "verify"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"


class OperatorAsked(Struct, frozen=True, kw_only=True):
    """An operator asks for an action on one issue, or on the daemon if `issue_id` is `None`.

    `text` is the answer to a question, and `by` names who answers or decides. An action that
    `operator.refusal` refuses changes nothing.
    """

    action: OperatorAction
    issue_id: str | None = None
    text: str | None = None
    by: str = "an operator"


class IssueComment(Struct, frozen=True, kw_only=True):
    """A person's comment on an issue. Author and text are untrusted; the daemon bounds their length."""

    id: str
    author: str
    text: str


class AnswersRead(Struct, frozen=True, kw_only=True):
    """Answer to `ReadAnswers`: the comments on an issue since its question, oldest first.

    `answers` are by people who may answer. `unauthorized` are the newest comments by other people, each cut
    to its first line.
    """

    issue_id: str
    question: str
    answers: tuple[IssueComment, ...] = ()
    unauthorized: tuple[IssueComment, ...] = ()


class AnswersReadFailed(Struct, frozen=True, kw_only=True):
    """Answer to `ReadAnswers`: the comments could not be read."""

    issue_id: str
    question: str
    failure: Failure


class DayBegan(Struct, frozen=True, kw_only=True):
    """A day (`YYYY-MM-DD`, UTC) began, and with it a new daily budget. An earlier day resets nothing."""

    day: str


class DrainAsked(Struct, frozen=True, kw_only=True):
    """Finish what is running, start nothing new, then exit."""


class StopAsked(Struct, frozen=True, kw_only=True):
    """End everything now and exit."""


Event = (
    Recovered
    | SettingsChanged
    | WorkflowRejected
    | WakeAsked
    | Polled
    | PollFailed
    | Refreshed
    | RefreshFailed
    | RunPlaced
    | AgentReported
    | TurnEnded
    | RunEnded
    | Pushed
    | BranchDelivered
    | FeedbackGiven
    | PullRequestJudged
    | TimerFired
    | OperatorAsked
    | AnswersRead
    | AnswersReadFailed
    | DayBegan
    | DrainAsked
    | StopAsked
)

# --- commands --------------------------------------------------------------------------------------------


class FinishReason(StrEnum):
    """Why a run gets no further turn."""

    INACTIVE = "inactive"
    MAX_TURNS = "max_turns"
    DRAINING = "draining"
    REFRESH_FAILED = "refresh_failed"
    BUDGET = "budget"
    NO_PROGRESS = "no_progress"

    @property
    def words(self) -> str:
        """The same for people, as a part of a sentence."""
        return _END_WORDS[self.value]


class StopReason(StrEnum):
    """Why a run is stopped in the middle of a turn."""

    TERMINAL = "terminal"
    INACTIVE = "inactive"
    UNROUTABLE = "unroutable"
    MISSING = "missing"
    STALLED = "stalled"
    DRAINING = "draining"
    BUDGET = "budget"
    OPERATOR = "operator"

    @property
    def words(self) -> str:
        """The same for people, as a part of a sentence."""
        return _END_WORDS[self.value]


_END_WORDS: Final = {
    "terminal": "the issue is closed",
    "inactive": "the issue has left the active states",
    "unroutable": "the issue may not be worked on any more",
    "missing": "the tracker does not find the issue any more",
    "stalled": "the agent was silent for too long",
    "max_turns": "it had as many turns as agent.max_turns allows",
    "draining": "the daemon ends",
    "refresh_failed": "the tracker did not answer",
    "budget": "a budget is used up",
    "no_progress": "its turns left nothing behind",
    "operator": "a person stopped it",
}


class FetchCandidates(Struct, frozen=True, kw_only=True):
    """Fetch all issues in active states; answered by `Polled` or `PollFailed`."""

    request: int


class RefreshIssues(Struct, frozen=True, kw_only=True):
    """Fetch these issues by id in one request; answered by `Refreshed` or `RefreshFailed`."""

    request: int
    ids: frozenset[str]


class StartRun(Struct, frozen=True, kw_only=True):
    """Start a run attempt; `attempt` is `None` for the first one, and `phase` is `None` without phases.

    `host` is where the run is carried out; `None` is this machine. `last_host` may have the workspace of an
    earlier attempt, made when the issue had the identifier `last_identifier`.
    """

    run_id: str
    issue: Issue
    attempt: int | None
    resume: Resume | None = None
    agent: str = "codex"
    phase: Phase | None = None
    host: str | None = None
    last_host: str | None = None
    last_identifier: str | None = None


class Overlap(Struct, frozen=True, kw_only=True):
    """Another running issue whose work changes the same files: its identifier, and their paths."""

    identifier: str
    paths: tuple[str, ...]


class ContinueRun(Struct, frozen=True, kw_only=True):
    """Run one more turn on the same thread; the phase may have changed.

    `overlaps` are new overlaps with runs that began earlier.
    """

    run_id: str
    issue: Issue
    turn: int
    phase: Phase | None = None
    overlaps: tuple[Overlap, ...] = ()


class FinishRun(Struct, frozen=True, kw_only=True):
    """Stop the agent between turns, deliver the work and end; with a `failure`, end as failed.

    With `verify` the worker verifies the delivered work.
    """

    run_id: str
    reason: FinishReason
    failure: Failure | None = None
    verify: bool = False


class StopRun(Struct, frozen=True, kw_only=True):
    """Cancel the run in the middle of a turn; its slot is free only once its `RunEnded` arrives.

    With `verify` the worker verifies the delivered work; without it, a verification in progress is cancelled
    too.
    """

    run_id: str
    reason: StopReason
    verify: bool = False


class SetTimer(Struct, frozen=True, kw_only=True):
    """Post `TimerFired(timer, token)` at `due_ms`, replacing an earlier arming of the timer."""

    timer: Timer
    token: int
    due_ms: int


class CleanWorkspace(Struct, frozen=True, kw_only=True):
    """Remove the workspace of an ended issue; `path` is the recorded path, or `None` to derive it.

    `host` is where the workspace is; `None` is this machine.
    """

    issue_id: str
    identifier: str
    path: str | None
    host: str | None = None


class PostComment(Struct, frozen=True, kw_only=True):
    """Post one comment on the issue, or edit the existing one of the same kind and `occasion`.

    Each question is a separate occasion, so people are notified of it and answer below it.
    """

    issue: Issue
    kind: str
    body: str
    occasion: str = ""


class ReadAnswers(Struct, frozen=True, kw_only=True):
    """Read the comments since a question; answered by `AnswersRead` or `AnswersReadFailed`.

    `comment` is the comment with the question; it is posted if it is missing. `question` identifies the
    question.
    """

    question: str
    comment: PostComment


class PushBranch(Struct, frozen=True, kw_only=True):
    """Push a delivered branch whose tip is `head` to its repositories; `Pushed` answers each attempt."""

    issue: Issue
    branch: str
    head: str


class MoveReason(StrEnum):
    """Why the daemon moves an issue to another state."""

    START = "start"
    BLOCK = "block"
    BACK = "back"
    VERIFY_FAILED = "verify_failed"


class MoveIssue(Struct, frozen=True, kw_only=True):
    """Move an issue to another state in the background; a later refresh shows whether it happened.

    The move happens only while the issue is in one of the normalised states `only_from`, so that a change by
    a person or the agent is kept.
    """

    issue: Issue
    state: str
    reason: MoveReason
    only_from: frozenset[str]


class Notify(Struct, frozen=True, kw_only=True):
    """Write one log line; the API and the terminal show the same text."""

    level: str
    event: str
    issue_id: str | None = None
    issue_identifier: str | None = None
    fields: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Exit(Struct, frozen=True, kw_only=True):
    """Draining is over and nothing runs: the daemon may end."""


Command = (
    FetchCandidates
    | RefreshIssues
    | StartRun
    | ContinueRun
    | FinishRun
    | StopRun
    | SetTimer
    | CleanWorkspace
    | PostComment
    | PushBranch
    | ReadAnswers
    | MoveIssue
    | Notify
    | Exit
)

NOT_IN_HISTORY: Final = frozenset({"dispatch_skipped", "block_settled"})
"""Log events that say nothing about what happened to an issue."""


def log_text(notice: Notify) -> str:
    """A log event as one line of an issue's history: its reason, or else all of its fields."""
    fields = notice.fields
    attempt = f"attempt {fields.get('attempt_number')} of {fields.get('attempt_limit')}"
    if notice.event == "run_started":
        where = f", on {fields['host']}" if fields.get("host") else ""
        return one_line(f"{attempt}{where}, by {fields.get('agent')}: {fields.get('agent_reason')}")
    if notice.event == "run_retrying":
        return one_line(f"{attempt} after: {fields.get('reason')}")
    if reason := fields.get("reason"):
        return one_line(_END_WORDS.get(str(reason), str(reason)))
    told = (f"{name.replace('_', ' ')} {value}" for name, value in fields.items() if value is not None)
    return one_line(", ".join(told))

"""Facts that reach the scheduler; a recorded list of `(now_ms, input)` replays exactly (DESIGN 4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from symphony.domain import Failure, Issue, one_line

# The part of the workflow's settings that decisions depend on; a reload brings a new one (DESIGN 4).


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """What is known of one agent.

    Attributes:
        kind: which backend it has.
        section: where its settings are written, for hints: `codex`, `agents.fast`.
        stall_timeout_ms: how long it may be silent; 0 or less is for ever.
        model: as it is configured; null leaves it to the agent.
    """

    kind: str
    section: str
    stall_timeout_ms: int
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentRule:
    """One of `agent.rules`: label and state are lower-cased, and all that are not null must hold."""

    use: str
    label: str | None = None
    state: str | None = None
    fallback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """The settings that decisions depend on. State names are normalised (DM7), but for `on_…` (see `moves`).

    Durations are in ms; budgets are in tokens and turns, and null means without limit. `agent` is the
    default, and `stall_timeout_ms` that of agents which `agents` does not tell of. `comment_on_delivery` says
    whether an issue gets a comment when its work is ready for review.
    """

    active_states: frozenset[str]
    terminal_states: frozenset[str]
    required_labels: tuple[str, ...] = ()
    poll_interval_ms: int = 30_000
    max_concurrent_agents: int = 10
    max_concurrent_by_state: Mapping[str, int] = field(default_factory=dict)
    max_turns: int = 20
    max_retry_backoff_ms: int = 300_000
    stall_timeout_ms: int = 300_000
    max_attempts_without_progress: int = 3
    max_turns_without_progress: int | None = 2
    drain_timeout_ms: int = 30_000
    max_tokens_per_issue: int | None = None
    max_tokens_per_day: int | None = None
    max_turns_per_issue: int | None = None
    on_start: str | None = None
    on_block: str | None = None
    on_return: str | None = None
    comment_on_delivery: bool = True
    agent: str = "codex"
    fallback: str | None = None
    rules: tuple[AssignmentRule, ...] = ()
    agents: Mapping[str, AgentInfo] = field(default_factory=dict)

    def agent_info(self, agent: str) -> AgentInfo:
        """What is told of an agent; of one that is named no more, what its name alone says."""
        return self.agents.get(agent) or AgentInfo(
            kind=agent, section=agent, stall_timeout_ms=self.stall_timeout_ms
        )


class RunStage(StrEnum):
    """Where a run attempt is (SM2)."""

    PREPARING_WORKSPACE = "preparing_workspace"
    BUILDING_PROMPT = "building_prompt"
    LAUNCHING_AGENT = "launching_agent"
    STREAMING_TURN = "streaming_turn"
    FINISHING = "finishing"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What the pump folded from the agent's stream since the run began; counts are totals of the run.

    `signs` counts signs of life: it rises with every line the agent wrote, and only its change matters.
    `tool_calls` counts the calls of tracker tools that began in the present turn.
    """

    stage: RunStage
    workspace_path: str | None = None
    branch: str | None = None
    session_id: str | None = None
    thread_id: str | None = None
    pid: int | None = None
    turn_count: int = 0
    event_count: int = 0
    tool_calls: int = 0
    last_event: str | None = None
    last_message: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    rate_limits: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """An agent's conversation that a later run can go on with.

    The counts are the thread's own totals since its beginning: the high-water mark below which nothing is
    counted again after a resume (TK4). `agent` is the one that it belongs to, by name: no other knows it.
    `begun` says that a turn of it is known to have begun; where not, nobody knows whether the agent was told
    of its task.
    """

    thread_id: str
    agent: str = "codex"
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    begun: bool = True


class ResumeReason(StrEnum):
    """Why a run goes on with what an earlier one began."""

    INTERRUPTED = "interrupted"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """How the next run of an issue goes on instead of starting cold.

    `thread` is null where there is none to go on with: then the run starts cold, and `answer` travels in its
    first prompt. `question` is what the agent had asked, `answer` what a person said to it.
    """

    reason: ResumeReason
    thread: Thread | None = None
    question: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What an issue has used up of its budget since it was first started, or last unblocked."""

    tokens: int = 0
    turns: int = 0


class OutcomeKind(StrEnum):
    """How a run attempt ended, as the worker saw it.

    `NO_PROGRESS` is a run that came to its end and left nothing: no commit, no changed file, and no change at
    the tracker through a tool of ours.
    """

    SUCCEEDED = "succeeded"
    NO_PROGRESS = "no_progress"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INPUT_REQUIRED = "input_required"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredBranch:
    """The branch that a run delivered; all counts compare `head` with the commit on which the branch began.

    `pushed` says whether the remote `origin` has `head`. `push_failure` says why it does not although
    `workspace.push` asks for it.
    """

    branch: str
    head: str
    commits: int = 0
    files_changed: int = 0
    insertions: int = 0
    deletions: int = 0
    pushed: bool = False
    push_failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a run: `progress` says whether it left a new commit or a changed tree.

    `progress` is `None` where that is unknown, which counts against the issue only if no agent was launched.
    `question` is what the agent asked of a person, in its own words. `delivered` is `None` where the run left
    no branch with a commit of its own. `commented` says whether the agent wrote a comment by a tool of ours,
    `summary` is the last thing that it said, on one line, `cost_usd` what it said that its turns cost; both
    are `None` where it said nothing.
    """

    kind: OutcomeKind
    failure: Failure | None = None
    progress: bool | None = None
    commits: int = 0
    question: str | None = None
    delivered: DeliveredBranch | None = None
    commented: bool = False
    summary: str | None = None
    cost_usd: float | None = None

    @property
    def clean(self) -> bool:
        """Whether the run came to its end by itself."""
        return self.kind in {OutcomeKind.SUCCEEDED, OutcomeKind.NO_PROGRESS}


class ResultStatus(StrEnum):
    """Where the work on an issue stands that some run has delivered."""

    OPEN = "open"
    READY = "ready"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueResult:
    """What the runs of an issue came to.

    Attributes:
        issue: as it was seen last, without its description.
        status: `OPEN` while it is claimed or in an active state; `READY` for review once it has left them;
            `ENDED` in a terminal state; `GONE` from the tracker, which is remembered for a push that failed.
        ended_ms: when its last run ended; negative if that was before the clock's zero.
        delivered: by the last run that delivered anything; `None` where none did so far.
        commented: whether the agent commented on the issue in that run.
        summary: the last words of the last run, one line.
        cost_usd: what the agents said that the runs cost, `None` where no agent said it.
        pushes: how many pushes of `delivered` failed in a row.
        pushing: whether one is under way.
    """

    issue: Issue
    status: ResultStatus = ResultStatus.OPEN
    ended_ms: int = 0
    delivered: DeliveredBranch | None = None
    commented: bool = False
    summary: str | None = None
    turns: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None
    pushes: int = 0
    pushing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRef:
    """A workspace that exists on disk for an issue nobody works on."""

    issue_id: str
    identifier: str
    path: str


class ClaimKind(StrEnum):
    """Which kind of claim a predecessor held."""

    RUNNING = "running"
    RETRYING = "retrying"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredClaim:
    """A claim that the journal remembers; none of its processes is alive any more.

    `run_id` is of a block: the run that was blocked. `due_ms`, and `since_ms` (of a block; may be negative),
    are of the present monotonic clock, and bounded. `idle_attempts`, `failures`, `hopeless` and `runs` are as
    in `state.Retry`; `failure`, `question` and `settled` are only of a blocked one.
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
    workspace_path: str | None = None
    resume: Resume | None = None
    failure: Failure | None = None
    question: str | None = None
    has_baseline: bool = False
    runs: int = 0


class TimerKind(StrEnum):
    """What a timer is for."""

    POLL = "poll"
    RETRY = "retry"
    STALL = "stall"
    GRACE = "grace"
    DRAIN = "drain"
    TRACKER_PAUSE = "tracker_pause"
    LIMIT = "limit"
    PUSH = "push"


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer's identity: setting the same one again replaces it. `id` is of an issue or run, or an agent."""

    kind: TimerKind
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The first input: what a predecessor left on disk. Starts the first cycle (SC1, SC2).

    All but the workspaces comes from the journal and may be missing. `day_tokens` were used of `day`, today.
    """

    workspaces: tuple[WorkspaceRef, ...] = ()
    claims: tuple[RecoveredClaim, ...] = ()
    results: tuple[IssueResult, ...] = ()
    spent: Mapping[str, Spent] = field(default_factory=dict)
    day: str | None = None
    day_tokens: int = 0
    budget_waivers: frozenset[str] = frozenset()
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged:
    """A valid workflow was loaded; it also ends the hold of an invalid one (CF8)."""

    settings: SchedulerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRejected:
    """The workflow file became invalid: nothing new is dispatched until it is mended (WF9, CF7)."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAsked:
    """Something may have changed at the tracker, or an operator asked for a refresh (SC15).

    An operator's wake ends the wait after failures, unless the tracker itself asked to be left alone.
    """

    reason: str
    by_operator: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """All issues in active states, as answered to `FetchCandidates`.

    `skipped` are the records that the tracker left out because they are malformed, one failure each.
    """

    request: int
    issues: tuple[Issue, ...]
    skipped_records: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PollFailed:
    """The poll failed as a whole; nothing is dispatched this tick (SC14)."""

    request: int
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """Current snapshots for `RefreshIssues`; an id that was asked for and is absent is gone."""

    request: int
    issues: tuple[Issue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshFailed:
    """The refresh failed as a whole; `culprits` are the ids to blame where the adapter knows them."""

    request: int
    failure: Failure
    culprits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReported:
    """The run's pump folded some more of the stream."""

    run_id: str
    report: RunReport


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """A turn completed and the worker waits for `ContinueRun` or `FinishRun`.

    `trace` says whether the turn left a commit, a changed file, or a change at the tracker through a tool of
    ours. It is `None` where that is unknown, which neither counts against the run nor for it.
    """

    run_id: str
    turn: int
    trace: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The worker is gone, its processes too. Every `StartRun` is answered by exactly one of these."""

    run_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """The answer to `PushBranch`; `failure` is `None` where the remote has `head` now."""

    issue_id: str
    head: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer came due. A token that is not the timer's newest is stale and does nothing (RT1, SC4)."""

    timer: Timer
    token: int


class OperatorAction(StrEnum):
    """What an operator may ask for (DESIGN 11a)."""

    STOP = "stop"
    RETRY = "retry"
    UNBLOCK = "unblock"
    ANSWER = "answer"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAsked:
    """An operator's verb; `issue_id` is null for the daemon's own, `text` is the answer to a question.

    One that does not fit the present state (`verbs.refusal`) changes nothing.
    """

    action: OperatorAction
    issue_id: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueComment:
    """A comment of a person on an issue; author and text are words of others, which the runtime bounds."""

    id: str
    author: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersRead:
    """What was written on an issue since its question, oldest first: the answer to `ReadAnswers`.

    `answers` are of people whose words count. `others` are of people whose words do not; of these only the
    newest are told, each by its first line.
    """

    issue_id: str
    question: str
    answers: tuple[IssueComment, ...] = ()
    unauthorized: tuple[IssueComment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersReadFailed:
    """The comments of an issue that waits for an answer could not be read."""

    issue_id: str
    question: str
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBegan:
    """A day (`YYYY-MM-DD`, UTC) began: the daily budget counts anew. An earlier one gives nothing back."""

    day: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAsked:
    """Finish what runs, start nothing, then exit (SC16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
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
    | AgentReported
    | TurnEnded
    | RunEnded
    | Pushed
    | TimerFired
    | OperatorAsked
    | AnswersRead
    | AnswersReadFailed
    | DayBegan
    | DrainAsked
    | StopAsked
)


# Intentions of the scheduler; the runtime carries each one out and answers with inputs (DESIGN 4).


class FinishReason(StrEnum):
    """Why a run gets no further turn (AG8)."""

    INACTIVE = "inactive"
    MAX_TURNS = "max_turns"
    DRAINING = "draining"
    REFRESH_FAILED = "refresh_failed"
    BUDGET = "budget"
    NO_PROGRESS = "no_progress"


class StopReason(StrEnum):
    """Why a run is stopped in mid-turn (SC11-SC13, SC16)."""

    TERMINAL = "terminal"
    INACTIVE = "inactive"
    UNROUTABLE = "unroutable"
    MISSING = "missing"
    STALLED = "stalled"
    DRAINING = "draining"
    BUDGET = "budget"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCandidates:
    """Fetch all issues in active states; answered by `Polled` or `PollFailed`."""

    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshIssues:
    """Fetch these issues by id in one request; answered by `Refreshed` or `RefreshFailed`."""

    request: int
    ids: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun:
    """Start a run attempt by an agent; `attempt` is null for the first (PR3); no `resume`: it starts cold."""

    run_id: str
    issue: Issue
    attempt: int | None
    resume: Resume | None = None
    agent: str = "codex"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueRun:
    """Run one more turn on the same thread."""

    run_id: str
    issue: Issue
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRun:
    """No further turn: stop the agent, deliver the work and end. With `failure`, end as failed."""

    run_id: str
    reason: FinishReason
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """Cancel the run in mid-turn; frees nothing until its `RunEnded` arrives."""

    run_id: str
    reason: StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Fire `TimerFired(timer, token)` at `due_ms` of the monotonic clock, replacing the timer's last one."""

    timer: Timer
    token: int
    due_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanWorkspace:
    """Remove an ended issue's workspace; `path` is the recorded one, null derives it (WS13)."""

    issue_id: str
    identifier: str
    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostComment:
    """Put one comment of ours on the issue, edited in place when it changes (TR11).

    There is one per issue and kind, and one more for each `occasion`: a question gets a comment of its own,
    so that people are notified of it and what stands below it is what they say to it.
    """

    issue: Issue
    kind: str
    body: str
    occasion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswers:
    """Read what people wrote on an issue since its question; answered by `AnswersRead` or `AnswersUnread`.

    `note` is the comment that asks; it is posted where it is missing. `question` names the question.
    """

    question: str
    comment: PostComment


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBranch:
    """Push a delivered branch, whose tip is `head`, once more; answered by `Pushed`."""

    issue_id: str
    branch: str
    head: str


class MoveReason(StrEnum):
    """Why the daemon moves an issue to another state."""

    START = "start"
    BLOCK = "block"
    BACK = "back"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveIssue:
    """Give an issue another state, beside the work; a later look tells whether it happened.

    It is done only where the issue is still in one of the states `only_from` (normalised): what a person or
    the agent did meanwhile stands.
    """

    issue: Issue
    state: str
    reason: MoveReason
    only_from: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """One log line; the same words are shown on every surface."""

    level: str
    event: str
    issue_id: str | None = None
    issue_identifier: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
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


# How a log line of the scheduler reads where people look back: one way for memory, journal and documents.


NOT_IN_HISTORY: Final = frozenset({"dispatch_skipped", "block_settled"})
"""Events that say nothing about what happened to an issue."""


def log_text(notice: Notify) -> str:
    """The reason, or else the other facts of a log line, on one line; attempts as people count them."""
    told = notice.fields
    attempt = f"attempt {told.get('attempt_number')} of {told.get('attempt_limit')}"
    match notice.event:
        case "run_started":
            return one_line(f"{attempt}, by {told.get('agent')}: {told.get('agent_reason')}")
        case "run_retrying":
            return one_line(f"{attempt} after: {told.get('reason')}")
        case _:
            pass
    if reason := notice.fields.get("reason"):
        return one_line(str(reason))
    facts = ((name, value) for name, value in notice.fields.items() if value is not None)
    return one_line(" ".join(f"{name}={value}" for name, value in facts))

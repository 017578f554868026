"""The documents of API v1: one type for each, from which JSON, JSON Schema and OpenAPI are made.

`documents` makes them, the API sends them, and the command line reads them. Docstrings and `_is` become the
descriptions in the schemas.

Within v1, fields are added, never removed or retyped. An added field has a default, so that answers of
earlier daemons can be read. Readers ignore unknown fields. A field is always sent, with null for no value,
unless its type has `UnsetType`. Times are in UTC, ISO 8601, to the second. Texts come from trackers and
agents, so `observability.redaction.masked` masks secrets in them before a document is sent.
"""

from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal, Self

from msgspec import UNSET, Meta, Struct, UnsetType

from symphony.domain import (
    MAX_COUNT,
    AgentChoice,
    BudgetLimits,
    Count,
    Delivered,
    Phase,
    ReviewerRemark,
    RunFacts,
    SkillChanges,
    Spent,
    Tokens,
    Usage,
)
from symphony.journal.skill_outcomes import OutcomeCounts
from symphony.journal.transcripts import TranscriptEntry
from symphony.library.evaluation import Comparison, Sums
from symphony.library.gate import Finding
from symphony.problem import Problem
from symphony.scheduler import LineComment


class Document(Struct, frozen=True):
    """Base of all documents and their parts."""

    @classmethod
    def of(cls, value: object, **others: Any) -> Self:
        """The document of a value whose fields have the same names; `others` are the fields that differ.

        Enums become their values. Use it only for values that share nearly all fields, because mypy does not
        check them.

        Raises:
            AttributeError: the value lacks a field that is not in `others`.
        """
        same = {name: getattr(value, name) for name in cls.__struct_fields__ if name not in others}
        plain = {name: each.value if isinstance(each, Enum) else each for name, each in same.items()}
        return cls(**plain, **others)


class ClosedDocument(Document, frozen=True, forbid_unknown_fields=True):
    """Base of documents without further fields."""


def _is(description: str) -> Meta:
    return Meta(description=description)


Positive = Annotated[int, Meta(ge=1)]
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
IssueId = Annotated[str, _is("The tracker's own id.")]
Identifier = Annotated[str, _is("The name for people and for routes.")]
Title = Annotated[str, _is("Untrusted text of the tracker.")]
TrackerState = Annotated[str, _is("In the tracker's spelling.")]
Host = Annotated[str | None, _is("Null for this machine.")]
WorkspacePath = Annotated[str | None, _is("Absolute; null until the workspace exists.")]
AttemptLimit = Annotated[
    Positive, _is("After this attempt the issue is blocked, unless an attempt makes progress before.")
]
CostUsd = Annotated[
    float | None, _is("As the agent reported it, else by the prices of WORKFLOW.md; null if unknown.")
]
Unpriced = Annotated[Count, _is("Tokens that `cost_usd` leaves out, because no price is known.")]
TraceId = Annotated[str | None, _is("Of the run's trace, in hex; null while traces are off.")]
Digest = Annotated[str | None, _is("Of the whole file, in hex.")]


# --- parts -----------------------------------------------------------------------------------------------


class Failure(Document, frozen=True, kw_only=True):
    """What went wrong, and what to do."""

    code: Annotated[str, _is("A stable category.")]
    message: str
    hint: str | None
    where: Annotated[str | None, _is("path:line of the workflow file.")]


class Reason(Document, frozen=True, kw_only=True):
    """Why the issue does not run."""

    code: Annotated[
        str,
        _is(
            "Stable: no_slot, no_state_slot, no_host_slot, label_missing, not_dispatchable, "
            "blocker_running, workflow_invalid, draining, paused, day_budget, agent_limited, "
            "starting, deferred and others."
        ),
    ]
    message: str


class AgentLimit(Document, frozen=True, kw_only=True):
    """The agent gets no issues for a while."""

    until: Moment
    code: Annotated[str, _is("agent_rate_limited, agent_usage_limit or agent_unavailable.")]
    message: Annotated[str, _is("As the agent reported it.")]
    times: Annotated[Positive, _is("How often in a row.")]


class AgentInUse(Document, frozen=True, kw_only=True):
    """An agent that issues may get."""

    name: Annotated[str, _is("Its name in WORKFLOW.md.")]
    kind: Annotated[str, _is("codex, claude, acp or command.")]
    model: Annotated[str | None, _is("As configured; null leaves it to the agent.")]
    limited: AgentLimit | None


class Totals(Tokens, Document, frozen=True, kw_only=True):
    """Sums over all runs, including those before a restart."""

    cost_usd: CostUsd = None
    unpriced_tokens: Unpriced = 0
    seconds_running: Annotated[float, Meta(ge=0), _is("Agent time, running sessions included.")]


class TokenUsage(Document, frozen=True, kw_only=True):
    """The tokens of all runs, also before a restart, and how many issues and sessions used them."""

    input: Count = 0
    output: Count = 0
    total: Count = 0
    issue_count: Count = 0
    session_count: Count = 0


class ResumedFrom(Document, frozen=True, kw_only=True):
    """What a run resumes."""

    reason: Annotated[str, _is("interrupted, or answered: a person answered the question.")]
    thread_id: Annotated[str | None, _is("The agent's conversation that is resumed; null for a new one.")]


class Remark(Document, frozen=True, kw_only=True):
    """A comment on an issue."""

    author: str
    text: Annotated[str, _is("Its first line.")]


# --- skills ----------------------------------------------------------------------------------------------


class ListedSkill(Document, frozen=True, kw_only=True):
    """A skill in the session's text."""

    name: str
    path: Annotated[str, _is("Below the workspace, or below agent.skills.user_path.")]
    sha256: Digest
    seen: Annotated[
        bool, _is("The session named the file to a tool or asked for the skill; a lower bound.")
    ] = False
    library_version: Annotated[int | None, _is("Null for a skill that is not of the library.")] = None


class DroppedSkill(Document, frozen=True, kw_only=True):
    """A usable skill that was left out."""

    name: str
    reason: str


class SkillProblem(Document, frozen=True, kw_only=True):
    """Something wrong with a file."""

    path: str
    code: str
    severity: Annotated[str, _is("error, warning or info.")]
    line: int | None = None
    column: int | None = None
    sha256: Digest = None


NextPhase = Annotated[Phase | None, _is("Of a turn that started now; null without phases.")]


class InstructionModule(Document, frozen=True, kw_only=True):
    """A module of the composed instructions."""

    name: str
    sha256: Annotated[str, _is("Of the file, in hex.")]


class Instructions(Document, frozen=True, kw_only=True):
    """The instructions of a session in its phase, without their text."""

    phase: Annotated[str | None, _is("Null without phases; then all modules are used.")]
    origin: Annotated[
        str,
        _is("source; or what took its place: last_good, fallback (the one text for all phases), nothing."),
    ]
    sha256: Annotated[str | None, _is("Digest of the manifest and its modules.")]
    modules: Annotated[tuple[InstructionModule, ...], _is("In the order of the text.")]
    dropped: Annotated[tuple[str, ...], _is("Names of modules beyond agent.instructions.max_chars.")]
    chars: Count
    problems: tuple[Problem, ...] = ()


class Skills(Document, frozen=True, kw_only=True):
    """The skills of the latest run."""

    commit: Annotated[str | None, _is("Commit of the repository's skills, if known.")] = None
    listed: tuple[ListedSkill, ...] = ()
    dropped: tuple[DroppedSkill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()
    native: Annotated[tuple[ListedSkill, ...], _is("The skills that the agent lists by itself.")] = ()
    synced: Annotated[SkillChanges | None, _is("Null before the end of a run, and without a library.")] = None


class SkillNames(Document, frozen=True, kw_only=True):
    """The skills of a running session, in short."""

    listed: Annotated[tuple[str, ...], _is("Names.")]
    dropped: Annotated[tuple[str, ...], _is("Names.")]
    malformed: Annotated[tuple[str, ...], _is("Paths of files that could not be used.")]


class SkillsTotals(Document, frozen=True, kw_only=True):
    """Sums over all runs since the start."""

    runs: Count = 0
    listed: Count = 0
    dropped: Annotated[Count, _is("Skills for which there was no room.")] = 0
    malformed: Annotated[Count, _is("Files with an error, once per run.")] = 0


# --- the daemon ------------------------------------------------------------------------------------------


class Spender(Document, frozen=True, kw_only=True):
    """The run that used up the budget of a day."""

    issue_identifier: Annotated[str, _is("Its issue.")]
    agent: Annotated[str, _is("The agent that reported it, by name.")]
    tokens: Annotated[Count, _is("Tokens of the run at that time.")]


class Budgets(BudgetLimits, Document, frozen=True, kw_only=True):
    """What issues may use, and what they used today. Null means no limit."""

    day: Annotated[str | None, _is("The counted day, YYYY-MM-DD, UTC; null before it is known.")]
    day_tokens: Annotated[Count, _is("Tokens that all issues used on that day.")]
    day_cost_usd: CostUsd = None
    day_unpriced_tokens: Unpriced = 0
    used_up_by: Annotated[
        Spender | None,
        _is("The run that used up the budget of the day; null before that, and after a restart."),
    ]


class TrackerHealth(Document, frozen=True, kw_only=True):
    """Whether the tracker answers."""

    circuit: Annotated[
        str,
        _is(
            "closed: requests are made as usual; open: requests pause until `until`; "
            "half_open: the next request decides."
        ),
    ]
    failures_in_a_row: Annotated[Count, _is("Failed requests in a row.")]
    until: Annotated[Moment | None, _is("When requests resume; null unless the circuit is open.")]
    asks_next_at: Annotated[Moment | None, _is("When the next request is due; null while one is under way.")]
    last_error: Annotated[str | None, _is("Why the last of them failed.")]


class JournalHealth(Document, frozen=True, kw_only=True):
    """Whether records survive a restart."""

    state: Annotated[str, _is("ok, or memory: records are lost with the process.")]
    reason: Annotated[str | None, _is("What is wrong with the journal.")]
    hint: Annotated[str | None, _is("What to do about it.")]


class DaemonHealth(Document, frozen=True, kw_only=True):
    """The health of the daemon."""

    status: Annotated[
        str, _is("starting, ok, degraded (poll_failure or workflow_failure says why) or draining.")
    ]
    polls: Annotated[Count, _is("Polls since the start, failed ones included.")]
    last_poll_at: Annotated[Moment | None, _is("When the tracker last answered a poll.")]
    poll_failure: Failure | None
    workflow_failure: Failure | None
    skipped_records: Annotated[
        tuple[Failure, ...],
        Meta(extra_json_schema={"maxItems": 50}),
        _is("Malformed records that the last answered poll left out; the first 50."),
    ]


class Polling(Document, frozen=True, kw_only=True):
    """The poll cycle."""

    checking: Annotated[bool, _is("A cycle is under way.")]
    next_poll_in_ms: Count | None
    poll_interval_ms: Count


# --- one issue -------------------------------------------------------------------------------------------


class ListedIssue(Document, frozen=True, kw_only=True):
    """An issue by its names."""

    issue_id: IssueId
    issue_identifier: Identifier
    issue_url: str | None
    title: Title


class Overlap(Document, frozen=True, kw_only=True):
    """Another running issue whose work changes the same files."""

    issue_identifier: Identifier
    paths: Annotated[tuple[str, ...], _is("The first 20; untrusted text.")]
    paths_left_out: Count


class Run(RunFacts, Document, frozen=True, kw_only=True):
    """The present run."""

    run_id: str
    state: str
    stage: Annotated[
        str, _is("preparing_workspace, building_prompt, launching_agent, streaming_turn or finishing.")
    ]
    attempt: Annotated[int | None, _is("Null on the first attempt.")]
    attempt_number: Annotated[Positive, _is("The present attempt, counted from 1.")]
    attempt_limit: AttemptLimit
    turn: Annotated[Count, _is("The present turn, counted from 1.")]
    stopping: Annotated[str | None, _is("Why the run is being stopped.")]
    last_event: str | None
    last_message: Annotated[str | None, _is("One line of the agent, for display.")]
    started_at: Moment
    last_event_at: Moment | None
    resumed_from: ResumedFrom | None
    last_words: Annotated[
        str | None, _is("The newest message of the agent to people, one line; untrusted text.")
    ] = None
    phase: Annotated[Phase | None, _is("Of the present turn; null without phases.")] = None
    overlaps: Annotated[
        tuple[Overlap, ...], _is("As of the ends of the last turns. The agent that began later gets a note.")
    ] = ()


class Retry(Document, frozen=True, kw_only=True):
    """The next attempt."""

    attempt: Annotated[Count, _is("The next attempt; 0 is the first.")]
    attempt_number: Annotated[Positive, _is("The next attempt, counted from 1.")]
    attempt_limit: AttemptLimit
    due_at: Moment
    error: Annotated[str | None, _is("Null after a clean end.")]


class Block(Document, frozen=True, kw_only=True):
    """Why the issue waits for a person."""

    state: str
    error: Annotated[str, _is("Why the issue is blocked.")]
    failure: Failure
    session_id: str | None
    blocked_at: Moment
    last_event: str | None
    last_message: str | None
    last_event_at: Moment | None
    question: Annotated[str | None, _is("What the agent asked, in its own words.")]
    resumable: Annotated[bool, _is("Whether a retry resumes the agent's conversation.")]
    not_obeyed: Annotated[
        tuple[Remark, ...],
        _is(
            "The newest comments that do not count as answers, because their authors have no write access "
            "to the project."
        ),
    ]
    answers_failure: Annotated[
        Failure | None,
        _is("Why the comments on the issue could not be read the last time; null if they could."),
    ]


class RunningRow(Run, frozen=True, kw_only=True):
    """A running issue."""

    issue_id: IssueId
    issue_identifier: Identifier
    issue_url: str | None
    title: Title
    agent: AgentChoice
    worker_host: Host
    skills: SkillNames | None
    instructions: Annotated[Instructions | None, _is("Null if none are configured.")] = None


class RetryingRow(Retry, frozen=True, kw_only=True):
    """An issue that waits for its next attempt."""

    issue_id: IssueId
    issue_identifier: Identifier
    issue_url: str | None
    title: Title
    state: TrackerState
    agent: AgentChoice
    last_error: Annotated[
        str | None,
        _is("The last failure of a run; `error` does not have it while no slot is free."),
    ]
    worker_host: Host
    workspace_path: WorkspacePath
    phase: NextPhase = None


class BlockedRow(Block, frozen=True, kw_only=True):
    """A blocked issue."""

    issue_id: IssueId
    issue_identifier: Identifier
    issue_url: str | None
    title: Title
    agent: AgentChoice
    spent: Spent
    worker_host: Host
    workspace_path: WorkspacePath
    phase: NextPhase = None


class WaitingRow(ListedIssue, frozen=True, kw_only=True):
    """A candidate that does not run yet."""

    state: TrackerState
    reason: Reason
    agent: AgentChoice
    position: Annotated[
        Count, _is("Place in the order in which issues would start, from 1; 0 if unknown.")
    ] = 0
    phase: NextPhase = None


class PullRequest(Document, frozen=True, kw_only=True):
    """The last snapshot of the pull request of finished work."""

    number: Annotated[int | None, _is("Null until it is open.")]
    url: str | None
    state: Annotated[str, _is("wanted, open, closed or merged.")]
    draft: bool
    code: Annotated[str, _is("What it waits for; stable: docs/forges.md lists all.")]
    message: Annotated[str, _is("The same in one sentence.")]
    needs_you: Annotated[bool, _is("Only a person can go on.")]
    failure: Annotated[Failure | None, _is("Why the last step about it failed.")]


class LineRange(Document, frozen=True, kw_only=True):
    """Consecutive lines of a file, from 1; both ends included."""

    first: Positive
    last: Positive


class ConflictingFile(Document, frozen=True, kw_only=True):
    """A file that git cannot merge."""

    path: Annotated[str, _is("Untrusted text; bytes that are not UTF-8 are escaped.")]
    kind: Annotated[
        str,
        _is("content, added, binary, deleted, renamed, directory, mode, submodule or other."),
    ]
    lines: Annotated[
        tuple[LineRange, ...], _is("Where, in the version of this branch; empty if that is not known.")
    ]


class MergeConflict(Document, frozen=True, kw_only=True):
    """A conflict of a branch."""

    issue_identifiers: Annotated[
        tuple[str, ...],
        _is("The issues of the other branches; several conflict only together; empty for the base."),
    ]
    files: Annotated[tuple[ConflictingFile, ...], _is("The first 20.")]
    files_left_out: Count
    message: Annotated[str, _is("The same in one sentence.")]


class RehearsedBranch(Document, frozen=True, kw_only=True):
    """The outcome of a branch in a rehearsal of merges."""

    issue_id: IssueId
    issue_identifier: Identifier
    branch: str
    head: Annotated[str | None, _is("The commit that was merged; null if there is none.")]
    outcome: Annotated[
        str,
        _is(
            "merges, conflicts, breaks (it merges, and verify.commands fail with it), merged (before), gone, "
            "unrelated (to the base) or unchecked."
        ),
    ]
    conflicts: Annotated[
        tuple[MergeConflict, ...],
        _is("Also of a branch that merges, with branches that are left out because of it."),
    ]
    message: Annotated[str, _is("The same in one line.")]


class VerifiedCheck(Document, frozen=True, kw_only=True):
    """One command of `verify.commands` on a commit."""

    name: str
    passed: bool
    exit_code: Annotated[int | None, _is("Null if it did not end by itself, or was skipped.")]
    duration_ms: Count
    result: Annotated[str, _is("How it ended: failed with exit code 2.")]
    output_tail: Annotated[str, _is("The end of its output; untrusted text.")]
    fails_on_base: Annotated[bool | None, _is("Whether it fails on the base commit too; null if unknown.")]


class Artifact(Document, frozen=True, kw_only=True):
    """A file that a check left, stored with the run."""

    name: Annotated[str, _is("Its path in the checkout; untrusted text.")]
    bytes: Annotated[int | None, _is("Null if it was too large to be kept.")]
    path: Annotated[str | None, _is("Where this daemon serves it, as a download; null if it is not kept.")]


class VerifiedReviewer(Document, frozen=True, kw_only=True):
    """The verdict of the agent of verify.reviewer on the delivered commit."""

    agent: Annotated[str, _is("By name.")]
    verdict: Annotated[str, _is("approve or request_changes. An approval approves nothing for a landing.")]
    remarks: tuple[ReviewerRemark, ...]


class VerifiedMerge(Document, frozen=True, kw_only=True):
    """The results of the operator's commands on the branches that merge together."""

    status: Annotated[str, _is("passed, failed, base_failed or not_done. Only passed is a pass.")]
    breaks: Annotated[
        str | None,
        _is(
            "The first issue, in the order of the board, whose branch makes them fail; null if none is known."
        ),
    ]
    message: Annotated[str, _is("The same in one sentence.")]
    checks: Annotated[tuple[VerifiedCheck, ...], _is("On all of these branches together.")]


class Rehearsal(Document, frozen=True, kw_only=True):
    """Which branches merge together on the present base, and which conflict."""

    generated_at: Moment
    base: Annotated[str | None, _is("The base branch; null for a detached HEAD.")]
    base_commit: str
    tree: Annotated[str, _is("Object id of the files of the base and all branches that merge or break.")]
    moved: Annotated[bool, _is("The base moved meanwhile, and the rehearsal was done again.")]
    merging: Annotated[Count, _is("Branches that go together.")]
    conflicting: Annotated[Count, _is("Branches that do not go with the base or those before them.")]
    branches: Annotated[tuple[RehearsedBranch, ...], _is("In the order of the board, as they were merged.")]
    pairs_left_out: Annotated[
        Count, _is("Pairs of branches with the same changed file that were too many to be compared.")
    ]
    verified: Annotated[
        VerifiedMerge | None,
        _is("Null without rehearse.verify or --verify, until it is known, or if none merges."),
    ] = None


class Verified(Document, frozen=True, kw_only=True):
    """The results of the operator's commands on the delivered commit."""

    head: str
    passed: Annotated[bool, _is("All of it passed; nothing else is a pass.")]
    status: Annotated[str, _is("passed, failed, or base_failed: what failed also fails on the base.")]
    message: Annotated[str, _is("The same in one sentence.")]
    checks: tuple[VerifiedCheck, ...]
    protected_changes: Annotated[
        tuple[str, ...], _is("Changed files of verify.protect: the change touches what checks it.")
    ]
    weakened: Annotated[tuple[str, ...], _is("Tests that the change deletes or skips, as hints.")]
    base: Annotated[
        str | None, _is("The base commit on which failed commands were tried too; null if none were.")
    ]
    artifacts: Annotated[tuple[Artifact, ...], _is("Files of verify.artifacts that the checks left.")] = ()
    reviewer: Annotated[
        VerifiedReviewer | None, _is("Null if there is none, or the commands did not pass.")
    ] = None


class ReadyBranch(Delivered, Document, frozen=True, kw_only=True):
    """Delivered work, and whether it has reached its repositories."""

    push: Annotated[str | None, _is("pushed, pushing, waiting or failed; null if nothing is to be pushed.")]
    push_failure: Annotated[Failure | None, _is("Of the last push.")]
    branch_failure: Annotated[
        Failure | None,
        _is("Why the local repository of workspace.repo does not have the branch as delivered."),
    ]


class ReadyRow(Usage, Document, frozen=True, kw_only=True):
    """Work that is ready for review: its issue has left the active states with delivered commits."""

    issue_id: IssueId
    issue_identifier: Identifier
    issue_url: str | None
    title: Title
    state: TrackerState
    delivered: ReadyBranch
    turns: Annotated[Count, _is("Of all runs of the issue.")]
    summary: Annotated[str | None, _is("The last message of the agent, one line; untrusted text.")]
    pull_request_url: Annotated[str | None, _is("Null if the daemon knows of none.")]
    look: Annotated[
        tuple[str, ...], _is("Commands that show the work, or bring it into a clone; the simplest first.")
    ]
    ended_at: Annotated[Moment, _is("When the last run ended.")]
    pull_request: Annotated[PullRequest | None, _is("Null if none is wanted.")] = None
    stars: Annotated[
        int | None, _is("1 to 5: the newest feedback of people with write access; null without any.")
    ] = None
    rehearsal: Annotated[
        RehearsedBranch | None,
        _is("Whether it merges with the base and the others; null until that is known."),
    ] = None
    verified: Annotated[
        Verified | None, _is("The verification of this head; null if there is none, which is not a pass.")
    ] = None


Row = RunningRow | RetryingRow | BlockedRow | WaitingRow | ReadyRow


class Push(Document, frozen=True, kw_only=True):
    """A push that is in progress; it holds no slot."""

    issue_identifier: Identifier
    branch: str
    began_at: Moment


class FailedPush(Document, frozen=True, kw_only=True):
    """A delivered branch that has not reached a repository."""

    issue_identifier: Identifier
    branch: str
    place: Annotated[
        str,
        _is("origin, which workspace.push asks for, or repository, the local one of workspace.repo."),
    ]
    failure: Failure


class PastRun(RunFacts, Document, frozen=True, kw_only=True):
    """A run in the journal."""

    run_id: str
    attempt: Annotated[int | None, _is("Null for a first attempt.")]
    agent: Annotated[str | None, _is("By name.")]
    started_at: Moment
    ended_at: Annotated[Moment | None, _is("Null while it runs.")]
    outcome: Annotated[
        str | None,
        _is("How it ended: succeeded, failed, timed_out, input_required, canceled or interrupted."),
    ]
    reason: Annotated[str | None, _is("Why it ended that way, in one line.")]
    trace_id: TraceId = None
    verified: Annotated[
        str | None,
        _is("passed, failed, or base_failed: what verify said of its work; null if it was not verified."),
    ] = None
    head: Annotated[str | None, _is("The commit that it delivered; null in rows of older versions.")] = None
    attempt_number: Annotated[int | None, _is("Counted from 1; null in rows of older versions.")] = None
    attempt_limit: Annotated[
        int | None, _is("After this attempt a person is asked, unless one makes progress before.")
    ] = None
    progress: Annotated[bool | None, _is("A commit or a changed file; null where it is not known.")] = None
    agent_reason: Annotated[str | None, _is("Why it was this one; null in rows of older versions.")] = None


class RunRow(PastRun, frozen=True, kw_only=True):
    """A run in the journal, with its issue."""

    issue_id: IssueId
    issue_identifier: Identifier
    issue_state: Annotated[
        str | None, _is("The issue's state when the run started, in the tracker's spelling; null if unknown.")
    ]
    issue_title: Annotated[
        str | None, _is("The issue's title when the run started; null in rows of older versions.")
    ] = None
    seconds: Annotated[float, Meta(ge=0), _is("From its start to its end, or until now.")]


class RunSums(Usage, Document, frozen=True, kw_only=True):
    """Sums over some runs."""

    key: Annotated[
        str | None, _is("The day (UTC), agent, issue or state of the runs; null for all, and if unknown.")
    ]
    runs: Count
    turns: Count
    seconds: Annotated[float, Meta(ge=0)]
    commits: Count


class Runs(Document, frozen=True, kw_only=True):
    """The runs in the journal that a query selects."""

    generated_at: Moment
    since: Annotated[Moment | None, _is("Only runs that started since then; null for all.")]
    by: Annotated[str | None, _is("What `groups` are made by: day, agent, issue or state; null for none.")]
    runs: Annotated[tuple[RunRow, ...], _is("The newest first; at most as many as the query asks for.")]
    left_out: Annotated[Count, _is("Selected runs without a row. Sums count them.")]
    groups: Annotated[
        tuple[RunSums, ...],
        _is("A run counts for the day on which it started. The latest day, or the most expensive, first."),
    ]
    total: RunSums


class WorkspacePlace(Document, frozen=True, kw_only=True):
    """The workspace of the issue."""

    path: str | None
    host: Host
    branch: Annotated[str | None, _is("The issue's branch, if known.")]


class Attempts(Document, frozen=True, kw_only=True):
    """The attempts of the issue."""

    number: Annotated[
        Positive | None, _is("The present or next attempt, counted from 1; null if there is none.")
    ]
    limit: Annotated[
        Positive | None,
        _is("After this attempt the issue is blocked, unless an attempt makes progress before."),
    ]
    restart_count: Annotated[Count, _is("Attempts after the first retry.")]
    current_retry_attempt: Annotated[Count, _is("The present or next attempt; 0 is the first.")]
    runs_started: Annotated[Count, _is("Runs of the issue since the start of the daemon.")]


class Waiting(Document, frozen=True, kw_only=True):
    """Why the issue waits."""

    reason: Reason


class LogFile(Document, frozen=True, kw_only=True):
    """One file."""

    label: str
    path: Annotated[str, _is("Below the daemon's state directory.")]
    url: str | None


class Logs(Document, frozen=True, kw_only=True):
    """Files of the session."""

    codex_session_logs: tuple[LogFile, ...]


class Event(Document, frozen=True, kw_only=True):
    """Something that happened to the issue."""

    at: Moment
    event: str
    message: str


# --- answers ---------------------------------------------------------------------------------------------


class Counts(Document, frozen=True, kw_only=True):
    """Rows by status."""

    running: Count
    retrying: Count
    blocked: Count
    waiting: Count
    ready: Count


class Slots(Document, frozen=True, kw_only=True):
    """Running agents, and how many may run."""

    used: Count
    limit: Count


class HostInUse(Document, frozen=True, kw_only=True):
    """A machine of `worker.ssh_hosts`, the Ray cluster, or a removed machine that still has a run."""

    name: str
    used: Annotated[Count, _is("Its runs.")]
    limit: Annotated[Count, _is("How many it may have now; 0 while it rests.")]
    failures: Annotated[Count, _is("Runs in a row that failed because of it.")] = 0
    rests_until: Annotated[Moment | None, _is("It gets no run before; null if it does not rest.")] = None
    failure: Annotated[str | None, _is("The latest of these failures.")] = None
    machines: Annotated[dict[str, int], _is("Runs on each machine of a cluster that chooses them.")] = {}


class NotifyTarget(Document, frozen=True, kw_only=True):
    """A target of `notify`, and whether notifications reach it."""

    name: str
    kind: Annotated[str, _is("slack, webhook or command.")]
    on: Annotated[tuple[str, ...], _is("The events that it gets.")]
    problem: Annotated[str | None, _is("Why it is off; null if it is on.")]
    pending: Annotated[Count, _is("Notifications that wait.")] = 0
    delivered_at: Annotated[Moment | None, _is("The last delivery since the start; null without one.")] = None
    failure: Annotated[str | None, _is("Why the last attempt failed; null if it did not.")] = None


class OutboxJob(Document, frozen=True, kw_only=True):
    """A write to an outside service that is not done yet."""

    key: Annotated[str, _is("Identifies the job; the newer one of two with the same key counts.")]
    kind: Annotated[str, _is("comment, move, notification, push, pull_request and so on.")]
    issue_id: IssueId
    issue_identifier: Identifier
    state: Annotated[str, _is("waiting: it is tried when it is due, or given_up.")]
    attempts: Annotated[Count, _is("How often it was tried.")]
    since: Annotated[Moment, _is("When it was decided.")]
    due_at: Annotated[Moment | None, _is("The time of the next try; null if the daemon gave up.")]
    failure: Annotated[str | None, _is("Why the last attempt failed; null before it.")]


class Outbox(Document, frozen=True, kw_only=True):
    """Writes to outside services that are not done yet."""

    jobs: Annotated[tuple[OutboxJob, ...], _is("The oldest first.")]


class OutboxCounts(Document, frozen=True, kw_only=True):
    """How many writes to outside services are not done yet."""

    waiting: Count = 0
    failing: Annotated[Count, _is("Waiting jobs that failed at least once.")] = 0
    given_up: Count = 0
    failure: Annotated[str | None, _is("Why the newest of these failed.")] = None


class Schedule(Document, frozen=True, kw_only=True):
    """A schedule of recurring issues."""

    name: str
    cron: str
    timezone: str
    next_at: Annotated[Moment | None, _is("When the next issue is due; null if never.")]
    due: Annotated[bool, _is("That time has come: it is filed, or waits for the daemon or the tracker.")]
    last_due_at: Annotated[Moment | None, _is("The time that was handled last; null before the first one.")]
    skipped: Annotated[bool, _is("That time was left out, because the former issue was open.")]
    issue_id: Annotated[str | None, _is("The issue that was filed last; null before the first one.")]
    issue_identifier: str | None
    issue_url: str | None
    issue_state: Annotated[str | None, _is("Its state when it was last looked at; null if it is deleted.")]
    failure: Annotated[str | None, _is("Why the last attempt failed; null if it did not.")]


class Schedules(Document, frozen=True, kw_only=True):
    """The schedules of the workflow."""

    schedules: Annotated[tuple[Schedule, ...], _is("In the order of the settings.")]


class KeptWorkspace(Document, frozen=True, kw_only=True):
    """A workspace with work that is on no branch; it is not removed when its issue is closed."""

    issue_id: IssueId
    issue_identifier: Identifier
    path: str
    reason: Annotated[str, _is("What the work is, one line.")]
    look: Annotated[str | None, _is("The command that shows it.")]


class State(Document, frozen=True, kw_only=True):
    """The whole daemon at one moment."""

    generated_at: Moment
    health: DaemonHealth
    counts: Counts
    slots: Slots
    hosts: Annotated[tuple[HostInUse, ...], _is("Empty if all runs are on this machine.")] = ()
    running: tuple[RunningRow, ...]
    retrying: tuple[RetryingRow, ...]
    blocked: tuple[BlockedRow, ...]
    waiting: Annotated[
        tuple[WaitingRow, ...],
        _is("In the order in which they would start; the first ones, if the query limits the number."),
    ]
    waiting_by_reason: Annotated[
        dict[str, Positive],
        _is("Number of all waiting issues by the code of the reason, independent of the query."),
    ]
    waiting_left_out: Annotated[
        Count, _is("Number of selected waiting issues without a row, because the query limits the list.")
    ]
    ready: Annotated[tuple[ReadyRow, ...], _is("The newest first.")]
    pushes: Annotated[tuple[Push, ...], _is("Running pushes, the oldest work first.")]
    failed_pushes: tuple[FailedPush, ...]
    kept: Annotated[
        tuple[KeptWorkspace, ...], _is("Of issues without a run, a retry or a block on this machine.")
    ] = ()
    codex_totals: Totals
    token_usage: TokenUsage = TokenUsage()
    skills_totals: SkillsTotals
    rate_limits: Annotated[dict[str, Any] | None, _is("The newest payload of the agent, as it sent it.")]
    agents: Annotated[tuple[AgentInUse, ...], _is("Agents that issues may get, the default first.")]
    polling: Polling
    drain: Annotated[str, _is("no, draining, stopping or exited.")]
    paused: Annotated[bool, _is("An operator paused the daemon: nothing new starts.")]
    budgets: Budgets
    tracker: TrackerHealth
    journal: JournalHealth | None
    notifications: Annotated[tuple[NotifyTarget, ...], _is("Where people are notified.")] = ()
    outbox: Annotated[OutboxCounts, _is("Comments and moves that did not arrive yet.")] = OutboxCounts()
    schedules: Annotated[tuple[Schedule, ...], _is("By which issues are filed.")] = ()
    creates_in: Annotated[
        tuple[str, ...],
        _is("States that a new issue can begin in, the default first; empty if the tracker creates none."),
    ] = ()
    version: Annotated[str, _is("Version of the program that answers.")] | UnsetType = UNSET
    commit: (
        Annotated[str | None, _is("The commit it was built from, seven digits; null if unknown.")] | UnsetType
    ) = UNSET


class Learning(SkillChanges, Document, frozen=True, kw_only=True):
    """The effect of a feedback: a separate learning run proposes better skills."""

    state: Annotated[str, _is("off, waiting, running, done or dropped.")]
    reason: Annotated[str | None, _is("Why it is off or dropped, or why the last attempt failed.")]
    attempts: Count
    run_id: Annotated[str | None, _is("Of the learning run; null until it is done.")]
    total_tokens: Annotated[Count, _is("Of the learning run; the sums of the work leave them out.")]
    cost_usd: CostUsd


class Feedback(Document, frozen=True, kw_only=True):
    """A person's feedback on the work on an issue."""

    id: int
    issue_identifier: Identifier
    run_ids: Annotated[tuple[str, ...], _is("The runs that it is about, the newest first.")]
    stars: Annotated[int, Meta(ge=1, le=5)]
    comment: Annotated[str, _is("May be empty; untrusted text.")]
    author: Annotated[str, _is("operator, or visitor for a caller without write access.")]
    at: Moment
    learning: Learning


class Choice(Document, frozen=True, kw_only=True):
    """Whether an order is possible now."""

    allowed: bool
    code: Annotated[str | None, _is("Why not; null if it is.")] = None
    message: str | None = None
    hint: str | None = None


class Issue(ListedIssue, frozen=True, kw_only=True):
    """One issue that the daemon knows now."""

    generated_at: Moment
    title: Annotated[str, _is("Untrusted text of the tracker; empty if only the journal knows the issue.")]
    state: Annotated[str, _is("In the tracker's spelling; empty if only the journal knows the issue.")]
    status: Annotated[
        str, _is("running, retrying, blocked, waiting, ready, ended, or inactive: only the tracker has it.")
    ]
    agent: AgentChoice
    workspace: WorkspacePlace
    attempts: Attempts
    running: Run | None
    retry: Retry | None
    blocked: Block | None
    waiting: Waiting | None
    result: ReadyRow | None
    runs: Annotated[tuple[PastRun, ...], _is("The last 50 in the journal, the newest first.")]
    cost_usd: CostUsd = None
    unpriced_tokens: Unpriced = 0
    logs: Logs
    recent_events: tuple[Event, ...]
    last_error: str | None
    skills: Skills | None
    spent: Spent
    tracked: Annotated[dict[str, Any], _is("Reserved.")]
    paused: Annotated[bool, _is("An operator paused the daemon: nothing new starts.")]
    budgets: Budgets
    tracker: TrackerHealth
    journal: JournalHealth | None
    phase: Annotated[
        Phase | None, _is("Of the present turn, or of one that started now; null without phases.")
    ] = None
    instructions: Annotated[Instructions | None, _is("Of the latest run; null if none are configured.")] = (
        None
    )
    moves_to: Annotated[
        tuple[str, ...],
        _is("The states that the tracker and the settings name; empty if the tracker does not move issues."),
    ] = ()
    feedback: Annotated[tuple[Feedback, ...], _is("The newest first.")] = ()
    kept: Annotated[
        KeptWorkspace | None, _is("Null if no workspace of it with such work is on this machine.")
    ] = None
    verify: Annotated[Choice | None, _is("To verify its work; null without delivered work.")] = None


class TaskComment(Document, frozen=True, kw_only=True):
    """A comment on an issue; untrusted text."""

    id: Annotated[str | None, _is("The tracker's own id; null until the tracker has it.")]
    by: Annotated[str, _is("person, agent, daemon or bot (another program).")]
    author: Annotated[str, _is("operator for a comment that a person wrote by Symphony.")]
    at: Annotated[Moment | None, _is("Null where the tracker does not tell it.")]
    body: Annotated[str, _is("Markdown.")]
    cut: Annotated[bool, _is("The comment is longer.")]
    sent: Annotated[str, _is("sent, waiting (it is tried until it arrives) or given_up.")] = "sent"
    failure: Annotated[str | None, _is("Why the last attempt to send it failed.")] = None


class TaskBlocker(Document, frozen=True, kw_only=True):
    """An issue that blocks another one; untrusted text."""

    issue_identifier: Annotated[str | None, _is("Null where the tracker does not tell it.")]
    title: Annotated[str | None, _is("Null where the daemon does not know it.")]
    state: Annotated[str | None, _is("In the tracker's spelling; null where the tracker does not tell it.")]
    over: Annotated[bool, _is("Its state is a terminal one: it blocks no more.")]
    known: Annotated[bool, _is("It has a page, as the tracker tells its identifier.")]


class Task(Document, frozen=True, kw_only=True):
    """The tracker's snapshot of an issue: the task, and the comments on it."""

    generated_at: Moment
    issue_id: IssueId
    issue_identifier: Identifier
    title: Title
    state: TrackerState
    gone: Annotated[bool, _is("The tracker does not have the issue any more.")]
    description: Annotated[str | None, _is("Markdown; untrusted text. Null without one.")]
    description_cut: Annotated[bool, _is("The description is longer.")]
    labels: tuple[str, ...]
    priority: Annotated[int | None, _is("As the tracker has it; 1 is the most urgent.")]
    blocked_by: tuple[TaskBlocker, ...]
    created_at: Moment | None
    updated_at: Moment | None
    comments: Annotated[tuple[TaskComment, ...], _is("The newest last.")]
    comments_left_out: Annotated[Count, _is("Older ones for which there is no room.")]
    can_comment: Annotated[bool, _is("The tracker has comments.")]
    failure: Annotated[
        str | None,
        _is("Why the tracker was not asked or did not answer; the content is then older."),
    ]


class Transcript(Document, frozen=True, kw_only=True):
    """A part of the transcript of one run: what its agent received, said and did."""

    issue_identifier: str
    run_id: Annotated[str | None, _is("Null if the issue has no run yet.")]
    entries: Annotated[
        tuple[TranscriptEntry, ...],
        _is("In order. An entry with `replaces` replaces the earlier one with that number."),
    ]
    next_after: Annotated[Count, _is("Ask for what follows with after=.")]
    more: Annotated[bool, _is("There are further entries already.")]
    earlier: Annotated[bool, _is("There are earlier entries: request them with before=.")]
    ended: Annotated[bool, _is("The run has ended: no entries will follow.")]
    complete: Annotated[bool, _is("Nothing is known to be missing.")]
    missing: Annotated[tuple[str, ...], _is("What is missing, one sentence each.")]
    trace_id: TraceId = None


class PromptComment(Document, frozen=True, kw_only=True):
    """A comment of a person on an issue; untrusted text."""

    author: str
    created_at: Annotated[datetime | None, _is("Null where the tracker does not tell it.")]
    body: Annotated[str, _is("Cut where it is long.")]


class Prompt(Document, frozen=True, kw_only=True):
    """The prompt that a dispatch would send now."""

    issue_identifier: str
    source: Annotated[str, _is("daemon, or files if no daemon runs.")]
    attempt: Annotated[int | None, _is("As the template sees it.")]
    agent: AgentChoice
    envelope: Annotated[str | None, _is("The system-level text.")]
    prompt: Annotated[str, _is("The prompt of the first turn.")]
    skills: Skills
    note: Annotated[
        str | None,
        _is("Why the issue would not start, or why skills are missing that it might get."),
    ]
    phase: Annotated[Phase | None, _is("Null without phases.")] = None
    instructions: Annotated[Instructions | None, _is("Null if none are configured.")] = None
    new_comments: Annotated[
        tuple[PromptComment, ...],
        _is("Comments of people that no session of the issue has got, oldest first."),
    ] = ()


class KnownSkill(Document, frozen=True, kw_only=True):
    """A usable skill of the repository or of the user."""

    name: str
    text: Annotated[str, _is("When to use it, else its description; untrusted text.")]
    scope: Annotated[str, _is("project, user or extra.")]
    path: str
    priority: int
    phases: tuple[str, ...]


class SkillUses(Document, frozen=True, kw_only=True):
    """One skill over many runs."""

    name: str
    listed: Annotated[Count, _is("Runs that listed it.")]
    seen: Annotated[Count, _is("Runs that looked at it.")]
    outcomes: Annotated[dict[str, Positive], _is("How many of the runs that listed it ended so.")]
    seen_outcomes: Annotated[dict[str, Positive], _is("How many of the runs that looked at it ended so.")]
    versions: Annotated[Count, _is("Different contents.")]
    last_used_at: Moment


class SkillFigures(OutcomeCounts, Document, frozen=True, kw_only=True):
    """The outcomes of the runs that listed a skill."""

    rated: Annotated[Count, _is("Runs that people gave stars.")]
    stars: Annotated[float | None, _is("The mean of 1 to 5; null if nobody gave any.")]
    attempts: Annotated[float, _is("The median of the numbers of the attempts.")]
    turns: Annotated[float, _is("The median.")]
    tokens: Annotated[float, _is("The median.")]


class AgentFigures(SkillFigures, frozen=True, kw_only=True):
    """The figures of the runs of one agent and model."""

    agent: str | None
    model: Annotated[str | None, _is("As the agent named it, else as configured; null if neither is known.")]


class SkillVersionFigures(SkillFigures, frozen=True, kw_only=True):
    """The figures of one version of a skill."""

    name: str
    sha256: Digest
    library_version: Annotated[int | None, _is("Null for a skill that is not of the library.")]
    last_used_at: Moment
    agents: Annotated[tuple[AgentFigures, ...], _is("The same by agent and model, the most runs first.")]


class SkillOutcomes(Document, frozen=True, kw_only=True):
    """The outcomes of the runs that listed skills, as far as the journal has them."""

    versions: Annotated[tuple[SkillVersionFigures, ...], _is("By name, the version used last first.")] = ()


class SkillsOverview(Document, frozen=True, kw_only=True):
    """The skills beside WORKFLOW.md, the skills of the user, and the outcomes of runs with skills."""

    generated_at: Moment
    enabled: Annotated[bool, _is("agent.skills.enabled")]
    source: Annotated[str, _is("agent.skills.source; runs with base_branch read its commit.")]
    complete: Annotated[bool, _is("All files were read in time.")]
    roots: Annotated[tuple[str, ...], _is("The directories that exist, each with its scope.")]
    skills: tuple[KnownSkill, ...]
    problems: tuple[Problem, ...]
    since: Moment
    uses: Annotated[tuple[SkillUses, ...], _is("In runs since then; empty without a journal.")]
    outcomes: Annotated[SkillOutcomes, _is("Of runs since then.")] = SkillOutcomes()


# --- the library -----------------------------------------------------------------------------------------


SkillName = Annotated[str, _is("Lower-case letters, digits and single hyphens, at most 64 characters.")]
SkillFileText = Annotated[str, _is("A whole SKILL.md: front matter and Markdown.")]
ChangeReason = Annotated[str, _is("For the history; cut to 500 characters.")]
NewestVersion = Annotated[Positive, _is("Increases with each change of the skill's text.")]
LibraryNumber = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Target = Annotated[str, _is("An issue by its identifier, or an agent by its name.")]
TargetKind = Literal["issue", "agent"]


class LibrarySkill(Document, frozen=True, kw_only=True):
    """A skill of the library in its newest version."""

    name: SkillName
    description: str
    when_to_use: str
    version: NewestVersion
    origin: Annotated[str, _is("written, imported or learned.")]
    created_at: Moment
    updated_at: Moment


class LibrarySkills(Document, frozen=True, kw_only=True):
    """A page of the library's matching skills, learned ones last."""

    total: Annotated[Count, _is("All that match.")]
    page: Positive
    skills: tuple[LibrarySkill, ...]


class LibraryVersion(Document, frozen=True, kw_only=True):
    """One version of a skill: who wrote it, when and why."""

    version: Positive
    author: str
    reason: ChangeReason
    run_id: Annotated[str | None, _is("The run that it comes from.")]
    at: Moment


class LibraryAssignment(Document, frozen=True, kw_only=True):
    """The only library skills that an issue or an agent gets; an empty list means none."""

    kind: TargetKind
    target: Target
    skills: tuple[str, ...]
    at: Moment


class LibrarySkillPage(Document, frozen=True, kw_only=True):
    """A skill with its history."""

    skill: LibrarySkill
    shown: Annotated[Positive, _is("The version of `file`.")]
    file: SkillFileText
    versions: Annotated[tuple[LibraryVersion, ...], _is("The newest first.")]
    assignments: Annotated[tuple[LibraryAssignment, ...], _is("Those that name the skill.")]


class LibraryDiff(Document, frozen=True, kw_only=True):
    """The difference between two versions of a skill."""

    name: SkillName
    old: Positive
    new: Positive
    diff: Annotated[str, _is("Unified; empty if both say the same.")]


class LibraryAssignments(Document, frozen=True, kw_only=True):
    """All assignments, those of issues last."""

    assignments: tuple[LibraryAssignment, ...]


class LibraryProposal(Document, frozen=True, kw_only=True):
    """A change of a skill that a person accepts or rejects."""

    id: Positive
    name: SkillName
    description: str
    base_version: Annotated[Count, _is("The version that it changes; 0 for a new skill.")]
    state: Annotated[str, _is("open, accepted or rejected.")]
    run_id: Annotated[str | None, _is("The run that it comes from.")]
    issue_identifier: Identifier | None
    transcript_seq: Annotated[Count | None, _is("A place in the transcript of the run.")]
    created_at: Moment
    decided_at: Moment | None
    decided_by: str | None
    reason: Annotated[str | None, _is("Why it was rejected.")]
    recommended: Annotated[
        bool | None, _is("Whether past issues recommend it; null if it was not evaluated.")
    ]


class LibraryProposals(Document, frozen=True, kw_only=True):
    """A page of proposals, the oldest first."""

    total: Count
    page: Positive
    proposals: tuple[LibraryProposal, ...]


class LibraryComparison(Comparison, Document, frozen=True, kw_only=True):
    """One past issue, on which agents worked again without and with the change."""

    verdict: Annotated[str, _is("better, worse or same.")]


class LibraryEvaluation(Document, frozen=True, kw_only=True):
    """The evaluation of a proposal by past issues."""

    recommended: Annotated[bool, _is("No issue got worse, and at least one got better.")]
    check: Annotated[str, _is("The command that judged: agent.library.check.")]
    base_version: Annotated[Count, _is("The version that it was compared with; 0 for none.")]
    comparisons: tuple[LibraryComparison, ...]
    without: Sums
    changed: Sums
    at: Moment


class LibraryProposalPage(Document, frozen=True, kw_only=True):
    """A proposal with its changes."""

    proposal: LibraryProposal
    file: SkillFileText
    diff: Annotated[str, _is("Unified, against the version that it changes.")]
    present_version: Annotated[
        int | None, _is("Of the skill; null without one. It cannot be accepted unless this is base_version.")
    ]
    findings: tuple[Finding, ...]
    evaluation: Annotated[LibraryEvaluation | None, _is("Null if it was not evaluated.")]


class LibraryCheck(Document, frozen=True, kw_only=True):
    """The library's check of a SKILL.md, which it does not store."""

    ok: Annotated[bool, _is("It can be stored.")]
    name: Annotated[str | None, _is("Of the skill; null if the file has none.")]
    findings: tuple[Finding, ...]


class LibraryChanged(Document, frozen=True, kw_only=True):
    """The library was changed, or was already in the requested state."""

    verb: str
    message: Annotated[str, _is("What was done, for people.")]
    name: Annotated[SkillName | None, _is("Null for an assignment.")]
    version: Annotated[Positive | None, _is("The newest version; null where there is none.")]
    findings: Annotated[tuple[Finding, ...], _is("New parts of the text that need a careful look.")] = ()


class LibraryDraft(Document, frozen=True, kw_only=True):
    """A SKILL.md to check; `name` is the name of the skill that it changes, if it is not new."""

    file: SkillFileText
    name: SkillName | UnsetType = UNSET


class LibrarySave(Document, frozen=True, kw_only=True):
    """Change or add a skill: `base_version` is the version on which the edit is based; 0 for a new one."""

    file: SkillFileText
    base_version: Annotated[int, Meta(ge=0, le=MAX_COUNT)]
    reason: ChangeReason | UnsetType = UNSET


class LibraryRemove(Document, frozen=True, kw_only=True):
    """Remove a skill; its versions stay in the file."""

    name: SkillName
    reason: ChangeReason | UnsetType = UNSET


class LibraryRevert(Document, frozen=True, kw_only=True):
    """Make an earlier version the newest one."""

    name: SkillName
    version: LibraryNumber
    reason: ChangeReason | UnsetType = UNSET


class LibraryAssign(Document, frozen=True, kw_only=True):
    """Assign exactly these skills; an empty list means none, and null drops the assignment."""

    kind: TargetKind
    target: Annotated[Target, Meta(min_length=1, max_length=255)]
    skills: Annotated[tuple[str, ...], Meta(max_length=500)] | None


class LibraryAccept(Document, frozen=True, kw_only=True):
    """Turn a proposal into a version."""

    id: LibraryNumber


class LibraryReject(Document, frozen=True, kw_only=True):
    """Reject a proposal, so that it is not made again."""

    id: LibraryNumber
    reason: ChangeReason | UnsetType = UNSET


class Setting(Document, frozen=True, kw_only=True):
    """A setting in force."""

    key: str
    value: str
    given: Annotated[bool, _is("WORKFLOW.md sets it; otherwise it is the default.")]


CHECKS = (
    "version",
    "yaml",
    "workflow",
    "secrets",
    "git",
    "git_identity",
    "repository",
    "push",
    "agent",
    "verify",
    "tracker",
    "hosts",
    "forge",
    "tracing",
    "state_directory",
    "lock",
    "journal",
    "disk",
    "clock",
    "user_namespaces",
    "open_files",
    "children",
    "processes",
    "workspaces",
    "metrics",
    "notifications",
)
"""The checks of `symphony doctor`."""


class DoctorCheck(ClosedDocument, frozen=True, kw_only=True):
    """The result of one check."""

    name: Annotated[str, Meta(extra_json_schema={"enum": list(CHECKS)})]
    status: Annotated[str, Meta(extra_json_schema={"enum": ["ok", "warning", "error"]})]
    message: Annotated[str, Meta(extra_json_schema={"minLength": 1})]
    hint: Annotated[
        Annotated[str, Meta(extra_json_schema={"minLength": 1})] | None,
        _is("How to fix it; null where it is ok."),
    ]


class Diagnosis(Document, frozen=True, kw_only=True):
    """The result of `symphony doctor` on the machine of the daemon."""

    checked_at: Moment
    checks: tuple[DoctorCheck, ...]


class System(Document, frozen=True, kw_only=True):
    """The program, its places, and the settings in force; secrets are masked."""

    generated_at: Moment
    version: str
    commit: str | None
    python: str
    platform: str
    pid: Count
    workflow: str
    state_directory: str | None
    settings: tuple[Setting, ...]
    diagnosis: Diagnosis | None = None
    traces_failure: Annotated[
        str | None, _is("Why traces could not be sent the last time; null if they were, or are off.")
    ] = None


class Refresh(Document, frozen=True, kw_only=True):
    """A poll was requested."""

    queued: bool
    coalesced: Annotated[bool, _is("It shares a poll that is under way or due.")]
    requested_at: Moment
    operations: tuple[str, ...]


class Verb(Document, frozen=True, kw_only=True):
    """An operator's action was carried out."""

    verb: Annotated[str, _is("stop, retry, unblock, answer, approve, deny, move, pause, resume or drain.")]
    issue_identifier: Annotated[str | None, _is("Null for an action on the daemon.")]
    changed: Annotated[
        bool, _is("False if it was so already: paused, not paused, draining, in that state of the tracker.")
    ]
    message: Annotated[str, _is("What happens now, in one line.")]
    requested_at: Moment
    before: Annotated[
        str | None, _is("The state that an issue was moved from; null for all else, and if it did not move.")
    ] = None


class ReviewCommit(Document, frozen=True, kw_only=True):
    """A commit of a change."""

    commit: str
    author: Annotated[str, _is("Untrusted text.")]
    at: Annotated[str, _is("When it was made, as git has it.")]
    subject: Annotated[str, _is("Untrusted text.")]


class ReviewFile(Document, frozen=True, kw_only=True):
    """A file of a change."""

    path: Annotated[str, _is("Its new name; bytes that are not UTF-8 are escaped.")]
    old_path: Annotated[str | None, _is("Null if its name did not change.")]
    status: Annotated[str, _is("added, modified, deleted, renamed, copied or retyped.")]
    insertions: Annotated[int | None, _is("Null if no lines are compared: it is binary or large.")]
    deletions: Annotated[int | None, _is("As insertions.")]
    is_link: Annotated[bool, _is("It is a link to a commit of another repository.")] = False
    viewed: Annotated[bool, _is("The person who asks has marked it as read.")] = False


class ReviewLeft(Document, frozen=True, kw_only=True):
    """A draft of a browser whose sign-in has ended. Only its author knows whose it is."""

    at: Moment
    message: str
    comments: Annotated[Count, _is("The number of comments on lines.")]


class ReviewDecided(Document, frozen=True, kw_only=True):
    """A decision on this commit."""

    decision: Annotated[str, _is("send_back or approve.")]
    mine: Annotated[bool, _is("By the person who asks.")]
    at: Moment


class ReviewDelivery(Document, frozen=True, kw_only=True):
    """A commit that a run delivered on the branch."""

    head: str
    run_id: str
    at: Annotated[Moment, _is("When the run ended.")]


class Review(Document, frozen=True, kw_only=True):
    """The last delivered change of an issue, and the possible decisions about it."""

    generated_at: Moment
    issue_id: IssueId
    issue_identifier: Identifier
    title: Title
    state: TrackerState
    status: Annotated[str, _is("As in the document of the issue.")]
    branch: str
    start: Annotated[str, _is("The commit at which the branch began.")]
    since: Annotated[str, _is("The commit that is compared with: start, or an earlier head.")]
    head: Annotated[
        str, _is("The commit that is shown: the last delivery, unless an earlier one is asked for.")
    ]
    last: Annotated[str, _is("The commit of the last delivery, which a decision is about.")]
    deliveries: Annotated[
        tuple[ReviewDelivery, ...], _is("The newest first, as far as the journal has them.")
    ]
    looked_at: Annotated[str | None, _is("The head that the person saw before; null if there is none.")]
    summary: Annotated[str | None, _is("The last message of the agent, one line; untrusted text.")]
    verified: Annotated[Verified | None, _is("Null if this head was not verified.")]
    unverified: Annotated[bool, _is("The settings have checks, and this head did not pass them.")]
    pull_request: Annotated[PullRequest | None, _is("Null if none is wanted.")]
    pull_request_url: str | None
    rehearsal: Annotated[RehearsedBranch | None, _is("How it merges; null until that is known.")]
    commits: Annotated[tuple[ReviewCommit, ...], _is("The newest first, at most 100.")]
    files: Annotated[tuple[ReviewFile, ...], _is("At most 5,000.")]
    files_left_out: Count
    insertions: Count
    deletions: Count
    approval: Annotated[str, _is("What an approval does: merge, land, open or by_hand.")]
    command: Annotated[str, _is("The command with which a person merges.")]
    verify: Annotated[Choice | None, _is("To verify the last delivery; null if there is none.")]
    send_back: Choice
    approve: Choice
    message: Annotated[str, _is("The overall text that the person has drafted.")]
    comments: Annotated[tuple[LineComment, ...], _is("What the person has drafted.")]
    left: Annotated[ReviewLeft | None, _is("What a browser can go on with.")]
    others: Annotated[tuple[Moment, ...], _is("When other people last wrote a draft about it.")]
    decided: ReviewDecided | None


class ReviewOutcome(Document, frozen=True, kw_only=True):
    """A decision was taken."""

    issue_identifier: Identifier
    decision: str
    done: Annotated[bool, _is("False if it is recorded and still being carried out.")]
    way: Annotated[str | None, _is("Of an approval: merge, land, open or by_hand.")]
    base: Annotated[str | None, _is("The branch that has the work now; null if nothing was merged.")]
    commit: Annotated[str | None, _is("The commit that this branch is at.")]
    state: Annotated[str | None, _is("Where the issue is moved; null if it is not moved.")]
    message: Annotated[str, _is("What was done, in one line.")]
    requested_at: Moment


class CreatedIssue(ListedIssue, frozen=True, kw_only=True):
    """An issue was created at the tracker."""

    state: str


class Link(Document, frozen=True, kw_only=True):
    """A link that signs one browser in."""

    url: Annotated[str, _is("The link. It works once, and is a secret until then.")]
    address: Annotated[str, _is("Where the pages are.")]
    expires_at: Moment


class Change(Document, frozen=True, kw_only=True):
    """The data of an event `changed`."""

    version: Annotated[int, _is("Grows with each change; begins anew with each daemon.")]
    scope: Annotated[str, _is("board, issue:<identifier>, library, or all: read everything again.")]


class Health(Document, frozen=True, kw_only=True):
    """The event loop answers."""

    status: Annotated[str, Meta(extra_json_schema={"const": "ok"})] = "ok"


class WebhookAnswer(Document, frozen=True, kw_only=True):
    """The answer to a webhook."""

    status: Annotated[str, _is("accepted, duplicate, ignored or handshake.")]


class Description(Document, frozen=True, kw_only=True):
    """An OpenAPI 3.1 document."""

    openapi: str
    paths: dict[str, Any]


class ErrorFacts(Document, frozen=True, kw_only=True):
    """What went wrong."""

    code: Annotated[str, _is("Stable.")]
    message: str
    hint: Annotated[str, _is("What to do next.")] | UnsetType = UNSET


class Error(Document, frozen=True, kw_only=True):
    """The envelope of every error."""

    error: ErrorFacts
    generated_at: Moment | UnsetType = UNSET


# --- notifications ---------------------------------------------------------------------------------------


class NotifiedIssue(ListedIssue, frozen=True, kw_only=True):
    """The issue that a notification is about."""

    issue_url: Annotated[str | None, _is("At the tracker; null if it is not a plain http(s) address.")]
    page_url: Annotated[str | None, _is("On Symphony's page; null without page_url.")]
    state: TrackerState


class Notification(Document, frozen=True, kw_only=True):
    """A notification for people."""

    id: Annotated[str, _is("The same in every delivery of it.")]
    event: Annotated[str, _is("A name of notify[].on: ready, question, blocked and so on.")]
    at: Annotated[Moment, _is("When it happened.")]
    reminder: Annotated[bool, _is("It was sent before, and no person has acted.")]
    message: Annotated[str, _is("One line; may contain untrusted text of an agent or a tracker.")]
    hint: Annotated[str | None, _is("What to do.")]
    code: Annotated[str | None, _is("The stable category of the failure behind it.")]
    issue: Annotated[NotifiedIssue | None, _is("Null if it is about the daemon.")]


class Notifications(Document, frozen=True, kw_only=True):
    """The input of a webhook or a command of `notify`."""

    id: Annotated[str, _is("Of this delivery; a repeated one with the same content has the same id.")]
    sent_at: Moment
    target: Annotated[str, _is("The name of the target.")]
    text: Annotated[str, _is("All of it in one line, without text of others.")]
    notifications: Annotated[tuple[Notification, ...], _is("The oldest first.")]
    dropped: Annotated[Count, _is("Older ones for which there was no room while the target did not answer.")]
    version: Annotated[str, Meta(extra_json_schema={"const": "1"})] = "1"


# --- request bodies --------------------------------------------------------------------------------------


class Answer(ClosedDocument, frozen=True, kw_only=True):
    """A person's answer to the question of an agent."""

    text: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 20_000})]


class NewComment(ClosedDocument, frozen=True, kw_only=True):
    """A person's comment on an issue."""

    text: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 20_000})]


class ReviewLine(ClosedDocument, frozen=True, kw_only=True):
    """A comment on a line of a change."""

    file: Annotated[str, _is("As the review names it.")]
    line: Positive
    text: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 20_000})]
    old: Annotated[bool, _is("A line of the file as it was before the change.")] = False


class ReviewGiven(ClosedDocument, frozen=True, kw_only=True):
    """A decision about the commit `head` that the person saw."""

    decision: Annotated[str, Meta(extra_json_schema={"enum": ["send_back", "approve"]})]
    head: Annotated[str | None, _is("Null for the commit that this reviewer was shown last.")] = None
    message: Annotated[str, Meta(extra_json_schema={"maxLength": 20_000})] = ""
    comments: tuple[ReviewLine, ...] = ()
    unverified: Annotated[bool, _is("Approve it although it did not pass its verification.")] = False
    reviewer: Annotated[str, _is("Whose look and draft count; any name.")] = "api"


class Move(ClosedDocument, frozen=True, kw_only=True):
    """Where to move an issue."""

    state: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255})]


class NewIssue(ClosedDocument, frozen=True, kw_only=True):
    """An issue to create."""

    title: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 250})]
    body: Annotated[str, Meta(extra_json_schema={"maxLength": 30_000}), _is("In Markdown.")] = ""
    state: Annotated[str | None, _is("The state to begin in; the first active one by default.")] = None
    labels: tuple[str, ...] = ()
    skill: Annotated[str | None, _is("A skill that its sessions get: it adds the label `skill:<name>`.")] = (
        None
    )


class ScheduleChoice(ClosedDocument, frozen=True, kw_only=True):
    """The name of a schedule."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255})]


class Stars(ClosedDocument, frozen=True, kw_only=True):
    """A person's feedback on an issue."""

    stars: Annotated[int, Meta(ge=1, le=5, extra_json_schema={"enum": [1, 2, 3, 4, 5]})]
    comment: Annotated[str, Meta(extra_json_schema={"maxLength": 20_000})] = ""
    learn: Annotated[bool, _is("Let a learning run improve skills by it.")] = True


class JobChoice(ClosedDocument, frozen=True, kw_only=True):
    """The jobs to try or delete."""

    key: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 1_000})]
    """The key of one job, or the identifier of an issue for all of its jobs."""


class EmptyBody(ClosedDocument, frozen=True, kw_only=True):
    """An empty object."""


def feedback_effect(feedback: Feedback) -> str:
    """The effect of feedback, in one line."""
    if feedback.learning.state == "off":
        return f"the feedback is stored; nothing is learned from it: {feedback.learning.reason}"
    follows = feedback.learning.reason or "a person accepts what it proposes"
    return f"the feedback is stored; a learning run follows, and {follows}"


def utc_text(moment: datetime) -> str:
    """A time in the form of the API: UTC, ISO 8601, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def wall_text(wall_ms: int) -> str:
    """Unix time in milliseconds in the form of the API."""
    return utc_text(datetime.fromtimestamp(wall_ms / 1000, UTC))


class Explanation(ClosedDocument, frozen=True, kw_only=True):
    """The answer to "why is it (not) running?"."""

    running: Annotated[bool, _is("Whether an agent is at work on it.")]
    code: Annotated[
        str, _is("Stable: running, retrying, blocked, ready, ended, or the code of what it waits for.")
    ]
    answer: Annotated[str, _is("One sentence.")]
    since: Annotated[Moment | None, _is("When that began; null where it is not known.")]
    next: Annotated[str, _is("What happens next without a person.")]
    advice: Annotated[str | None, _is("What a person can do; null where nothing is needed.")]

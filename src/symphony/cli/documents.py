"""The documents that commands print with `--json`: one type each, from which `docs/schemas` is made.

Types that build on a document of the API are open, because fields may be added there. The others have exactly
the fields defined here.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from symphony import domain
from symphony.api import models
from symphony.domain import Count, FileChange, SkillChanges, WorkSize
from symphony.journal.transcripts import TranscriptEntry
from symphony.problem import Problem


def _is(description: str) -> Meta:
    return Meta(description=description)


Text = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
Source = Annotated[Literal["daemon", "files"], _is("Who answered.")]


# --- of a daemon, or of the files where none runs --------------------------------------------------------


class DaemonInfo(models.ClosedDocument, frozen=True, kw_only=True):
    """The daemon that was asked."""

    pid: models.Positive
    started_at: Annotated[models.Moment | None, _is("When its process began.")]
    host: Annotated[str | None, _is("Where it listens on TCP; null where it does not.")]
    port: int | None
    socket: Annotated[str, _is("Its control socket.")]


class Status(models.State, frozen=True, kw_only=True):
    """`symphony status --json`: the state of the API, and its source."""

    source: Source
    daemon: Annotated[DaemonInfo | None, _is("The daemon that was asked; null where none runs.")]
    notice: Annotated[str | None, _is("Why there is no daemon, in one line, if that is unexpected.")] = None


class KnownIssue(models.Issue, frozen=True, kw_only=True):
    """An issue of the API, and its source."""

    source: Source
    daemon: Annotated[DaemonInfo | None, _is("The daemon that was asked; null where none runs.")]


class Explained(KnownIssue, frozen=True, kw_only=True):
    """`symphony explain --json`: the issue of the API, its source, and the explanation."""

    explanation: models.Explanation
    new_comments: Annotated[
        tuple[models.PromptComment, ...], _is("Comments of people that the next run is told.")
    ] = ()


# --- status --watch and status --all ---------------------------------------------------------------------


class UnavailableReason(models.ClosedDocument, frozen=True, kw_only=True):
    """Why the status cannot be read now."""

    code: str
    message: str
    hint: str | None


class StatusUnavailable(models.ClosedDocument, frozen=True, kw_only=True):
    """A line of `symphony status --watch --json` while the status cannot be read."""

    source: None = None
    daemon: None = None
    error: UnavailableReason


class DaemonRow(models.ClosedDocument, frozen=True, kw_only=True):
    """One daemon."""

    name: Annotated[str, _is("Of the directory of its WORKFLOW.md; else of its state directory.")]
    status: Annotated[
        Literal["running", "silent", "dead"],
        _is(
            "running: it answers. silent: its process is there and does not answer. "
            "dead: its process is gone without a normal end."
        ),
    ]
    state_dir: str
    user: Annotated[str, _is("Who owns the state directory.")]
    workflow: Annotated[str | None, _is("The real path of the file it serves.")]
    pid: models.Positive
    started_at: Annotated[models.Moment | None, _is("When its process began; null for one that is gone.")] = (
        None
    )
    health: Annotated[str | None, _is("health.status of the API; null where it does not answer.")] = None
    counts: models.Counts | None = None
    version: str | None = None
    commit: str | None = None
    socket: Annotated[str | None, _is("Its control socket.")] = None
    host: Annotated[str | None, _is("Where it listens on TCP.")] = None
    port: int | None = None
    message: Annotated[str | None, _is("What is wrong with it.")] = None
    hint: Annotated[str | None, _is("What to do about that.")] = None


class SkippedDirectory(models.ClosedDocument, frozen=True, kw_only=True):
    """A place that was not looked at."""

    path: str
    reason: str


class Daemons(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony status --all --json`: the daemons of this user, or for root of this host."""

    daemons: Annotated[tuple[DaemonRow, ...], _is("By name. Daemons that ended in order are left out.")]
    skipped: Annotated[tuple[SkippedDirectory, ...], _is("Places that were not looked at.")]


# --- orders ----------------------------------------------------------------------------------------------


class OrderResult(models.ClosedDocument, frozen=True, kw_only=True):
    """What came of an order about one of several issues."""

    issue_identifier: str
    done: Annotated[bool, _is("False if it was refused, or there is no such issue.")]
    changed: Annotated[bool, _is("As in the answer about one issue.")] = False
    message: Annotated[str, _is("What happens now, or why nothing does; in one line.")]
    hint: Annotated[str | None, _is("What to do instead.")] = None


class Orders(models.ClosedDocument, frozen=True, kw_only=True):
    """`stop`, `retry`, `unblock` and `move` with `--json` and several issues."""

    verb: str
    orders: Annotated[tuple[OrderResult, ...], _is("In the order of the command line.")]


# --- check, doctor, health -------------------------------------------------------------------------------


_SECTIONS = (
    *("tracker", "workspace", "polling", "hooks", "agent", "codex"),
    *("server", "worker", "observability", "retention"),
)
_NAMES = {"type": "array", "items": {"type": "string"}}
_TRACKER = {
    "type": "object",
    "required": ["kind", "provider", "required_labels", "active_states", "terminal_states"],
    "properties": {
        "kind": {"type": "string"},
        "provider": {"type": "object"},
        "required_labels": _NAMES,
        "active_states": _NAMES,
        "terminal_states": _NAMES,
    },
}
EffectiveSettings = Annotated[
    dict[str, dict[str, Any] | list[Any]],
    Meta(extra_json_schema={"required": list(_SECTIONS), "properties": {"tracker": _TRACKER}}),
]


class CheckedWorkflow(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony check --json`."""

    path: Annotated[str, _is("The workflow file, absolute.")]
    valid: Annotated[bool, _is("Whether a start would take the file: there is no error.")]
    problems: Annotated[tuple[Problem, ...], _is("Errors first, then warnings.")]
    settings: Annotated[
        EffectiveSettings | None,
        _is("The effective settings by section, secrets masked; null where the file is not valid."),
    ]


class Doctor(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony doctor --json`."""

    workflow: Text
    ok: Annotated[bool, _is("No error; there may be warnings.")]
    exit_code: Annotated[int, Meta(extra_json_schema={"enum": [0, 1, 3, 4, 5]})]
    checks: Annotated[tuple[models.DoctorCheck, ...], Meta(extra_json_schema={"minItems": 1})]


class Liveness(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony health --json`."""

    healthy: Annotated[bool, _is("The daemon answered in time.")]
    pid: Annotated[models.Positive | None, _is("Its process; null where it did not answer.")]
    problem: Annotated[Text | None, _is("Why it is not healthy; null where it is.")]


# --- clean, diff, replay, service ------------------------------------------------------------------------


class CleanedItem(models.ClosedDocument, frozen=True, kw_only=True):
    """One thing and what became of it."""

    kind: Literal["workspace", "host", "log", "damaged_journal", "runs"]
    name: Text
    host: Annotated[str | None, _is("The host where it is; `null` for this machine.")] = None
    path: str | None
    size: Annotated[Count | None, _is("Bytes.")]
    outcome: Annotated[
        Literal["removed", "would_remove", "kept", "failed"],
        _is("`would_remove` in a dry run, `removed` else."),
    ]
    reason: Text


class Cleaned(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony clean --json`: everything that was looked at."""

    dry_run: bool
    daemon: Annotated[int | None, _is("The process of the daemon that runs.")]
    items: tuple[CleanedItem, ...]
    bytes: Annotated[Count, _is("Of what was, or would be, removed.")]


class BranchDiff(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony diff --json`."""

    issue_identifier: str
    branch: Annotated[str, Meta(extra_json_schema={"pattern": "^symphony/"})]
    base: Annotated[str, _is("The branch that it is compared with, from where both were one.")]
    work: WorkSize
    files: tuple[FileChange, ...]


Command = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={"required": ["command"], "properties": {"command": {"type": "string"}}}),
]


class ReplayedInput(models.ClosedDocument, frozen=True, kw_only=True):
    """One input, and what was decided."""

    number: models.Positive
    at_ms: int
    input: str
    commands: tuple[Command, ...]
    recorded: Annotated[tuple[Command, ...] | None, _is("What was decided then, where it differs.")]
    same: Annotated[bool | None, _is("Null where the recording holds no decisions.")]
    crashed: str | None


class Replayed(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony replay --json`."""

    recording: Text
    epoch: Annotated[str, _is("The daemon's name of its own life, the stem of its run ids.")]
    inputs: Annotated[Count, _is("That the recording holds.")]
    cut: Annotated[bool, _is("The last line was half written and is left out.")]
    differences: tuple[models.Positive, ...]
    steps: tuple[ReplayedInput, ...]


class ServiceState(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony service status --json`: one instance; the words are systemd's own."""

    name: Annotated[Text, _is("Of the instance.")]
    unit: Annotated[str, Meta(extra_json_schema={"pattern": "^symphony@.+\\.service$"})]
    of_user: Annotated[bool, _is("Whether it is a service of the person.")]
    installed: Annotated[bool, _is("Whether `service install` made it.")]
    workflow: Annotated[str | None, _is("The file it serves.")]
    active: Annotated[str, _is("ActiveState: active, failed, activating, …")]
    sub: Annotated[str, _is("SubState: running, auto-restart, …")]
    result: Annotated[str, _is("How it ended last: success, exit-code, watchdog, …")]
    enabled: Annotated[str, _is("Whether it starts at boot: enabled, disabled.")]
    status_text: Annotated[str | None, _is("What the daemon said last, with its counts.")]
    main_pid: Annotated[int | None, _is("Null where it does not run.")]
    restarts: Annotated[Count, _is("Since it was last started by hand or at boot.")]
    exit_status: Annotated[Count, _is("Of the last end: an exit code or a signal.")]
    since: Annotated[str | None, _is("When it became active.")]


# --- logs ------------------------------------------------------------------------------------------------

Instant = Annotated[
    str, Meta(extra_json_schema={"pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"})
]


class TranscriptLine(models.ClosedDocument, frozen=True, kw_only=True):
    """A line of `symphony transcript --json`: an entry, or a note on missing ones."""

    run_id: str
    entry: TranscriptEntry | None = None
    missing: str | None = None


class LoggedEvent(models.ClosedDocument, frozen=True, kw_only=True, tag_field="type", tag="event"):
    """Something that happened."""

    id: Annotated[models.Positive, _is("Rises with time.")]
    at: Instant
    issue_id: str
    issue_identifier: str
    run_id: Annotated[str | None, _is("Null outside of a run.")]
    event: str
    message: str


class LoggedBegin(models.ClosedDocument, frozen=True, kw_only=True, tag_field="type", tag="run_began"):
    """A run began; `run` is null where the journal has forgotten it."""

    run_id: str
    run: models.PastRun | None


class LoggedEnd(models.ClosedDocument, frozen=True, kw_only=True, tag_field="type", tag="run_ended"):
    """A run ended; `run` is null where the journal has forgotten it."""

    run_id: str
    run: models.PastRun | None


# --- tracker and issue -----------------------------------------------------------------------------------


class CheckedState(models.ClosedDocument, frozen=True, kw_only=True):
    """A state of the tracker, of the settings, or of both."""

    name: Text
    roles: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    extra_json_schema={
                        "enum": [
                            "active",
                            "terminal",
                            "on_start",
                            "on_block",
                            "on_feedback",
                            "merged_state",
                        ]
                    }
                ),
            ],
            ...,
        ],
        _is("The settings that name it."),
    ]
    found: Annotated[bool, _is("The tracker has it.")]


class ServiceLimit(models.ClosedDocument, frozen=True, kw_only=True):
    """What is left of one limit of the service, and when it begins anew."""

    name: str
    limit: int
    remaining: int
    resets_in_ms: Count


class TrackerProblem(models.ClosedDocument, frozen=True, kw_only=True):
    """Something to fix."""

    severity: Literal["error", "warning"]
    message: Text
    hint: Text


class ForgeCheck(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony forge check --json`."""

    ok: Annotated[bool, _is("The token may do all that is known to be needed.")]
    kind: Text
    repo: Text
    login: Annotated[Text, _is("Whose token it is.")]
    missing: Annotated[tuple[Text, ...], _is("What the token lacks, in words.")]
    limits: Annotated[tuple[Text, ...], _is("What no token can do on this forge, in words.")]


class PullCheck(models.ClosedDocument, frozen=True, kw_only=True):
    """A check of the last commit for which the forge has any."""

    name: str
    state: Literal["pending", "passed", "failed"]
    required: bool
    at_head: Annotated[bool, _is("It ran on the last commit of the branch.")]
    summary: str | None
    url: str | None


class PullReview(models.ClosedDocument, frozen=True, kw_only=True):
    """What a reviewer said last; several reviews of one person are several entries, oldest first."""

    login: str
    state: Literal["approved", "changes_requested", "commented"]
    can_write: Annotated[bool, _is("The reviewer may write to the repository.")]


class OpenThread(models.ClosedDocument, frozen=True, kw_only=True):
    """An unresolved conversation on a place of the change."""

    path: str | None
    line: int | None
    login: Annotated[str, _is("Who wrote last.")]
    body: Annotated[str, _is("What they wrote.")]


class PullRequestShown(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony pr --json`."""

    issue_identifier: str
    number: int
    url: str
    title: str
    state: Literal["open", "closed", "merged"]
    draft: bool
    branch: str
    base: str
    head: Annotated[str, _is("The last commit of the branch.")]
    conflicts: Annotated[bool | None, _is("Null while the forge has not computed it.")]
    rules_met: Annotated[
        bool | None, _is("The required reviews are there; null where the forge requires none.")
    ]
    armed: Annotated[bool, _is("The forge merges it as soon as it may.")]
    queued: Annotated[bool, _is("It is in a merge queue.")]
    complete: Annotated[bool, _is("False where a list was too long to be read.")]
    labels: tuple[str, ...]
    checks: tuple[PullCheck, ...]
    reviews: tuple[PullReview, ...]
    open_threads: tuple[OpenThread, ...]
    code: Annotated[
        str | None,
        _is("What the daemon last said it waits for; null if it does not watch it."),
    ]
    message: Annotated[str | None, _is("The same in one sentence.")]


class TrackerCheck(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony tracker check --json`."""

    ok: Annotated[bool, _is("No error; there may be warnings.")]
    kind: Text
    login: Annotated[str | None, _is("Whose credential it is, where there is one.")]
    scope: Annotated[str | None, _is("What is looked at: a project, a repository, a folder.")]
    states: tuple[CheckedState, ...]
    limits: tuple[ServiceLimit, ...]
    issues: Annotated[Count, _is("How many are in active states.")]
    sample: Annotated[domain.Issue | None, _is("The first of them, as the daemon sees it.")]
    problems: tuple[TrackerProblem, ...]


class IssueMoved(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony tracker move --json` and `symphony issue move --json`."""

    issue_identifier: str
    before: str
    state: str


class IssueCommented(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony tracker comment --json` and `symphony issue comment --json`."""

    issue_identifier: str
    comment_id: str


class BoardIssue(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony issue new --json`: an issue of a Markdown board."""

    id: str
    title: str
    state: str
    labels: tuple[str, ...]
    priority: Annotated[int | None, _is("1 to 4, the most urgent first.")]
    assignee: str | None
    blocked_by: tuple[domain.Blocker, ...]
    dispatchable: bool
    reason: Annotated[str | None, _is("Why it is not dispatchable.")]
    created: Annotated[str | None, _is("RFC 3339.")]
    path: Annotated[str, _is("Its file.")]


class BoardComment(models.ClosedDocument, frozen=True, kw_only=True):
    """A comment on an issue of a Markdown board."""

    id: str
    author: str
    created: Annotated[str | None, _is("RFC 3339.")]
    body: str
    daemon: Annotated[bool, _is("The daemon wrote it.")]


class BoardIssueShown(BoardIssue, frozen=True, kw_only=True):
    """`symphony issue show --json`: the issue with everything that is said about it."""

    description: str | None
    comments: tuple[BoardComment, ...]


class BoardProblem(models.ClosedDocument, frozen=True, kw_only=True):
    """A file of the board that is no issue."""

    id: str
    where: Annotated[str | None, _is("path:line")]
    message: str


class BoardListing(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony issue list --json`."""

    board: Annotated[str, _is("Its directory.")]
    issues: tuple[BoardIssue, ...]
    problems: tuple[BoardProblem, ...]


# --- demo ------------------------------------------------------------------------------------------------


class DemoIssue(models.ClosedDocument, frozen=True, kw_only=True):
    """An issue of the demo after the work."""

    identifier: str
    state: str
    attempts: Count
    turns: Count
    branch: str | None
    commits: Count
    workspace: str | None


class DemoComment(models.ClosedDocument, frozen=True, kw_only=True):
    """A comment on one of them."""

    issue_identifier: str
    id: str
    mine: Annotated[bool, _is("The daemon wrote it.")]
    body: str


class DemoLearned(models.ClosedDocument, frozen=True, kw_only=True):
    """What the demo learned from feedback."""

    skill: Text
    version: Annotated[int, _is("The version that was accepted.")]


class DemoResult(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony demo --json`."""

    ok: Annotated[bool, _is("Every issue is done and has commits.")]
    dir: Annotated[str, _is("Where everything is.")]
    issues: tuple[DemoIssue, ...]
    comments: tuple[DemoComment, ...]
    learned: Annotated[DemoLearned | None, _is("Null without --learn, or if nothing was learned.")] = None


# --- skills ----------------------------------------------------------------------------------------------


Scope = Annotated[str, Meta(extra_json_schema={"enum": ["project", "user", "extra"]})]


class SkillProblems(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony skills check --json`."""

    problems: tuple[Problem, ...]


class SkillRoot(models.ClosedDocument, frozen=True, kw_only=True):
    """A directory of skills."""

    scope: Scope
    path: str


class ShownSkill(models.ClosedDocument, frozen=True, kw_only=True):
    """A skill."""

    name: Text
    description: str
    when_to_use: str
    path: Text
    scope: Scope
    enabled: Annotated[bool, _is("What the settings say of it.")]
    listed: Annotated[bool, _is("Whether it is in the block.")]
    sha256: Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9a-f]{64}$"})] | None
    phases: tuple[str, ...]
    priority: int
    for_people: Annotated[
        str | None, _is("What keeps it for people: the key, and its file if that is another one.")
    ] = None


class HiddenSkill(models.ClosedDocument, frozen=True, kw_only=True):
    """A usable skill that is hidden, because an earlier root has one with its name."""

    name: str
    path: str
    scope: Scope
    by: Annotated[str, _is("The path of the one that is listed instead.")]


class FolderElsewhere(models.ClosedDocument, frozen=True, kw_only=True):
    """A folder of the repository with skills."""

    path: Text
    skills: models.Positive


class SkillListing(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony skills list --json`."""

    roots: tuple[SkillRoot, ...]
    skills: tuple[ShownSkill, ...]
    shadowed: tuple[HiddenSkill, ...]
    problems: tuple[Problem, ...]
    uncommitted: Annotated[
        tuple[str, ...], _is("Paths of SKILL.md files that no session sees before they are committed.")
    ]
    elsewhere: Annotated[
        tuple[FolderElsewhere, ...], _is("Folders with skills that sessions do not see.")
    ] = ()


class SkillDetail(ShownSkill, frozen=True, kw_only=True):
    """`symphony skills show --json`."""

    file: Annotated[str, _is("Absolute.")]
    shadows: tuple[str, ...]
    problems: tuple[Problem, ...]
    body: Annotated[str | None, _is("Null where the file cannot be read.")]
    cut: Annotated[bool, _is("The body goes on beyond 512 KiB.")]
    files: Annotated[tuple[str, ...], Meta(extra_json_schema={"maxItems": 100})]
    more_files: Count


class UnlistedSkill(models.ClosedDocument, frozen=True, kw_only=True):
    """A skill that is not in the block."""

    name: str
    reason: Annotated[
        str,
        Meta(
            extra_json_schema={"enum": ["count", "budget", "disabled", "not_included", "for_people", "phase"]}
        ),
    ]


class SkillBlock(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony skills prompt --json`."""

    block: str | None
    listed: tuple[str, ...]
    dropped: tuple[UnlistedSkill, ...]
    shortened: tuple[str, ...]
    problems: tuple[Problem, ...]


class FoundSkill(ShownSkill, frozen=True, kw_only=True):
    """A skill that a search finds."""

    score: Annotated[float, Meta(gt=0)]


class SkillHits(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony skills search --json`: the best first."""

    query: str
    hits: tuple[FoundSkill, ...]


# --- instructions ----------------------------------------------------------------------------------------


Origin = Annotated[
    str,
    Meta(
        description="What was read: the source, the last good copy, the fallback, or nothing.",
        extra_json_schema={"enum": ["source", "last_good", "fallback", "nothing"]},
    ),
]
Digest = Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9a-f]{64}$"})]


class ShownModule(models.ClosedDocument, frozen=True, kw_only=True):
    """A module of instructions."""

    name: Text
    file: Text
    priority: int
    phases: Annotated[tuple[str, ...], _is("Empty for all.")]
    chars: Count
    sha256: Digest
    selected: Annotated[bool, _is("Whether a session of the phase gets it.")]


class InstructionListing(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony instructions list --json`."""

    source: Annotated[str, Meta(extra_json_schema={"enum": ["embedded", "local", "remote"]})]
    place: Annotated[Text, _is("The directory or address of the manifest.")]
    origin: Origin
    sha256: Annotated[Digest | None, _is("Of the manifest and its modules; null without a manifest.")]
    phase: Annotated[str | None, _is("The phase that was asked for; null for all modules.")]
    modules: Annotated[tuple[ShownModule, ...], _is("In their order.")]
    dropped: Annotated[tuple[str, ...], _is("Modules of the phase that do not fit.")]
    problems: tuple[Problem, ...]


class ComposedInstructions(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony instructions compose --json`."""

    phase: str | None
    text: str | None
    chars: Count
    modules: tuple[str, ...]
    dropped: tuple[str, ...]
    origin: Origin
    problems: tuple[Problem, ...]


class InstructionProblems(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony instructions check --json`."""

    problems: tuple[Problem, ...]


class NewInstructions(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony instructions init --json`."""

    path: Annotated[Text, _is("The directory, absolute.")]
    files: tuple[str, ...]


# --- exchange of skills ----------------------------------------------------------------------------------


class MovedSkill(models.ClosedDocument, frozen=True, kw_only=True):
    """A skill that was copied, or was to be."""

    name: str
    source: Annotated[Text, _is("Its folder or file, as the source names it.")]
    path: Annotated[Text, _is("Where it is now, or would be.")]
    reason: Annotated[str | None, _is("Why it was skipped; null else.")]
    problems: tuple[Problem, ...]


class SkillsExported(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony skills export --json`, and that of `symphony library export`."""

    target: str
    dry_run: bool
    created: tuple[MovedSkill, ...]
    updated: tuple[MovedSkill, ...]
    unchanged: tuple[MovedSkill, ...]
    skipped: tuple[MovedSkill, ...]


class SkillSource(models.ClosedDocument, frozen=True, kw_only=True):
    """Where skills come from."""

    from_: str = field(name="from")
    commit: Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9a-f]{40,64}$"})] | None


class SkillFolder(models.ClosedDocument, frozen=True, kw_only=True):
    """A folder of the source."""

    folder: Annotated[Text, _is("Below the source; . for its top.")]
    found: models.Positive
    skipped: Annotated[Count, _is("How many of them cannot be taken.")]


class SkillsImported(SkillsExported, frozen=True, kw_only=True):
    """`symphony skills import --json`."""

    source: SkillSource
    folders: tuple[SkillFolder, ...]


# --- the library of skills -------------------------------------------------------------------------------


class LibraryHistory(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony library history --json`."""

    name: Text
    versions: Annotated[tuple[models.LibraryVersion, ...], _is("The newest first.")]


class FailedFile(models.ClosedDocument, frozen=True, kw_only=True):
    """A file that the library could not take."""

    path: Annotated[Text, _is("Below the source.")]
    message: str
    hint: str | None


class LibraryImported(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony library import --json`: names of skills, what to read twice, and what could not be taken."""

    source: str
    created: tuple[str, ...]
    updated: tuple[str, ...]
    unchanged: tuple[str, ...]
    findings: tuple[Problem, ...]
    failed: tuple[FailedFile, ...]


class LibraryPromoted(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony library promote --json`."""

    name: Text
    version: models.Positive
    path: Annotated[Text, _is("Of the file in the repository.")]
    base: Annotated[Text, _is("The branch, or commit, that the new branch begins at.")]
    branch: Annotated[str | None, _is("The new branch; null if the base has the file already.")]
    commit: Annotated[str | None, _is("Of that branch; null if the base has the file already.")]


class LibraryBackup(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony library backup --json`."""

    path: Text
    bytes: Count


class LibrarySynced(SkillChanges, models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony library sync --json`: names of skills, compared with the library."""

    issue_identifier: str
    problems: Annotated[tuple[str, ...], _is("Why other files are no skills.")]


# --- the use of skills -----------------------------------------------------------------------------------


class SkillsReport(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony skills report --json`."""

    since: models.Moment
    skills: tuple[models.SkillUses, ...]
    outcomes: models.SkillOutcomes


class LibraryReverted(models.ClosedDocument, frozen=True, kw_only=True):
    """A skill that a purge reverted."""

    name: Text
    before: Annotated[models.Positive, _is("The version that was the newest.")]
    version: Annotated[models.Positive, _is("The new one.")]
    text_of: Annotated[models.Positive, _is("The earlier version whose text it has.")]


class LibraryPurged(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony library purge --json`: what was done, or would be done with --dry-run."""

    dry_run: bool
    removed: Annotated[tuple[Text, ...], _is("Names of skills.")]
    reverted: tuple[LibraryReverted, ...]
    rejected: Annotated[tuple[models.Positive, ...], _is("Numbers of proposals.")]


class NewSkill(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony skills new --json`."""

    name: Annotated[str, Meta(extra_json_schema={"pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 64})]
    path: Annotated[str, Meta(extra_json_schema={"pattern": "/SKILL\\.md$"})]
    scope: Literal["project", "user"]


# --- notifications ---------------------------------------------------------------------------------------


class NotifyTargets(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony notify list --json`."""

    source: Source
    targets: Annotated[tuple[models.NotifyTarget, ...], _is("Deliveries are known of a running daemon only.")]


class RehearsalShown(models.Rehearsal, frozen=True, kw_only=True):
    """`symphony rehearse --json`: the rehearsal of the API, and its source."""

    source: Source


class VerificationShown(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony verify --json`."""

    issue_identifier: str
    passed: Annotated[bool, _is("All checks passed on the delivered commit.")]
    message: Annotated[str, _is("The same in one sentence, or why there is no result.")]
    verified: Annotated[
        models.Verified | None, _is("Null if the checks could not be carried out to their end.")
    ]


class SchedulesShown(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony schedules --json`."""

    source: Source
    schedules: tuple[models.Schedule, ...]


class IssueCreated(models.CreatedIssue, frozen=True, kw_only=True):
    """`symphony schedules run --json`, and `symphony issue new --json` on other trackers than a board."""


class OutboxShown(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony outbox … --json`."""

    source: Source
    jobs: Annotated[tuple[models.OutboxJob, ...], _is("The oldest first; those that were chosen.")]


class HostsShown(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony hosts --json`."""

    source: Source
    hosts: Annotated[tuple[models.HostInUse, ...], _is("Runs are known of a running daemon only.")]


class HostChecked(models.ClosedDocument, frozen=True, kw_only=True):
    """What a host said of itself."""

    name: str
    ok: Annotated[bool, _is("It can carry out runs.")]
    version: Annotated[str | None, _is("The release of symphony there; null if unknown.")] = None
    git: Annotated[str | None, _is("The version of git there.")] = None
    free_mb: Annotated[int | None, _is("Free space where its workspaces are.")] = None
    clock_skew_s: Annotated[float | None, _is("Its clock minus the one of this machine.")] = None
    root: Annotated[str | None, _is("The directory of this daemon there.")] = None
    problem: Annotated[str | None, _is("Why it cannot be used; null if it can.")] = None
    hint: str | None = None
    slots: Annotated[int | None, _is("Of a node of a Ray cluster, or of the cluster.")] = None
    labels: Annotated[dict[str, str] | None, _is("Those of a node of a Ray cluster.")] = None


class HostsChecked(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony hosts check --json`."""

    hosts: tuple[HostChecked, ...]


class NotifyTest(models.ClosedDocument, frozen=True, kw_only=True):
    """The test of one target."""

    name: str
    kind: Annotated[str, _is("slack, webhook or command.")]
    delivered: bool
    reason: Annotated[str | None, _is("Why it was not delivered.")]
    hint: str | None


class NotifyTested(models.ClosedDocument, frozen=True, kw_only=True):
    """`symphony notify test --json`."""

    tests: tuple[NotifyTest, ...]

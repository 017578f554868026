"""The interface that the API needs from a daemon: questions, a refresh, actions, and webhooks."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from symphony.api import models
from symphony.domain import ALL_ISSUES, Selection
from symphony.scheduler import ReasonCode

if TYPE_CHECKING:  # the command line imports this module, and need not load the settings and git
    from symphony.api.typed import TypedTexts
    from symphony.domain import FileChange
    from symphony.library.store import Library

REASON_CODES = (*(code.value for code in ReasonCode), "starting", "deferred", "ready")
"""The codes by which issues can be selected. Issues that are `ready` wait for a review."""
RUN_SUMS = ("day", "agent", "issue", "state")
"""The criteria by which runs can be summed up."""
RUN_OUTCOMES = (
    *("running", "succeeded", "no_progress", "failed", "timed_out", "input_required", "canceled"),
    "interrupted",
)
"""The outcomes of runs, and `running` for live ones."""
AGE_PATTERN = "^([0-9]{1,6}[smhdw])?$"
"""An age in a query; empty for none."""
MAX_RUNS = 1_000
"""How many runs one answer lists at most."""
MAX_ANSWER_CHARS = 20_000
"""The longest answer to an agent's question, and the longest comment."""
API_PREFIX = "api:"
"""The prefix of reviewers' names in the API; names of browsers begin with their sign-in and `-`."""
MAX_REVIEW_CHARS = 20_000
"""The longest overall text of a review, and the longest comment on a line."""
MAX_STATE_CHARS = 255
"""The longest name of a state to move an issue to."""


class ApiError(Exception):
    """Why the daemon cannot do what is asked.

    Attributes:
        status: the HTTP status.
        code: a stable code.
        message: a text for people.
        hint: what to do instead, or `None`.
    """

    status: int

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class UnknownError(ApiError):
    """A part of something known does not exist: `run_not_found`, `not_in_library` or `job_not_found`."""

    status = 404


class ConflictError(ApiError):
    """An action does not fit the present state."""

    status = 409


class UnavailableError(ApiError):
    """The daemon cannot answer now.

    The code is `snapshot_timeout`, `snapshot_unavailable`, `journal_unavailable`, `orchestrator_unavailable`,
    `library_unavailable`, `diff_unavailable`, `rehearsal_timeout` or `tracker_unavailable`.
    """

    status = 503


class Exposition(Struct, frozen=True, kw_only=True):
    """The metrics of the daemon as text of this media type."""

    content: bytes
    content_type: str


class LibraryInUse(Struct, frozen=True, kw_only=True):
    """The library of the daemon; `mask` masks secrets in its texts."""

    store: "Library"
    mask: Callable[[str], str]


class DraftEdit(Struct, frozen=True, kw_only=True):
    """A change of a person's draft of a review; `None` changes nothing.

    Attributes:
        head: the commit that was shown.
        message: the overall text.
        add: a comment on a line; it replaces an earlier one on the same line.
        drop: the number of a comment to remove, from 0.
        path: a file; `viewed` says whether it was read.
        takes: go on with the draft that `models.Review.left` shows.
    """

    head: str
    message: str | None = None
    add: models.ReviewLine | None = None
    drop: int | None = None
    path: str | None = None
    viewed: bool = True
    takes: bool = False


class WorkingDiff(Struct, frozen=True, kw_only=True):
    """The changes in a workspace so far: a patch whose paths have no prefix. If `cut`, it ends early."""

    text: str
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptQuery:
    """Selects entries of a transcript: the last ones, unless `after` is given.

    Attributes:
        run: the id of the run, or its beginning; the latest run by default.
        after: the first entries after this number.
        before: only entries before this number.
        limit: how many; there may be fewer, because an answer has a limited size.
        text: only entries with this text, ignoring case.
    """

    run: str | None = None
    after: int | None = None
    before: int | None = None
    limit: int = 200
    text: str = ""


NEWEST_ENTRIES = TranscriptQuery()
"""The last entries of the latest run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Selects runs of the journal; an empty set selects all.

    Attributes:
        since_s: only runs that started within this number of seconds; `None` for all.
        by: the criterion of sums, one of `RUN_SUMS`, or `None`.
        issues: identifiers.
        agents: names.
        outcomes: as in `RunRow.outcome`, and `running`.
        limit: the largest number of rows; it does not limit sums.
    """

    since_s: float | None = None
    by: str | None = None
    issues: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    outcomes: frozenset[str] = frozenset()
    limit: int = MAX_RUNS


class Operator(Protocol):
    """The questions and actions that a daemon offers. Secrets are masked in all documents and errors."""

    @property
    def typed(self) -> "TypedTexts":
        """The texts that people have typed but not sent."""
        ...

    async def state(self, only: Selection = ALL_ISSUES) -> models.State:
        """The state of the daemon, with rows of the selected issues.

        Raises:
            UnavailableError: there is no state yet or no longer, or it took too long.
        """
        ...

    async def issue(self, identifier: str) -> models.Issue | None:
        """One issue; `None` if it is unknown.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    async def task(self, identifier: str) -> models.Task | None:
        """The tracker's snapshot of an issue; `None` if it is unknown.

        Asks the tracker, but not too often; parts without an answer in time are missing.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    async def transcript(
        self, identifier: str, part: TranscriptQuery = NEWEST_ENTRIES
    ) -> models.Transcript | None:
        """A part of the transcript of a run of the issue; `None` if the issue is unknown.

        Raises:
            UnavailableError: as `state`.
            UnknownError: the issue has no such run.
        """
        ...

    async def prompt(self, identifier: str, phase: str | None = None) -> models.Prompt | None:
        """The prompt that a dispatch of the issue would send now; `None` if it is unknown. No side effects.

        With `phase`, as if the work were in this phase.

        Raises:
            UnavailableError: as `state`.
            SymphonyError: the dispatch would fail with the same error.
        """
        ...

    async def working_files(self, identifier: str) -> "tuple[FileChange, ...] | None":
        """The files that the workspace of the issue has changed so far; read at most every few seconds.

        `None` if it is on a host or has no repository, or if it cannot be read in a moment.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    async def working_diff(self, identifier: str) -> WorkingDiff | None:
        """The lines that the workspace of the issue has changed so far; `None` as for `working_files`.

        Raises:
            UnavailableError: as `state`, or the workspace cannot be read.
        """
        ...

    async def review(
        self,
        identifier: str,
        reviewer: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> models.Review | None:
        """The last delivered change of an issue; `None` if the issue is unknown.

        It counts as shown to `reviewer`. With `since` it begins at that commit, and with `until` it ends
        there.

        Raises:
            UnknownError: there is no branch, or no such commit.
            UnavailableError: as `state`, or the branch cannot be read.
        """
        ...

    async def patches(
        self, review: models.Review, files: Sequence[int], *, context: int
    ) -> Mapping[int, str]:
        """The patches of some files of a review, by their positions; long ones are cut or missing.

        Raises:
            UnavailableError: as `review`.
        """
        ...

    async def draft(self, identifier: str, reviewer: str, edit: DraftEdit) -> str | None:
        """Change a person's draft of a review; its whole text, `None` if the issue is unknown.

        Raises:
            ConflictError: there is no such line, or the draft is too long.
            UnavailableError: as `review`.
        """
        ...

    async def decide(
        self, identifier: str, reviewer: str, given: models.ReviewGiven, *, with_draft: bool = False
    ) -> models.ReviewOutcome | None:
        """Send work back or approve it, once; `None` if the issue is unknown.

        With `with_draft` the comments of the draft are sent too.

        Raises:
            ConflictError: it is refused and nothing is done; docs/api.md lists the codes.
            UnavailableError: as `review`.
            SymphonyError: git failed; nothing is done.
        """
        ...

    async def rehearse(self, identifiers: Sequence[str] = ()) -> models.Rehearsal:
        """Merge the branches of these issues, or all that are ready, onto the present base; changes nothing.

        Raises:
            ConflictError: an issue has no branch, or nothing is ready.
            UnavailableError: as `state`, or it took too long.
            SymphonyError: the repository or git does not allow it.
        """
        ...

    async def runs(self, query: RunQuery) -> models.Runs:
        """The runs in the journal that a query selects, with their sums.

        Raises:
            UnavailableError: the journal cannot be read.
        """
        ...

    async def metrics(self) -> Exposition:
        """The metrics for a scrape; while the daemon starts, those that exist already."""
        ...

    async def skills(self) -> models.SkillsOverview:
        """The skills and problems in the present files, and their use in past runs.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    def library(self) -> LibraryInUse:
        """The library in the settings in force.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    async def system(self) -> models.System:
        """The program and the settings in force.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    async def outbox(self) -> models.Outbox:
        """The jobs that wait or were given up.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    async def change_outbox(self, verb: str, key: str) -> models.Outbox:
        """Try jobs now, or delete them; return these jobs.

        Args:
            verb: one of `routes.ON_OUTBOX`.
            key: the key of one job, or the identifier of an issue for all of its jobs.

        Raises:
            UnknownError: there is no such job.
            UnavailableError: as `state`.
        """
        ...

    def refresh(self) -> models.Refresh:
        """Poll and reconcile soon; may share a poll that is in progress or due.

        Raises:
            UnavailableError: the daemon does not poll yet or no longer polls.
        """
        ...

    async def feedback(
        self, identifier: str, given: models.Stars, *, may_teach: bool
    ) -> models.Feedback | None:
        """Store feedback on an issue permanently; `None` if the issue is unknown.

        It waits for a learning run, unless `may_teach` is false, the caller does not want one, learning is
        off, or the issue has no run.

        Raises:
            ConflictError: callers without write access have given too much feedback on the issue.
            UnavailableError: as `state`.
            SymphonyError: the library cannot be written; nothing is stored.
        """
        ...

    async def artifact(self, identifier: str, file: str) -> tuple[str, bytes] | None:
        """Name and content of a file that a check of the delivered commit left; `None` if it was not kept.

        Args:
            identifier: the issue.
            file: the last part of the `path` of an `Artifact`.

        Raises:
            UnavailableError: the daemon is starting.
        """
        ...

    async def create_issue(self, given: models.NewIssue) -> models.CreatedIssue:
        """Create an issue at the tracker, and poll.

        Raises:
            UnavailableError: as `state`.
            SymphonyError: the tracker cannot create issues, did not create it, or may have created it.
        """
        ...

    async def schedules(self) -> models.Schedules:
        """The schedules of the settings, with the tracker's snapshots of their last issues.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    async def run_schedule(self, name: str) -> models.CreatedIssue:
        """File an issue of a schedule now, even while its former one is open.

        Raises:
            UnknownError: there is no such schedule.
            ConflictError: its title or body cannot be rendered.
            UnavailableError: as `state`.
            SymphonyError: as `create_issue`.
        """
        ...

    async def act(self, verb: str, identifier: str | None, text: str | None = None) -> models.Verb | None:
        """Carry out an operator's action; `None` if the issue is unknown.

        Later answers already show the effect, except that of a move, which the next poll shows.

        Args:
            verb: one of `routes.ON_ISSUE` with an identifier, or of `routes.ON_DAEMON` without.
            identifier: the issue.
            text: the answer to a question, the comment, or the state to move to.

        Raises:
            ConflictError: the action does not fit the present state.
            UnavailableError: the daemon is starting or has ended.
            SymphonyError: the tracker cannot or does not move the issue to that state.
        """
        ...


OpenPort = Callable[[], Awaitable[str]]
"""Opens a port on the loopback interface unless there is one; returns its address, `http://HOST:PORT`.

Raises:
    ConflictError: the settings forbid it.
    SymphonyError: the port cannot be opened.
"""


class WebhookAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a webhook: `accepted`, `duplicate`, `ignored` or `handshake`."""

    status: str
    code: int = 202
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class WebhookDeniedError(ApiError):
    """A webhook was refused."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code, message)
        self.status = status


class WebhookReceiver(Protocol):
    """Receives webhooks of the tracker and of the forge. Header names are in lower case."""

    @property
    def enabled(self) -> bool:
        """Whether webhooks are accepted at all."""
        ...

    def check_headers(self, sender: str, headers: Mapping[str, str]) -> WebhookAnswer | None:
        """Check a request before its body is read; `None` if the body is needed.

        Raises:
            WebhookDeniedError: this sender is not expected, or the signature is missing.
        """
        ...

    def receive(self, sender: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Accept a webhook; its effect comes later.

        Raises:
            WebhookDeniedError: as `check_headers`, or the signature or the body is wrong.
        """
        ...

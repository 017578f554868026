"""Decides what to do about the pull request of an issue: `judge_pull`, pure and total.

It depends only on its arguments, so a recorded snapshot replays exactly. It follows three rules: an unknown
fact never counts as good; a check counts only on the head commit; the agent gets no feedback twice. The order
is: ended, then conflicts, checks and reviews, then the landing. None of them hides another: all feedback that
is ready goes to the agent in one turn, even if other parts still wait. All times are milliseconds since 1970,
because a ledger outlives the daemon.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec
from msgspec import Struct

from symphony import domain

PROTECTED_NAMES: Final = (
    # forges, and who reviews
    *(".github", ".gitlab", ".forgejo", ".gitea", "codeowners", ".gitmodules", ".gitattributes"),
    *(".mergify.yml", ".kodiak.toml", "renovate.json*", ".renovaterc*", "dependabot.y*ml"),
    # continuous integration
    *("*.gitlab-ci.y*ml", ".circleci", ".buildkite", ".woodpecker*", ".travis.y*ml", ".drone.y*ml"),
    *("jenkinsfile*", "*azure-pipelines*", ".vsts-ci.yml", ".cirrus.*", ".semaphore", ".teamcity"),
    *("bitbucket-pipelines.yml", "*appveyor.yml", ".builds", ".build.yml", ".tekton", ".harness"),
    *("cloudbuild*.y*ml", "cloudbuild*.json", "buildspec*.y*ml", "codefresh.y*ml", "wercker.yml"),
    *(".zuul.*", "zuul.*", ".prow*", ".tangled", ".ci", ".pre-commit-config.y*ml"),
    # this program
    *(".symphony", "workflow.md", "workflow.*.md", "*.workflow.md"),
    # agents
    *("agents.md", "agents.*.md", "agent.md", "claude.md", "claude.*.md", "gemini.md", "qwen.md", "skill.md"),
    *(".agents", ".agent", ".claude", ".codex", ".opencode", ".cursor", ".gemini", ".qwen", ".windsurf"),
    *(".continue", ".cline", ".clinerules*", ".roo*", ".kiro", ".junie", ".amp", ".factory", ".goose*"),
    *(".cursorrules", ".windsurfrules", ".aider*", ".mcp.json", "mcp.json", "opencode.json*", ".rules"),
)
"""Names of files and folders in any directory that decide how a change is judged or what agents do.

A change of one never lands without a person. The names are shell patterns in lower case.
"""

COMMENT_MARKER: Final = "<!-- symphony:"
"""The beginning of every comment of the daemon."""

MAX_REMARKS: Final = 20
"""The number of comments that an agent gets in one turn; the others wait for the next one."""

MAX_LANDINGS: Final = 3
"""How often the daemon asks the forge to merge the same commit."""

_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_NAMED: Final = 5

# --- settings and records --------------------------------------------------------------------------------


class FeedbackKind(StrEnum):
    """The kinds of feedback for an agent, in the order of importance."""

    CONFLICT = "conflict"
    CI = "ci"
    REVIEW = "review"


class ForgePolicy(Struct, frozen=True, kw_only=True):
    """The settings of `forge` that decisions depend on; `None` means no limit.

    Attributes:
        repo: the repository of the daemon's branches, as `PullRequest.head_repo`.
        feedback: the kinds that the agent gets.
        max_turns: how many feedback turns of each kind an issue gets before a person is asked.
        required_checks: names of checks that must exist in addition to those that the forge requires.
        reviewers: logins whose comments count, exact and in lower case. Comments of other bots are ignored.
        land: whether the daemon lands changes that are ready.
        base: the only branch on which changes land; if it is unknown, nothing lands.
        land_labels: labels that a change needs to land, in addition to an approval.
        land_max_lines: the largest number of changed lines that land.
        land_paths: only changes of these files and directories land; all changes if empty.
        protected_names: further names of files and folders like `PROTECTED_NAMES`, in lower case.
        protected_paths: files and directories whose changes do not land either.
        debounce_ms: how long to wait after a comment, because more may follow.
        grace_ms: how long checks may take to appear after a push, and the forge to act after a request.
        checks_limit_ms: how long checks may run, and how long the forge may take to merge after a request.
        quiet_ms: how long nothing may happen before a person is asked.
    """

    repo: str
    feedback: frozenset[FeedbackKind] = frozenset(FeedbackKind)
    max_turns: Mapping[FeedbackKind, int] = msgspec.field(
        default_factory=lambda: {FeedbackKind.CONFLICT: 2, FeedbackKind.CI: 3, FeedbackKind.REVIEW: 3}
    )
    required_checks: tuple[str, ...] = ()
    reviewers: frozenset[str] = frozenset()
    land: bool = False
    base: str | None = None
    land_labels: frozenset[str] = frozenset()
    land_max_lines: int | None = None
    land_paths: tuple[str, ...] = ()
    protected_names: frozenset[str] = frozenset()
    protected_paths: tuple[str, ...] = ()
    debounce_ms: int = 60_000
    grace_ms: int = 120_000
    checks_limit_ms: int = 7_200_000
    quiet_ms: int = 14 * _DAY_MS


class ToldFeedback(Struct, frozen=True, kw_only=True):
    """The feedback of one kind at one head that an agent got.

    Attributes:
        ids: sorted ids of checks or comments; for a conflict, the base branch.
        names: names of the checks.
    """

    kind: FeedbackKind
    head: str
    ids: tuple[str, ...]
    at_ms: int
    names: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """Identifies the feedback: the agent never gets the same twice."""
        return " ".join((self.kind, self.head, *self.ids))


class PendingFeedback(Struct, frozen=True, kw_only=True):
    """Feedback about the commit `head` that the scheduler has not taken yet: see `FeedbackGiven`."""

    key: str
    head: str
    summary: str
    text: str


class ThreadReply(Struct, frozen=True, kw_only=True):
    """An agent's reply in a thread. It is posted once the agent's work is pushed."""

    thread_id: str
    text: str
    resolve: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PullLedger:
    """The record of the pull request of one issue; the journal stores it.

    Attributes:
        pushed_head: the commit that the daemon pushed last, at `pushed_ms`.
        head: the head of the latest snapshot, first seen at `head_ms`.
        changed_ms: since when the pull request is unchanged and nothing was done about it.
        has_checks: whether checks were seen on any of its commits.
        told: all feedback that the agent got, the oldest first.
        turns: the turns that count against `ForgePolicy.max_turns`.
        needs_you: why the pull request waits for a person.
        offered: feedback that is recorded in `told`, but that the scheduler has not taken yet.
        restarts: the latest `IssueResult.restarts`.
        threads: the threads that the agent got and may answer.
        replies: answers that are not posted yet.
        lifted: the latest `IssueResult.lifted`.
        landings: the heads that the forge was asked to merge, the latest one at `landed_ms`. `landed_ms` is 0
            once the request was withdrawn.
        working: a run of the issue is in progress or about to start, or its push is tried again.
    """

    number: int
    branch: str
    pushed_head: str
    pushed_ms: int
    head: str | None = None
    head_ms: int = 0
    changed_ms: int = 0
    has_checks: bool = False
    told: tuple[ToldFeedback, ...] = ()
    turns: Mapping[FeedbackKind, int] = field(default_factory=dict)
    needs_you: "NeedsYouCode | None" = None
    offered: PendingFeedback | None = None
    restarts: int = 0
    lifted: str | None = None
    threads: tuple[str, ...] = ()
    replies: tuple[ThreadReply, ...] = ()
    landings: tuple[str, ...] = ()
    landed_ms: int = 0
    working: bool = False


# --- verdicts --------------------------------------------------------------------------------------------


class WaitCode(StrEnum):
    """The reasons why a pull request waits; stable codes of the API."""

    WORKING = "working"
    PUSH_NOT_SEEN = "push_not_seen"
    INCOMPLETE = "incomplete"
    MERGEABILITY_UNKNOWN = "mergeability_unknown"
    CONFLICTS = "conflicts"
    CHECKS_NOT_STARTED = "checks_not_started"
    CHECKS_PENDING = "checks_pending"
    CHECKS_FAILED = "checks_failed"
    COMMENTS_RECENT = "comments_recent"
    COMMENTS = "comments"
    CHANGES_REQUESTED = "changes_requested"
    THREADS_OPEN = "threads_open"
    DRAFT = "draft"
    NO_REQUIRED_CHECK = "no_required_check"
    NOT_VERIFIED = "not_verified"
    APPROVAL_MISSING = "approval_missing"
    LABEL_MISSING = "label_missing"
    OTHER_BASE = "other_base"
    FILES_UNKNOWN = "files_unknown"
    PROTECTED_PATH = "protected_path"
    PATH_NOT_ALLOWED = "path_not_allowed"
    TOO_LARGE = "too_large"
    LANDING = "landing"


class NeedsYouCode(StrEnum):
    """Why only a person can go on; stable codes of the API."""

    NOT_OURS = "not_ours"
    FOREIGN_HEAD = "foreign_head"
    TURNS_USED = "turns_used"
    NO_CHANGE = "no_change"
    CHECKS_MISSING = "checks_missing"
    CHECKS_STUCK = "checks_stuck"
    LANDING_FAILED = "landing_failed"
    QUIET = "quiet"


class ReadyForPerson(Struct, frozen=True):
    """The daemon finds nothing wrong with the head; a person merges it."""

    message: str = "checks and reviews are done: it waits for a person to merge it"


class Wait(Struct, frozen=True):
    """Nothing is done; `message` is for people."""

    code: WaitCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestRemark:
    """A comment or review that the agent gets; `thread_id`, `path` and `line` are those of its thread."""

    id: str
    author: domain.Author
    body: str
    at_ms: int | None = None
    thread_id: str | None = None
    path: str | None = None
    line: int | None = None


class FeedbackTurn(Struct, frozen=True, kw_only=True):
    """The agent gets one turn about the commit `head`.

    Attributes:
        conflict: the base branch that it conflicts with.
        checks: the failed ones.
        remarks: what people and listed bots wrote.
    """

    head: str
    conflict: str | None = None
    checks: tuple[domain.Check, ...] = ()
    remarks: tuple[PullRequestRemark, ...] = ()

    def told(self, now_ms: int) -> tuple[ToldFeedback, ...]:
        """Its records in the ledger, one for each kind."""
        ids = {
            FeedbackKind.CONFLICT: () if self.conflict is None else (self.conflict,),
            FeedbackKind.CI: tuple(sorted({check.id for check in self.checks})),
            FeedbackKind.REVIEW: tuple(sorted({remark.id for remark in self.remarks})),
        }
        names = {FeedbackKind.CI: tuple(sorted({check.name for check in self.checks}))}
        return tuple(
            ToldFeedback(kind=kind, head=self.head, ids=each, at_ms=now_ms, names=names.get(kind, ()))
            for kind, each in ids.items()
            if each
        )

    @property
    def kinds(self) -> tuple[FeedbackKind, ...]:
        """The kinds of its feedback."""
        return tuple(each.kind for each in self.told(0))

    @property
    def signatures(self) -> tuple[str, ...]:
        """Its signatures, one for each kind."""
        return tuple(each.signature for each in self.told(0))

    def offer(self, text: str) -> PendingFeedback:
        """The offer to the scheduler."""
        return PendingFeedback(
            key="; ".join(self.signatures),
            head=self.head,
            summary=f"{', '.join(self.kinds)} at {_short(self.head)}",
            text=text,
        )


class MergeHead(Struct, frozen=True):
    """The forge may merge exactly `head`."""

    head: str


class PullRequestEnded(Struct, frozen=True):
    """It was merged, closed, or removed."""

    merged: bool
    gone: bool = False


class NeedsYou(Struct, frozen=True):
    """Only a person can go on; `message` says why, and what was tried."""

    code: NeedsYouCode
    message: str


Verdict = ReadyForPerson | Wait | FeedbackTurn | MergeHead | PullRequestEnded | NeedsYou


# --- the verdict -----------------------------------------------------------------------------------------


_News = tuple[domain.Check, ...] | tuple[PullRequestRemark, ...] | str
"""New feedback of one kind; for a conflict, the base branch."""


class _Part(Struct, frozen=True, kw_only=True):
    """The judgement of one kind: new feedback, or why it is not good, or neither."""

    news: _News | None = None
    trouble: Wait | NeedsYou | None = None


_GOOD: Final = _Part()
_ABOUT_CHECKS: Final = frozenset({NeedsYouCode.CHECKS_MISSING, NeedsYouCode.CHECKS_STUCK})


def judge_pull(pull: domain.PullRequest, ledger: PullLedger, policy: ForgePolicy, now_ms: int) -> Verdict:
    """What to do about the pull request now. Never raises.

    `ledger` must already include the snapshot: see `ledger_after_snapshot`.
    """
    if pull.state is not domain.PullState.OPEN:
        return PullRequestEnded(merged=pull.state is domain.PullState.MERGED)
    if (trouble := _not_to_be_judged(pull, ledger, policy, now_ms)) is not None:
        return trouble
    parts = {
        FeedbackKind.CONFLICT: _conflicts(pull, ledger, policy),
        FeedbackKind.CI: _checks(pull, ledger, policy, now_ms),
        FeedbackKind.REVIEW: _remarks(pull, ledger, policy, now_ms),
    }
    news = {kind: part.news for kind, part in parts.items() if part.news}
    if news:
        return _feedback(pull.head_sha, news, ledger, policy)
    troubles = [part.trouble for part in parts.values() if part.trouble is not None]
    troubles.sort(key=lambda trouble: trouble.code is WaitCode.MERGEABILITY_UNKNOWN)  # it says the least
    outcome = next((each for each in troubles if isinstance(each, NeedsYou)), None) or (
        troubles[0] if troubles else _landing(pull, ledger, policy, now_ms)
    )
    if not isinstance(outcome, MergeHead | NeedsYou) and now_ms - ledger.changed_ms > policy.quiet_ms:
        days = policy.quiet_ms // _DAY_MS
        return NeedsYou(NeedsYouCode.QUIET, f"nothing happened for {days} days; {outcome.message}")
    return outcome


def _not_to_be_judged(
    pull: domain.PullRequest, ledger: PullLedger, policy: ForgePolicy, now_ms: int
) -> Wait | NeedsYou | None:
    if ledger.working or ledger.offered is not None:
        return Wait(WaitCode.WORKING, "its issue is being worked on")
    if (pull.head_repo or "").casefold() != policy.repo.casefold() or pull.head_branch != ledger.branch:
        message = f"its branch is not {ledger.branch} of {policy.repo}, so it is not ours"
        return NeedsYou(NeedsYouCode.NOT_OURS, message)
    if pull.head_sha != ledger.pushed_head:
        if now_ms - ledger.pushed_ms <= policy.grace_ms:
            return Wait(WaitCode.PUSH_NOT_SEEN, "the forge does not show the pushed commit yet")
        message = f"the branch is at {_short(pull.head_sha)}, which the daemon did not push"
        return NeedsYou(NeedsYouCode.FOREIGN_HEAD, message)
    return None


def _feedback(
    head: str, news: Mapping[FeedbackKind, _News], ledger: PullLedger, policy: ForgePolicy
) -> FeedbackTurn | NeedsYou:
    """The feedback turn with all news, or why the agent may not get it."""
    turns_left = {kind for kind in news if ledger.turns.get(kind, 0) < policy.max_turns.get(kind, 0)}
    ready = turns_left
    if ledger.needs_you is not None and not any(_is_by_a_person(part) for part in news.values()):
        # Only a person ends the wait for a person, unless the checks caused that wait.
        ready = turns_left & ({FeedbackKind.CI} if ledger.needs_you in _ABOUT_CHECKS else set())
    parts = [part for kind, part in news.items() if kind in ready]
    listed = [each for part in parts if not isinstance(part, str) for each in part]
    if parts:
        return FeedbackTurn(
            head=head,
            conflict=next((part for part in parts if isinstance(part, str)), None),
            checks=tuple(each for each in listed if isinstance(each, domain.Check)),
            remarks=tuple(each for each in listed if isinstance(each, PullRequestRemark)),
        )
    used = [kind for kind in news if kind not in turns_left]
    if used or ledger.needs_you is None:
        return NeedsYou(NeedsYouCode.TURNS_USED, "; ".join(_tried(kind, ledger) for kind in used))
    message = "it waits for a person; comments of bots and checks do not change that"
    return NeedsYou(ledger.needs_you, message)


def _is_by_a_person(news: _News) -> bool:
    return any(isinstance(each, PullRequestRemark) and not each.author.is_bot for each in news)


_WORDS: Final = {
    FeedbackKind.CONFLICT: "conflicts with its base",
    FeedbackKind.CI: "failed checks",
    FeedbackKind.REVIEW: "reviews",
}


_UNTOLD: Final = {
    FeedbackKind.CONFLICT: WaitCode.CONFLICTS,
    FeedbackKind.CI: WaitCode.CHECKS_FAILED,
    FeedbackKind.REVIEW: WaitCode.COMMENTS,
}


def left_to_people(made: FeedbackTurn) -> Wait:
    """The verdict on feedback whose issue has ended: no agent works on it."""
    words = ", ".join(_WORDS[kind] for kind in made.kinds)
    return Wait(_UNTOLD[made.kinds[0]], f"its issue has ended, so the agent does not get this: {words}")


def _tried(kind: FeedbackKind, ledger: PullLedger) -> str:
    heads = [_short(each.head) for each in ledger.told if each.kind is kind]
    turns = domain.plural(len(heads), "turn")
    return f"the agent had {turns} about {_WORDS[kind]} (at {_names(heads)}), and it is not over"


# --- conflicts -------------------------------------------------------------------------------------------


def _conflicts(pull: domain.PullRequest, ledger: PullLedger, policy: ForgePolicy) -> _Part:
    if pull.conflicts is None:
        message = "the forge does not tell whether it conflicts with its base"
        message += ": of a draft some never do" if pull.draft else " yet"
        return _Part(trouble=Wait(WaitCode.MERGEABILITY_UNKNOWN, message))
    if not pull.conflicts:
        return _GOOD
    words = f"it conflicts with {domain.one_line(pull.base_branch, 100)}"
    if FeedbackKind.CONFLICT not in policy.feedback:
        return _Part(trouble=Wait(WaitCode.CONFLICTS, f"{words}; forge.feedback.conflict is off"))
    if (FeedbackKind.CONFLICT, pull.head_sha, pull.base_branch) in _told_at_heads(ledger):
        return _Part(trouble=NeedsYou(NeedsYouCode.NO_CHANGE, f"{words}, and the agent left it so"))
    return _Part(news=pull.base_branch or "its base")


def _told_at_heads(ledger: PullLedger) -> frozenset[tuple[FeedbackKind, str, str]]:
    return frozenset((each.kind, each.head, one) for each in ledger.told for one in each.ids)


# --- checks ----------------------------------------------------------------------------------------------


def judged_checks(pull: domain.PullRequest, policy: ForgePolicy) -> tuple[domain.Check, ...]:
    """The checks of the head that count: the required ones, or all if none is known to be required."""
    at_head = [check for check in pull.checks if check.sha == pull.head_sha]
    required = tuple(check for check in at_head if _is_required(check, policy))
    is_any_required = required or policy.required_checks or pull.missing_checks
    return required if is_any_required else tuple(at_head)


def _is_required(check: domain.Check, policy: ForgePolicy) -> bool:
    return check.required or check.name in policy.required_checks


def _checks(pull: domain.PullRequest, ledger: PullLedger, policy: ForgePolicy, now_ms: int) -> _Part:
    judged = judged_checks(pull, policy)
    waited_ms = now_ms - max(ledger.head_ms, ledger.pushed_ms)
    names = {check.name for check in judged}
    missing = [name for name in (*policy.required_checks, *pull.missing_checks) if name not in names]
    pending = [check.name for check in judged if check.state is domain.CheckState.PENDING]
    trouble: Wait | NeedsYou | None
    failed = tuple(check for check in judged if check.state is domain.CheckState.FAILED)
    is_over = waited_ms > policy.checks_limit_ms
    earlier = ledger.has_checks or bool(pull.checks)  # so this repository has checks
    if is_over and failed:
        trouble = None  # the other checks are no longer awaited
    elif pending:
        words = _names(pending)
        trouble = (
            NeedsYou(NeedsYouCode.CHECKS_STUCK, f"checks run for too long: {words}")
            if is_over
            else Wait(WaitCode.CHECKS_PENDING, f"checks are running: {words}")
        )
    elif missing or (earlier and not judged):
        words = _names(missing) or "any, as earlier commits had"
        trouble = (
            NeedsYou(NeedsYouCode.CHECKS_MISSING, f"checks do not appear: {words}")
            if is_over
            else Wait(WaitCode.CHECKS_NOT_STARTED, f"checks have not started: {words}")
        )
    elif waited_ms <= policy.grace_ms:
        trouble = Wait(WaitCode.CHECKS_NOT_STARTED, "checks may still start")
    else:
        trouble = None
    if trouble is not None:
        return _Part(trouble=trouble)
    return _failed_checks(pull, failed, ledger, policy) if failed else _GOOD


def _failed_checks(
    pull: domain.PullRequest, failed: tuple[domain.Check, ...], ledger: PullLedger, policy: ForgePolicy
) -> _Part:
    words = f"checks failed: {_names([check.name for check in failed])}"
    if FeedbackKind.CI not in policy.feedback:
        return _Part(trouble=Wait(WaitCode.CHECKS_FAILED, f"{words}; forge.feedback.ci is off"))
    told = _told_at_heads(ledger)
    if all((FeedbackKind.CI, pull.head_sha, check.id) in told for check in failed):
        message = f"{words}; the agent got this, and changed nothing"
        return _Part(trouble=NeedsYou(NeedsYouCode.NO_CHANGE, message))
    return _Part(news=failed)


# --- reviews and comments --------------------------------------------------------------------------------


def counts(author: domain.Author, policy: ForgePolicy) -> bool:
    """Whether the agent gets what the author writes: the author may write to the repository or is listed."""
    if author.is_me:
        return False
    return author.login in policy.reviewers or (author.can_write and not author.is_bot)


def _remarks(pull: domain.PullRequest, ledger: PullLedger, policy: ForgePolicy, now_ms: int) -> _Part:
    told = {one for each in ledger.told if each.kind is FeedbackKind.REVIEW for one in each.ids}
    news = tuple(each for each in _all_remarks(pull, policy) if each.id not in told)
    if news and FeedbackKind.REVIEW not in policy.feedback:
        message = f"{_names([each.author.login for each in news])} commented; forge.feedback.review is off"
        return _Part(trouble=Wait(WaitCode.COMMENTS, message))
    if news:
        # A comment existed when the snapshot last changed, whatever the forge's clock says.
        latest_ms = max(min(ledger.changed_ms, each.at_ms or ledger.changed_ms) for each in news)
        if now_ms - latest_ms < policy.debounce_ms:
            message = f"{_names([each.author.login for each in news])} commented just now"
            return _Part(trouble=Wait(WaitCode.COMMENTS_RECENT, message))
        return _Part(news=news[:MAX_REMARKS])
    if blockers := _who_requests_changes(pull.reviews, policy):
        message = f"{_names(blockers)} requested changes, and must review again"
        return _Part(trouble=Wait(WaitCode.CHANGES_REQUESTED, message))
    open_threads = [thread for thread in pull.threads if not thread.resolved]
    if open_threads:
        message = f"{domain.plural(len(open_threads), 'thread')} not resolved"
        return _Part(trouble=Wait(WaitCode.THREADS_OPEN, message))
    return _GOOD


def _all_remarks(pull: domain.PullRequest, policy: ForgePolicy) -> Iterator[PullRequestRemark]:
    """All comments by authors that count, including those that the agent already got.

    A resolved thread is left out, unless one of its authors still requests changes: a push may have resolved
    it.
    """
    blockers = {
        login
        for login, review in _votes(pull.reviews, policy).items()
        if review.state is domain.ReviewState.CHANGES_REQUESTED
    }
    approvers = _votes(pull.reviews, policy).keys() - blockers
    for review in pull.reviews:
        withdrawn = review.state is domain.ReviewState.APPROVED or (
            review.state is domain.ReviewState.CHANGES_REQUESTED and review.author.login in approvers
        )
        if counts(review.author, policy) and not withdrawn and _says_something(review.body):
            at_ms = None if review.at is None else _ms(review.at)
            yield PullRequestRemark(id=review.id, author=review.author, body=review.body, at_ms=at_ms)
    for thread in pull.threads:
        for comment in thread.comments:
            is_over = thread.resolved and comment.author.login not in blockers
            if counts(comment.author, policy) and not is_over and _says_something(comment.body):
                yield replace(_remark(comment), thread_id=thread.id, path=thread.path, line=thread.line)
    for comment in pull.comments:
        if counts(comment.author, policy) and _says_something(comment.body):
            yield _remark(comment)


def _remark(comment: domain.PullComment) -> PullRequestRemark:
    return PullRequestRemark(id=comment.id, author=comment.author, body=comment.body, at_ms=_ms(comment.at))


def _says_something(body: str) -> bool:
    text = body.strip()
    return text != "" and not text.startswith(COMMENT_MARKER)


def _votes(
    reviews: Sequence[domain.PullRequestReview], policy: ForgePolicy
) -> Mapping[str, domain.PullRequestReview]:
    """The latest approval or change request of each author that counts; a comment revokes neither."""
    votes = dict[str, domain.PullRequestReview]()
    for review in sorted(reviews, key=lambda each: (each.at is None, 0 if each.at is None else _ms(each.at))):
        if review.state is not domain.ReviewState.COMMENTED and counts(review.author, policy):
            votes[review.author.login] = review
    return votes


def _who_requests_changes(reviews: Sequence[domain.PullRequestReview], policy: ForgePolicy) -> list[str]:
    """The people who request changes.

    A bot does not count once its words were sent, as it may never return.
    """
    return [
        login
        for login, review in _votes(reviews, policy).items()
        if review.state is domain.ReviewState.CHANGES_REQUESTED and not review.author.is_bot
    ]


# --- landing ---------------------------------------------------------------------------------------------


def _landing(
    pull: domain.PullRequest, ledger: PullLedger, policy: ForgePolicy, now_ms: int
) -> ReadyForPerson | Wait | MergeHead | NeedsYou:
    """The verdict on a pull request that has no problem left."""
    if not pull.complete:
        return Wait(WaitCode.INCOMPLETE, "the forge did not send all checks, reviews and comments")
    if not policy.land:
        return ReadyForPerson()
    if (hindrance := next(_hindrances(pull, policy), None)) is not None:
        return hindrance
    asked = [head for head in ledger.landings if head == pull.head_sha]
    is_armed = (pull.armed or pull.queued) and (asked or not ledger.landings)  # by the daemon or by a person
    is_recent = pull.armed is None or now_ms - ledger.landed_ms <= policy.grace_ms
    verdict: Wait | MergeHead = MergeHead(pull.head_sha)
    is_stuck = len(asked) >= MAX_LANDINGS
    if is_armed or (asked and ledger.landed_ms and is_recent):
        verdict = Wait(WaitCode.LANDING, "the forge is about to merge it")
        is_over = 0 < ledger.landed_ms < now_ms - policy.checks_limit_ms
        is_stuck = bool(asked) and is_over and not pull.queued
    if not is_stuck:
        return verdict
    head = _short(pull.head_sha)
    message = f"the forge was asked to merge {head}, and a rule of the forge may delay it"
    return NeedsYou(NeedsYouCode.LANDING_FAILED, message)


def _hindrances(pull: domain.PullRequest, policy: ForgePolicy) -> Iterator[Wait]:
    """Why a person has to merge a good change."""
    if pull.draft:
        yield Wait(WaitCode.DRAFT, "it is a draft, which only a person makes ready")
    if policy.base is None or pull.base_branch != policy.base:
        wanted = "which branch that is to be is not known" if policy.base is None else policy.base
        message = f"it is to be merged into {domain.one_line(pull.base_branch, 100)}, not into {wanted}"
        yield Wait(WaitCode.OTHER_BASE, message)
    if not any(_is_required(check, policy) for check in judged_checks(pull, policy)):
        yield Wait(WaitCode.NO_REQUIRED_CHECK, "no check is required, and nothing is landed without one")
    if missing := sorted(policy.land_labels - set(pull.labels)):
        yield Wait(WaitCode.LABEL_MISSING, f"it lacks labels: {_names(missing)}")
    if pull.rules_met is False or not _is_approved(pull, policy):
        yield Wait(WaitCode.APPROVAL_MISSING, f"no person has approved {_short(pull.head_sha)}")
    if not pull.files or pull.changed_lines is None:
        yield Wait(WaitCode.FILES_UNKNOWN, "the forge did not list its changes")
    elif policy.land_max_lines is not None and pull.changed_lines > policy.land_max_lines:
        message = f"{pull.changed_lines} lines changed, and at most {policy.land_max_lines} are landed"
        yield Wait(WaitCode.TOO_LARGE, message)
    if touched := [name for name in pull.files if is_protected(name, policy)]:
        yield Wait(WaitCode.PROTECTED_PATH, f"a person must merge changes of {_names(touched)}")
    if policy.land_paths and (
        other := [name for name in pull.files if not _is_below(name, policy.land_paths)]
    ):
        message = f"forge.land_limits.paths does not have {_names(other)}"
        yield Wait(WaitCode.PATH_NOT_ALLOWED, message)


def _is_approved(pull: domain.PullRequest, policy: ForgePolicy) -> bool:
    """Whether a person who may write approved this commit. A label is no approval: it outlives a push."""
    return any(
        review.state is domain.ReviewState.APPROVED
        and review.author.can_write
        and not review.author.is_bot
        and review.sha == pull.head_sha
        for review in _votes(pull.reviews, policy).values()
    )


def is_protected(name: str, policy: ForgePolicy) -> bool:
    """Whether a change of this file never lands without a person."""
    parts = name.casefold().split("/")
    return (
        not policy.protected_names.isdisjoint(parts)
        or _is_below(name, policy.protected_paths)
        or any(fnmatchcase(part, pattern) for part in parts for pattern in PROTECTED_NAMES)
    )


def _is_below(name: str, paths: Sequence[str]) -> bool:
    """Whether a file is one of the paths or below one."""
    folded = name.casefold()
    return any(
        folded == path.rstrip("/").casefold() or folded.startswith(f"{path.rstrip('/')}/".casefold())
        for path in paths
    )


def must_disarm(pull: domain.PullRequest, ledger: PullLedger, made: Verdict) -> bool:
    """Whether the forge may merge a change that is no longer good, because the daemon asked for it."""
    is_landing = isinstance(made, MergeHead) or (
        isinstance(made, Wait | NeedsYou) and made.code in {WaitCode.LANDING, NeedsYouCode.LANDING_FAILED}
    )
    is_ours = (pull.armed is not False or pull.queued) and ledger.landed_ms > 0
    return is_ours and not is_landing and not isinstance(made, PullRequestEnded)


# --- words -----------------------------------------------------------------------------------------------


def _names(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(domain.one_line(name, 100) for name in names))
    more = f" and {len(unique) - _MAX_NAMED} more" if len(unique) > _MAX_NAMED else ""
    return ", ".join(unique[:_MAX_NAMED]) + more


def _short(sha: str) -> str:
    return domain.one_line(sha, 100)[:8]


def _ms(at: datetime) -> int:
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)

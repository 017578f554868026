"""The views of a change and the decisions about it, as documents."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio
from cachetools import LRUCache

from symphony import to_thread
from symphony.api import answers, models
from symphony.api.interface import MAX_REVIEW_CHARS, ConflictError, DraftEdit, UnavailableError, UnknownError
from symphony.api.models import wall_text
from symphony.daemon.context import RuntimeContext
from symphony.daemon.reviews import Draft, Given, Result, Reviews, viewed_key
from symphony.domain import SymphonyError, one_line, plain_text
from symphony.observability.redaction import masked
from symphony.scheduler import ApprovalWay, LineComment, Refusal, ReviewDecision, judge_review
from symphony.workspaces import BranchChange, ComparedFile

_STATUS: Final = {
    "A": "added",
    "C": "copied",
    "D": "deleted",
    "M": "modified",
    "R": "renamed",
    "T": "retyped",
}
_MAX_PATCH_BYTES: Final = 1_048_576  # more than is shown, because secrets are masked before the cut
_MAX_CONTENT_BYTES: Final = 4_194_304
_MAX_QUOTE_CHARS: Final = 500
_LONGEST_S: Final = 30.0
_CHANGES_KEPT: Final = 8


class ReviewAnswers:
    """Answers about changes and reviews.

    Args:
        reviews: drafts and decisions.
    """

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews
        self._known: LRUCache[tuple[str, str | None, str | None], BranchChange] = LRUCache(_CHANGES_KEPT)

    # --- questions ---------------------------------------------------------------------------------------

    async def review(
        self,
        context: RuntimeContext,
        of: answers.Snapshot,
        identifier: str,
        reviewer: str | None,
        since: str | None,
        until: str | None,
    ) -> models.Review | None:
        """See `api.interface.Operator`."""
        issue = await to_thread.run_sync(answers.issue, of, identifier)
        if issue is None:
            return None
        identifier = issue.issue_identifier
        change = await self._change(context, identifier, since, until)
        draft = Draft()
        if reviewer is not None and change.head != change.last:
            draft = self._reviews.draft(issue.issue_id, reviewer)
        elif reviewer is not None:
            draft = self._reviews.shown(issue.issue_id, reviewer, change.head)
        return await to_thread.run_sync(self._document, context, issue, change, draft, reviewer)

    async def _change(
        self, context: RuntimeContext, identifier: str, since: str | None = None, until: str | None = None
    ) -> BranchChange:
        try:
            with anyio.fail_after(_LONGEST_S):
                known = self._known.get((identifier, since, until))
                change = await context.workspaces.change(identifier, since=since, until=until, known=known)
        except SymphonyError as error:
            message = context.redaction.text(error.failure.message)
            raise UnavailableError("diff_unavailable", message) from error
        except TimeoutError:
            message = f"no diff within {_LONGEST_S:g} s: the branch is large or the disk is slow"
            raise UnavailableError("snapshot_timeout", message) from None
        if change is None and (since or until):
            raise UnknownError("no_commit", "the daemon does not have the commit that is compared with")
        if change is None:
            raise UnknownError("no_branch", "The issue has no branch, or its workspace is removed.")
        self._known[identifier, since, until] = change
        return change

    def _document(
        self,
        context: RuntimeContext,
        issue: models.Issue,
        change: BranchChange,
        draft: Draft,
        reviewer: str | None,
    ) -> models.Review:
        result, decided = issue.result, self._reviews.decided(issue.issue_id, change.head)
        left = None if reviewer is None else self._reviews.left(issue.issue_id, reviewer)
        viewed = frozenset(draft.viewed)
        mask = context.redaction.text
        command = self._reviews.command(issue.issue_id)
        verified = None if result is None else result.verified
        if verified is not None and verified.head != change.head:
            verified = None
        document = models.Review(
            generated_at=issue.generated_at,
            issue_id=issue.issue_id,
            issue_identifier=issue.issue_identifier,
            title=issue.title,
            state=issue.state,
            status=issue.status,
            branch=change.branch,
            start=change.start,
            since=change.since,
            head=change.head,
            last=change.last,
            deliveries=_deliveries(issue.runs),
            looked_at=draft.before,
            summary=None if result is None else result.summary,
            verified=verified,
            unverified=context.settings.verify.is_set and not (verified is not None and verified.passed),
            pull_request=None if result is None else result.pull_request,
            pull_request_url=None if result is None else result.pull_request_url,
            rehearsal=None if result is None else result.rehearsal,
            commits=tuple(models.ReviewCommit.of(one) for one in change.commits),
            files=tuple(_file(one, viewed) for one in change.files),
            files_left_out=change.files_left_out,
            insertions=sum(one.insertions or 0 for one in change.files),
            deletions=sum(one.deletions or 0 for one in change.files),
            approval=self._reviews.way(issue.issue_id).value,
            command=command,
            verify=issue.verify,
            send_back=self._choice(issue.issue_id, change.head, ReviewDecision.SEND_BACK),
            approve=self._choice(issue.issue_id, change.head, ReviewDecision.APPROVE),
            message=draft.message,
            comments=draft.comments,
            left=None
            if left is None
            else models.ReviewLeft(
                at=wall_text(left.at_wall_ms), message=left.message, comments=len(left.comments)
            ),
            others=tuple(
                wall_text(one.at_wall_ms) for one in self._reviews.others(issue.issue_id, reviewer or "")
            ),
            decided=None
            if decided is None
            else models.ReviewDecided(
                decision=decided.decision.value,
                mine=decided.reviewer == reviewer,
                at=wall_text(decided.at_wall_ms),
            ),
        )
        public: models.Review = masked(document, mask)
        return public

    def _choice(self, issue_id: str, head: str, decision: ReviewDecision) -> models.Choice:
        """Whether a decision is possible now, as far as that is known without asking git."""
        # The comment, and the acceptance of failed checks, come with the decision.
        given = Given(decision=decision, head=head, message="", accepts_unverified=True)
        facts = self._reviews.facts(issue_id, given, merged=True)
        if decision is ReviewDecision.SEND_BACK and facts.has_comments:
            facts = replace(facts, comment="something")
        refusal: Refusal | None = judge_review(facts, decision)
        if refusal is None:
            return models.Choice(allowed=True)
        return models.Choice(allowed=False, code=refusal.code, message=refusal.message, hint=refusal.hint)

    async def patches(
        self, context: RuntimeContext, review: models.Review, files: Sequence[int], *, lines: int
    ) -> Mapping[int, str]:
        """See `api.interface.Operator`."""
        identifier = review.issue_identifier
        since = None if review.since == review.start else review.since
        until = None if review.head == review.last else review.head
        change = await self._change(context, identifier, since, until)
        if change.head != review.head:
            return {}
        wanted = {change.files[place]: place for place in files if place < len(change.files)}
        try:
            found = await context.workspaces.patches(
                identifier, change, list(wanted), context=lines, max_bytes=_MAX_PATCH_BYTES
            )
        except SymphonyError as error:
            message = context.redaction.text(error.failure.message)
            raise UnavailableError("diff_unavailable", message) from error

        def shown() -> dict[int, str]:
            return {
                wanted[file]: context.redaction.verbatim(content.decode("utf-8", "replace"))
                for file, content in found.items()
            }

        return await to_thread.run_sync(shown)

    # --- orders ------------------------------------------------------------------------------------------

    async def edit(
        self, context: RuntimeContext, issue_id: str, identifier: str, reviewer: str, edit: DraftEdit
    ) -> str:
        """See `api.interface.Operator.draft`."""
        if edit.takes:
            self._reviews.take(issue_id, reviewer)
        draft = self._reviews.draft(issue_id, reviewer)
        if edit.message is not None:
            draft = replace(draft, message=_text(edit.message))
        if edit.add is not None:
            comment = await self._comment(context, identifier, edit.add, edit.head)
            place = (comment.file, comment.line, comment.old)
            others = [one for one in draft.comments if (one.file, one.line, one.old) != place]
            draft = replace(
                self._reviews.draft(issue_id, reviewer), comments=(*others, comment), message=draft.message
            )
        if edit.drop is not None:
            kept = (one for place, one in enumerate(draft.comments) if place != edit.drop)
            draft = replace(draft, comments=tuple(kept))
        if edit.path is not None:
            key = await self._viewed_key(context, identifier, edit.path)
            viewed = tuple(one for one in draft.viewed if one != key)
            draft = replace(draft, viewed=(*viewed, key) if edit.viewed else viewed)
        return self._reviews.change(issue_id, reviewer, draft).text

    async def _viewed_key(self, context: RuntimeContext, identifier: str, path: str) -> str:
        change = await self._change(context, identifier)
        file = _find(change, path)
        return viewed_key(file.path, file.new)

    async def _comment(
        self, context: RuntimeContext, identifier: str, given: models.ReviewLine, head: str
    ) -> LineComment:
        """A comment with its line.

        Raises:
            ConflictError: the shown change has no such line.
        """
        change = await self._change(context, identifier)
        file = _find(change, given.file)
        text = _text(given.text)
        if not text:
            raise ConflictError("nothing_said", "write a text for each comment on a line")
        content = b""
        if set(which := file.old if given.old else file.new) != {"0"} and not file.is_link:
            content = await context.workspaces.content(identifier, which, max_bytes=_MAX_CONTENT_BYTES)
        if b"\0" in content:
            raise ConflictError("no_such_line", f"{one_line(given.file)} is binary: it has no lines")
        lines = content.decode("utf-8", "replace").split("\n")
        if lines[-1:] == [""]:
            lines.pop()
        if given.line > len(lines):
            message = f"{one_line(given.file)} has no line {given.line} at {change.head[:12]}"
            raise ConflictError(
                "no_such_line", message, hint="look at the change again: the branch may have moved"
            )
        return LineComment(
            file=file.path,
            line=given.line,
            old=given.old,
            quote=context.redaction.text(lines[given.line - 1].rstrip("\r")[:_MAX_QUOTE_CHARS]),
            text=text,
            head=head or change.head,
        )

    async def decide(
        self,
        context: RuntimeContext,
        issue_id: str,
        identifier: str,
        reviewer: str,
        given: models.ReviewGiven,
        *,
        with_draft: bool,
        requested_at: str,
    ) -> models.ReviewOutcome:
        """See `api.interface.Operator`."""
        try:
            decision = ReviewDecision(given.decision)
        except ValueError:
            raise ConflictError("bad_request", "a decision is send_back or approve") from None
        draft = self._reviews.draft(issue_id, reviewer)
        head = given.head or draft.seen
        comments = [await self._comment(context, identifier, one, head or "") for one in given.comments]
        result = await self._reviews.decide(
            issue_id,
            reviewer,
            Given(
                decision=decision,
                head=head,
                message=_text(given.message),
                comments=(*(draft.comments if with_draft else ()), *comments),
                accepts_unverified=given.unverified,
            ),
        )
        outcome = models.ReviewOutcome(
            issue_identifier=identifier,
            decision=decision.value,
            done=result.done,
            way=None if result.way is None else result.way.value,
            base=None if result.merged is None else result.merged.base,
            commit=None if result.merged is None else result.merged.commit,
            state=result.moved_to,
            message=_outcome_text(decision, result),
            requested_at=requested_at,
        )
        public: models.ReviewOutcome = masked(outcome, context.redaction.text)
        return public


def _outcome_text(decision: ReviewDecision, result: Result) -> str:
    """What was done, in one line."""
    moved = "" if result.moved_to is None else f" and moved to {one_line(result.moved_to)}"
    if not result.done:
        return "it is recorded, and carried out as soon as the tracker and git answer (symphony outbox list)"
    if decision is ReviewDecision.SEND_BACK:
        return f"sent back with a comment{moved}"
    if result.way is ApprovalWay.LAND:
        return "approved: the forge is asked to merge it as soon as the rules of forge.land allow it"
    if result.way is ApprovalWay.OPEN:
        return "approved: its pull request is being opened"
    if result.merged is None:
        return f"approved{moved}"
    verb = "it was in" if result.merged.before else "merged into"
    return f"approved: {verb} {one_line(result.merged.base)} ({result.merged.commit[:12]}){moved}"


def _text(given: str) -> str:
    """A person's text without control characters.

    Raises:
        ConflictError: it is too long.
    """
    if len(given) > MAX_REVIEW_CHARS:
        raise ConflictError("too_long", f"a comment has at most {MAX_REVIEW_CHARS} characters")
    return plain_text(given.replace("\r\n", "\n")).strip()


def _deliveries(runs: Sequence[models.PastRun]) -> tuple[models.ReviewDelivery, ...]:
    """The deliveries of runs, newest first; a commit belongs to the run that delivered it first."""
    found = {
        run.head: models.ReviewDelivery(head=run.head, run_id=run.run_id, at=run.ended_at)
        for run in runs
        if run.head is not None and run.ended_at is not None
    }
    return tuple(found.values())


def _find(change: BranchChange, path: str) -> ComparedFile:
    found = next((one for one in change.files if path in {one.path, one.old_path}), None)
    if found is None:
        message = f"{one_line(path)} is no file of this change"
        raise ConflictError("no_such_line", message, hint="symphony review lists the files")
    return found


def _file(file: ComparedFile, viewed: frozenset[str]) -> models.ReviewFile:
    return models.ReviewFile(
        path=file.path,
        old_path=file.old_path,
        status=_STATUS.get(file.status, "modified"),
        insertions=file.insertions,
        deletions=file.deletions,
        is_link=file.is_link,
        viewed=bool(viewed) and viewed_key(file.path, file.new) in viewed,
    )

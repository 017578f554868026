"""The daemon's own comments: one per issue and kind, posted beside the work and never in its way (TR11)."""

from collections.abc import Awaitable, Callable, Sequence

import anyio
import structlog

from symphony import skills
from symphony.domain.issue import Issue
from symphony.skills import Problem
from symphony.trackers.base import CommentCapability, Tracker
from symphony.trackers.comments import upsert_comment

__all__ = ["post_note", "post_skill_report"]

_TIMEOUT_S = 30.0
_log = structlog.get_logger(__name__)


async def post_skill_report(tracker: Tracker, issue: Issue, problems: Sequence[Problem]) -> None:
    """Name the malformed skills on the issue being worked on; nothing to say, nothing posted."""
    body = skills.comment_body(problems)
    if body is not None:
        await _post(tracker, issue, kind="skills", fingerprint=skills.fingerprint(problems), body=body)


async def post_note(tracker: Tracker, issue: Issue, *, kind: str, body: str) -> None:
    """Put or edit one note of a kind on an issue."""
    await _post(tracker, issue, kind=kind, fingerprint=skills.text_fingerprint(body), body=body)


async def _post(tracker: Tracker, issue: Issue, *, kind: str, fingerprint: str, body: str) -> None:
    if not isinstance(tracker, CommentCapability):
        _log.info("comment_skipped", issue_id=issue.id, issue_identifier=issue.identifier, kind=kind)
        return

    async def write(target: CommentCapability = tracker) -> object:
        return await upsert_comment(target, issue.id, kind=kind, fingerprint=fingerprint, body=body)

    await _best_effort(write, issue, kind)


async def _best_effort(write: Callable[[], Awaitable[object]], issue: Issue, kind: str) -> None:
    facts = {"issue_id": issue.id, "issue_identifier": issue.identifier, "kind": kind}
    try:
        with anyio.fail_after(_TIMEOUT_S):
            outcome = await write()
    except Exception as error:  # noqa: BLE001 - a comment is never worth a run
        _log.warning("comment_failed", reason=str(error) or type(error).__name__, **facts)
    else:
        _log.info("comment_posted", outcome=str(outcome), **facts)

"""The daemon's own comments: one per issue and kind, posted beside the work and never in its way (TR11)."""

from collections.abc import Sequence

import anyio
import structlog

from symphony import skills
from symphony.domain.issue import Issue
from symphony.runtime.bound import Bound
from symphony.skills import Problem
from symphony.trackers.base import CommentCapability
from symphony.trackers.comments import upsert_comment

__all__ = ["post_note", "post_skill_report"]

_TIMEOUT_S = 30.0
_log = structlog.get_logger(__name__)


async def post_skill_report(bound: Bound, issue: Issue, problems: Sequence[Problem]) -> None:
    """Name the malformed skills on the issue being worked on; nothing to say, nothing posted."""
    body = skills.comment_body(problems)
    if body is not None:
        await _post(bound, issue, kind="skills", fingerprint=skills.fingerprint(problems), body=body)


async def post_note(bound: Bound, issue: Issue, *, kind: str, body: str) -> None:
    """Put or edit one note of a kind on an issue."""
    await _post(bound, issue, kind=kind, fingerprint=body, body=body)


async def _post(bound: Bound, issue: Issue, *, kind: str, fingerprint: str, body: str) -> None:
    tracker = bound.tracker
    facts = {"issue_id": issue.id, "issue_identifier": issue.identifier, "kind": kind}
    if not isinstance(tracker, CommentCapability):
        _log.info("comment_skipped", reason="the tracker has no comments", **facts)
        return
    try:
        with anyio.fail_after(_TIMEOUT_S):
            done = await upsert_comment(
                tracker,
                issue.id,
                kind=kind,
                scope=bound.workflow.path.parent.name,
                fingerprint=fingerprint,
                body=bound.redaction.text(body),
            )
    except Exception as error:  # noqa: BLE001 - a comment is never worth a run
        reason = bound.redaction.text(str(error)) or type(error).__name__
        _log.warning("comment_failed", reason=reason, **facts)
    else:
        _log.info("comment_posted", outcome=done.outcome.value, comment_id=done.comment_id, **facts)

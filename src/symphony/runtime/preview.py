"""Exactly what a dispatch would send now, told without a dispatch.

Nothing is made, fetched, posted or started. What hooks would still change in a workspace is not seen ahead.
"""

from dataclasses import dataclass
from typing import Any

from symphony.domain.issue import Issue
from symphony.observability.documents import skills_document
from symphony.runtime import briefing
from symphony.runtime.bound import Bound
from symphony.runtime.catalog import RunCatalog
from symphony.runtime.skill_source import skills_foreseen

__all__ = ["PromptPreview", "preview", "prompt_document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPreview:
    """The two texts of a session's start, and where its skills came from.

    Attributes:
        issue_identifier: whose session it would be.
        attempt: as the template would see it (PR3).
        envelope: the system-level text; null where nothing at all is sent.
        prompt: of the first turn.
        catalog: the skills that are listed and dropped, and what is wrong with files.
        note: why skills are missing that a dispatch might find, one line, or null.
    """

    issue_identifier: str
    attempt: int | None
    envelope: str | None
    prompt: str
    catalog: RunCatalog
    note: str | None = None


async def preview(bound: Bound, issue: Issue, attempt: int | None) -> PromptPreview:
    """The texts that a run started now would get, made by the functions that a run uses.

    Raises:
        SymphonyError: what would fail the run as well: the workspace's place, the repository, the template.
    """
    catalog, note = await skills_foreseen(bound, issue)
    return PromptPreview(
        issue_identifier=issue.identifier,
        attempt=attempt,
        envelope=briefing.envelope(catalog),
        prompt=await briefing.prompt(bound, issue, attempt),
        catalog=catalog,
        note=note,
    )


def prompt_document(seen: PromptPreview, *, source: str) -> dict[str, Any]:
    """The preview as JSON (DESIGN 11a); `source` is `daemon`, or `files` where none runs. Not yet masked."""
    return {
        "issue_identifier": seen.issue_identifier,
        "source": source,
        "attempt": seen.attempt,
        "envelope": seen.envelope,
        "prompt": seen.prompt,
        "skills": skills_document(seen.catalog.skills),
        "note": seen.note,
    }

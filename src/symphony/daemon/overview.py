"""What the daemon shows beside its state: skills, feedback, and the settings in force."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs
from pydantic import BaseModel

from symphony import skills
from symphony.api import models
from symphony.api.documents import feedback_document
from symphony.api.history import MAX_EVENTS
from symphony.api.models import utc_text, wall_text
from symphony.api.skill_outcomes import skill_uses
from symphony.config import Settings
from symphony.daemon.context import RuntimeContext, skill_options
from symphony.daemon.runs.skills import LOAD_DEADLINE_S, in_skill_thread
from symphony.daemon.state_dir import library_key
from symphony.domain import SymphonyError
from symphony.journal.model import UnusableError
from symphony.journal.reader import SkillReport, open_reader
from symphony.library.model import LibraryError
from symphony.library.store import Library
from symphony.scheduler import Claim, State, claim_of
from symphony.skills import SkillSet

_GRACE_S: Final = 0.5
_BUSY_S: Final = 1.0
"""How long the state waits for the library, which a process locks for a moment as it opens or closes it."""


async def workflow_skills(context: RuntimeContext) -> SkillSet | None:
    """The skills beside WORKFLOW.md and those of the user; `None` if reading them takes too long."""
    directory, options = context.workflow.path.parent, skill_options(context.settings.agent.skills)
    return await in_skill_thread(
        lambda: skills.load(directory, options, until=time.monotonic() + LOAD_DEADLINE_S),
        LOAD_DEADLINE_S,
        grace_s=_GRACE_S,
    )


def feedback_on(
    library: Library | None, state_dir: Path | None, identifier: str
) -> tuple[models.Feedback, ...]:
    """The feedback on an issue of that daemon; none if the library cannot be read. Blocking."""
    with suppress(LibraryError):
        if library is not None and state_dir is not None and library.path.exists():
            return tuple(map(feedback_document, library.feedback(library_key(state_dir), identifier)))
    return ()


def with_feedback(document: models.Issue, found: tuple[models.Feedback, ...]) -> models.Issue:
    """The issue with its feedback, the newest first, and the stars of its result."""
    stars = next((one.stars for one in found if one.author == "operator"), None)
    result = None if document.result is None else structs.replace(document.result, stars=stars)
    return structs.replace(document, feedback=found, result=result)


def with_stars(document: models.State, library: Library, state_dir: Path) -> models.State:
    """The state with the stars of what is ready; without, if the library cannot be read soon. Blocking."""
    stars: Mapping[str, int] = {}
    if document.ready and library.path.exists():
        with suppress(LibraryError):
            stars = Library(library.path, busy_s=_BUSY_S).stars_of_issues(library_key(state_dir))
    ready = (structs.replace(row, stars=stars.get(row.issue_identifier)) for row in document.ready)
    return structs.replace(document, ready=tuple(ready)) if stars else document


def with_past(document: models.Issue, journal: Path) -> models.Issue:
    """The issue with the skills of its latest run and with its events, where only the journal knows them.

    As it was, if the journal cannot be read. Blocking.
    """
    if document.running is not None:
        return document
    skills_of_run, events = document.skills, document.recent_events
    with suppress(UnusableError, msgspec.MsgspecError), open_reader(journal) as reader:
        if not events:
            past = reader.latest_events(
                document.issue_identifier, issue_id=document.issue_id, limit=MAX_EVENTS
            )
            events = tuple(
                models.Event(at=wall_text(one.at_wall_ms), event=one.event, message=one.message)
                for one in (numbered.event for numbered in past)
            )
        if skills_of_run is None and document.runs:
            text = reader.skills_document(document.runs[0].run_id)
            skills_of_run = None if text is None else msgspec.json.decode(text, type=models.Skills)
    return structs.replace(document, skills=skills_of_run, recent_events=events)


def kept_workspaces(context: RuntimeContext, state: State) -> tuple[models.KeptWorkspace, ...]:
    """The workspaces with work that no branch holds, of issues that nobody works on; blocking."""
    with suppress(SymphonyError):
        return tuple(
            models.KeptWorkspace(
                issue_id=kept.issue_id,
                issue_identifier=kept.identifier,
                path=str(kept.path),
                reason=kept.reason,
                look=kept.look,
            )
            for kept in context.workspaces.kept()
            if claim_of(state, kept.issue_id) is Claim.UNCLAIMED
        )
    return ()


def with_kept(document: models.Issue, kept: tuple[models.KeptWorkspace, ...]) -> models.Issue:
    """The issue with its workspace, if it is kept."""
    return structs.replace(
        document, kept=next((one for one in kept if one.issue_id == document.issue_id), None)
    )


def skills_document(
    context: RuntimeContext,
    found: SkillSet | None,
    uses: Sequence[SkillReport],
    outcomes: models.SkillOutcomes,
    *,
    since: datetime,
    now: datetime,
) -> models.SkillsOverview:
    """The skills that were found, their use in the runs since then, and what became of those runs."""
    section = context.settings.agent.skills
    return models.SkillsOverview(
        generated_at=utc_text(now),
        enabled=section.enabled,
        source=section.source,
        complete=found is not None and found.incomplete is None,
        roots=tuple(f"{root.scope.value}: {root.path}" for root in found.roots) if found else (),
        skills=tuple(models.KnownSkill.of(skill) for skill in (found.skills if found else ())),
        problems=tuple(models.SkillFinding.of(problem) for problem in (found.problems if found else ())),
        since=utc_text(since),
        uses=tuple(skill_uses(use) for use in uses if use.listed or use.seen),
        outcomes=outcomes,
    )


def settings_in_force(settings: Settings) -> Iterator[models.Setting]:
    """All settings that have a value. The types of secrets mask them."""
    given = dict(_leaves("", settings.model_dump(exclude_unset=True)))
    for key, value in _leaves("", settings.model_dump()):
        yield models.Setting(key=key, value=value, given=key in given)


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(f"{prefix}.{name}" if prefix else str(name), part)
    elif isinstance(value, list | tuple | set | frozenset):
        if value:
            yield prefix, ", ".join(str(part) for part in value)
    elif value is not None:
        yield prefix, str(value)

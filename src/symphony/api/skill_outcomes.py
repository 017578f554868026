"""The figures of skills: the outcomes of the runs with each version. All but `read_skill_outcomes` is pure.

The API, the page and `symphony skills report` show this document.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from statistics import fmean, median
from typing import Any

from msgspec import structs

from symphony.api import models
from symphony.journal.reader import JournalReader, SkillReport
from symphony.journal.skill_outcomes import OutcomeCounts, VersionOutcomes
from symphony.library.model import LibraryError
from symphony.library.store import Library


def read_skill_outcomes(
    reader: JournalReader, library: Library, workflow: str, *, since_wall_ms: int
) -> models.SkillOutcomes:
    """The figures of the runs since then, with the stars in the library if it can be read. Blocks.

    Raises:
        UnusableError: the journal cannot be read.
    """
    stars: dict[str, int] = {}
    if library.path.exists():
        with suppress(LibraryError):
            stars = library.stars(workflow)
    return skill_outcomes(reader.version_outcomes(since_wall_ms=since_wall_ms, stars=stars))


def skill_outcomes(versions: Iterable[VersionOutcomes]) -> models.SkillOutcomes:
    """The figures made from the journal's counts."""
    by_version: dict[tuple[str, str | None], list[VersionOutcomes]] = {}
    for version in versions:
        by_version.setdefault((version.name, version.sha256), []).append(version)
    newest_first = sorted(by_version.values(), key=lambda members: -_last_used_ms(members))
    rows = [_version(members) for members in sorted(newest_first, key=lambda members: members[0].name)]
    return models.SkillOutcomes(versions=tuple(rows))


def skill_uses(use: SkillReport) -> models.SkillUses:
    """How often a skill was used, and how those runs ended."""
    return models.SkillUses.of(
        use,
        outcomes=dict(use.outcomes),
        seen_outcomes=dict(use.seen_outcomes),
        last_used_at=models.wall_text(use.last_used_wall_ms),
    )


def _last_used_ms(members: Sequence[VersionOutcomes]) -> int:
    return max(one.last_used_wall_ms for one in members)


def _version(members: Sequence[VersionOutcomes]) -> models.SkillVersionFigures:
    first = members[0]
    agents = [
        models.AgentFigures(agent=one.agent, model=one.model, **_figures([one]))
        for one in sorted(members, key=lambda one: -one.counts.runs)
    ]
    return models.SkillVersionFigures(
        name=first.name,
        sha256=first.sha256,
        library_version=first.library_version,
        last_used_at=models.wall_text(_last_used_ms(members)),
        agents=tuple(agents),
        **_figures(members),
    )


def _figures(members: Sequence[VersionOutcomes]) -> dict[str, Any]:
    """The fields of `models.SkillFigures`."""
    stars = [star for one in members for star in one.stars]
    counts = OutcomeCounts(*map(sum, zip(*(structs.astuple(one.counts) for one in members), strict=True)))
    return {
        **structs.asdict(counts),
        "rated": len(stars),
        "stars": round(fmean(stars), 2) if stars else None,
        "attempts": median(value for one in members for value in one.attempts),
        "turns": median(value for one in members for value in one.turns),
        "tokens": median(value for one in members for value in one.tokens),
    }

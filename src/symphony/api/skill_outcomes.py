"""The figures of skills: what became of the runs with each version, and what a holdout shows.

Pure, but for `read_skill_outcomes`. The API, the page and `symphony skills report` show this document.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from statistics import fmean, median
from typing import Any, Final

from symphony.api import models
from symphony.api.intervals import difference, wilson
from symphony.journal.reader import JournalReader, SkillReport
from symphony.journal.skill_outcomes import ArmOutcomes, VersionOutcomes
from symphony.library.model import LibraryError
from symphony.library.store import Library

ENOUGH: Final = 10
"""Below this many runs or issues no rate is shown."""

WINDOW: Final = 50
"""From this many issues in each arm, or this many runs that could have opened it, a skill is judged."""

_DIGITS: Final = 4


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
    return skill_outcomes(
        reader.version_outcomes(since_wall_ms=since_wall_ms, stars=stars),
        reader.holdout_outcomes(since_wall_ms=since_wall_ms),
    )


def skill_outcomes(versions: Iterable[VersionOutcomes], arms: Iterable[ArmOutcomes]) -> models.SkillOutcomes:
    """The figures of the journal's counts."""
    by_version: dict[tuple[str, str | None], list[VersionOutcomes]] = {}
    for version in versions:
        by_version.setdefault((version.name, version.sha256), []).append(version)
    newest_first = sorted(by_version.values(), key=lambda members: -_last_used_ms(members))
    rows = [_version(members) for members in sorted(newest_first, key=lambda members: members[0].name)]
    by_name: dict[str, dict[bool, ArmOutcomes]] = {}
    for arm in arms:
        by_name.setdefault(arm.name, {})[arm.withheld] = arm
    holdouts = [_holdout(name, found) for name, found in sorted(by_name.items())]
    verdicts = [verdict for one in holdouts if (verdict := _verdict(one)) is not None]
    verdicts += [_never_opened(row) for row in rows if row.opened == 0 and row.runs >= WINDOW]
    return models.SkillOutcomes(versions=tuple(rows), holdouts=tuple(holdouts), verdicts=tuple(verdicts))


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
        for one in sorted(members, key=lambda one: -one.runs)
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
    runs = sum(one.runs for one in members)
    stars = [star for one in members for star in one.stars]
    return {
        "runs": runs,
        "opened": sum(one.opened for one in members),
        "delivered": _rate(sum(one.delivered for one in members), runs),
        "ready": _rate(sum(one.ready for one in members), runs),
        "merged": sum(one.merged for one in members),
        "blocked": _rate(sum(one.blocked for one in members), runs),
        "rated": len(stars),
        "stars": round(fmean(stars), 2) if stars else None,
        "attempts": median(value for one in members for value in one.attempts),
        "turns": median(value for one in members for value in one.turns),
        "tokens": median(value for one in members for value in one.tokens),
    }


def _rate(count: int, number: int) -> models.Rate:
    if number < ENOUGH:
        return models.Rate(count=count, share=None, low=None, high=None)
    low, high = wilson(count, number)
    return models.Rate(
        count=count, share=round(count / number, _DIGITS), low=round(low, _DIGITS), high=round(high, _DIGITS)
    )


def _holdout(name: str, found: dict[bool, ArmOutcomes]) -> models.SkillHoldout:
    none = ArmOutcomes(
        name=name, withheld=False, issues=0, delivered=0, ready=0, blocked=0, turns=[], tokens=[]
    )
    with_skill, without = found.get(False, none), found.get(True, none)
    few = min(with_skill.issues, without.issues) < ENOUGH

    def compared(count: int, other: int) -> models.Difference | None:
        if few:
            return None
        low, high = difference(count, with_skill.issues, other, without.issues)
        share = count / with_skill.issues - other / without.issues
        return models.Difference(
            share=round(share, _DIGITS), low=round(low, _DIGITS), high=round(high, _DIGITS)
        )

    return models.SkillHoldout(
        name=name,
        with_skill=_arm(with_skill),
        without_skill=_arm(without),
        delivered=compared(with_skill.delivered, without.delivered),
        ready=compared(with_skill.ready, without.ready),
        blocked=compared(with_skill.blocked, without.blocked),
    )


def _arm(arm: ArmOutcomes) -> models.HoldoutArm:
    return models.HoldoutArm(
        issues=arm.issues,
        delivered=_rate(arm.delivered, arm.issues),
        ready=_rate(arm.ready, arm.issues),
        blocked=_rate(arm.blocked, arm.issues),
        turns=median(arm.turns) if arm.turns else None,
        tokens=median(arm.tokens) if arm.tokens else None,
    )


def _verdict(one: models.SkillHoldout) -> models.SkillVerdict | None:
    """What a full window says; `None` before it is full."""
    if one.ready is None or min(one.with_skill.issues, one.without_skill.issues) < WINDOW:
        return None
    verdict = "helps" if one.ready.low > 0 else "harms" if one.ready.high < 0 else "no_effect"
    message = (
        f"ready {one.ready.share:+.0%} with the skill ({one.ready.low:+.0%} to {one.ready.high:+.0%}), "
        f"{one.with_skill.issues} issues with and {one.without_skill.issues} without it"
    )
    return models.SkillVerdict(name=one.name, sha256=None, verdict=verdict, message=message)


def _never_opened(row: models.SkillVersionFigures) -> models.SkillVerdict:
    message = f"{row.runs} runs listed it, and none is known to have opened it"
    return models.SkillVerdict(name=row.name, sha256=row.sha256, verdict="never_opened", message=message)

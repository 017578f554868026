"""Renders the block that tells an agent which skills exist and where to read them, within its budgets."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final

from symphony.skills.formats import Line, page
from symphony.skills.model import Skill, SkillOptions, SkillSet
from symphony.skills.text import MAX_FIELD

__all__ = ["Block", "DropReason", "Dropped", "render"]

_SHORTEST: Final = 16


class DropReason(StrEnum):
    """Why a loaded skill is not in the block."""

    COUNT = "count"
    BUDGET = "budget"
    DISABLED = "disabled"
    NOT_INCLUDED = "not_included"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A skill that is loaded and not listed."""

    name: str
    reason: DropReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What went into the prompt, and what did not.

    Attributes:
        text: the Markdown block without a final newline, or null where there is nothing to list.
        listed, dropped: in the order of the catalog.
        shortened: those of the listed whose text was cut to keep the block within its characters.
    """

    text: str | None
    listed: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    shortened: tuple[str, ...] = ()


def render(skill_set: SkillSet, options: SkillOptions) -> Block:
    """The catalog of a set: one line per skill, the tail beyond `max_skills_in_prompt` dropped.

    Where that has more than `max_prompt_chars` characters, all texts are shortened to one length. Only where
    the names alone have more, those at the end go as well.
    """
    reasons = _reasons(skill_set.skills, options)
    chosen = [skill for skill, reason in zip(skill_set.skills, reasons, strict=True) if reason is None]
    whole = page(skill_set, chosen, options.format)
    room = options.max_prompt_chars + 1 - sum(len(one) + 1 for one in (*whole.before, *whole.after))
    lines, limit = _fit(whole.lines, room)
    kept = len(lines)
    rendered = [*whole.before, *(line.render(limit) for line in lines), *whole.after]
    named = zip(chosen, lines, strict=False)
    return Block(
        text="\n".join(rendered) if kept else None,
        listed=tuple(skill.name for skill in chosen[:kept]),
        dropped=tuple(_dropped(skill_set.skills, reasons, kept)),
        shortened=tuple(skill.name for skill, line in named if line.longest() > limit),
    )


def _reasons(skills: Sequence[Skill], options: SkillOptions) -> list[DropReason | None]:
    """For each skill why it is not listed, whatever room there is; null for those up to the cap."""
    reasons: list[DropReason | None] = []
    room = options.max_skills_in_prompt
    for skill in skills:
        if skill.name in options.disabled_skills:
            reasons.append(DropReason.DISABLED)
        elif options.include and skill.name not in options.include:
            reasons.append(DropReason.NOT_INCLUDED)
        else:
            reasons.append(None if room > 0 else DropReason.COUNT)
            room -= 1
    return reasons


def _dropped(skills: Sequence[Skill], reasons: Sequence[DropReason | None], kept: int) -> Iterator[Dropped]:
    """Those with a reason, and all but the first `kept` of the others: there is no room for their names."""
    for skill, reason in zip(skills, reasons, strict=True):
        if reason is not None:
            yield Dropped(name=skill.name, reason=reason)
        elif kept:
            kept -= 1
        else:
            yield Dropped(name=skill.name, reason=DropReason.BUDGET)


def _fit(lines: Sequence[Line], room: int) -> tuple[Sequence[Line], int]:
    """The lines whose names fit, and how many characters of each text do; a few are as good as none."""
    bare = [*accumulate(len(line.render(0)) + 1 for line in lines)]
    lines = lines[: bisect_right(bare, room)]

    def size(limit: int) -> int:
        return sum(len(line.render(limit)) + 1 for line in lines)

    if size(MAX_FIELD) <= room:
        return lines, MAX_FIELD
    limits = range(_SHORTEST, MAX_FIELD)
    found = bisect_right(limits, room, key=size)
    return lines, limits[found - 1] if found else 0

"""Renders the block that tells an agent which skills exist and where to read them, within its budgets."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple

from symphony.skills.formats import Line, Page, answer, page, pointer
from symphony.skills.model import Skill, SkillOptions, SkillSet
from symphony.skills.text import MAX_FIELD

__all__ = ["Block", "DropReason", "Dropped", "render", "render_found"]

_SHORTEST: Final = 16


class DropReason(StrEnum):
    """Why a loaded skill is not in the block.

    `search` is no loss: the session finds it with `skill_search`. `native` is none either: the agent lists
    the very same file itself.
    """

    COUNT = "count"
    BUDGET = "budget"
    DISABLED = "disabled"
    NOT_INCLUDED = "not_included"
    NATIVE = "native"
    SEARCH = "search"


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
        offered: what the session may ask for: those that are listed, or those that a search finds.
        shortened: those of the listed whose text was cut to keep the block within its characters.
    """

    text: str | None
    listed: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    shortened: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()

    @property
    def searched(self) -> bool:
        """Whether the block lists nothing and points at the search instead."""
        return bool(self.offered) and not self.listed


def render(skill_set: SkillSet, options: SkillOptions, *, native: Collection[str] = ()) -> Block:
    """The catalog of a set: one line per skill, the tail beyond `max_skills_in_prompt` dropped.

    Where that has more than `max_prompt_chars` characters, all texts are shortened to one length. Only where
    the names alone have more, those at the end go as well. With more than `search_above` skills none is
    listed: the block says how to search them. `native` are names that the agent lists itself.
    """
    if not skill_set.skills:
        return Block(text=None)
    reasons = _reasons(skill_set.skills, options, native)
    wanted = [skill for skill, reason in zip(skill_set.skills, reasons, strict=True) if reason is None]
    if options.search_above is not None and len(wanted) > options.search_above:
        return _pointing(skill_set.skills, reasons, options)
    chosen = wanted[: options.max_skills_in_prompt]
    written = _write(page(skill_set, chosen, options.format, options.activation), options)
    listed = tuple(skill.name for skill in chosen[: written.kept])
    return Block(
        text=written.text,
        listed=listed,
        dropped=tuple(_dropped(skill_set.skills, reasons, written.kept, len(chosen))),
        shortened=tuple(chosen[index].name for index in written.shortened),
        offered=listed,
    )


def render_found(skill_set: SkillSet, skills: Sequence[Skill], options: SkillOptions) -> str | None:
    """The answer to a search that found these skills of a set, in their order, within the same budget.

    Null where there is nothing to tell, or no room for it.
    """
    return _write(answer(skill_set, skills, options.format, options.activation), options).text


def _pointing(skills: Sequence[Skill], reasons: Sequence[DropReason | None], options: SkillOptions) -> Block:
    """The block that lists nothing; without room for its one sentence the session has no skills."""
    offered = tuple(skill.name for skill, reason in zip(skills, reasons, strict=True) if reason is None)
    text = "\n".join(pointer(len(offered), options.activation))
    fits = len(text) <= options.max_prompt_chars
    instead = DropReason.SEARCH if fits else DropReason.BUDGET
    return Block(
        text=text if fits else None,
        dropped=tuple(
            Dropped(name=skill.name, reason=reason or instead)
            for skill, reason in zip(skills, reasons, strict=True)
        ),
        offered=offered if fits else (),
    )


def _reasons(
    skills: Sequence[Skill], options: SkillOptions, native: Collection[str]
) -> list[DropReason | None]:
    """For each skill why it is not listed, whatever room there is; null for the others."""
    return [_reason(skill.name, options, native) for skill in skills]


def _reason(name: str, options: SkillOptions, native: Collection[str]) -> DropReason | None:
    if name in options.disabled_skills:
        return DropReason.DISABLED
    if options.include and name not in options.include:
        return DropReason.NOT_INCLUDED
    return DropReason.NATIVE if name in native else None


def _dropped(
    skills: Sequence[Skill], reasons: Sequence[DropReason | None], kept: int, chosen: int
) -> Iterator[Dropped]:
    """Those with a reason; of the others all behind the first `kept`, which had room among the `chosen`."""
    place = 0
    for skill, reason in zip(skills, reasons, strict=True):
        if reason is not None:
            yield Dropped(name=skill.name, reason=reason)
            continue
        place += 1
        if place > kept:
            yield Dropped(name=skill.name, reason=DropReason.BUDGET if place <= chosen else DropReason.COUNT)


class _Written(NamedTuple):
    """A page as text, null without any line; how many lines have room, and which of them were cut."""

    text: str | None
    kept: int
    shortened: tuple[int, ...]


def _write(whole: Page, options: SkillOptions) -> _Written:
    room = options.max_prompt_chars + 1 - sum(len(one) + 1 for one in (*whole.before, *whole.after))
    shown = [line.render(MAX_FIELD) for line in whole.lines]
    shortened: tuple[int, ...] = ()
    if sum(len(one) + 1 for one in shown) > room:
        lines, limit = _fit(whole.lines, room)
        shown = [line.render(limit) for line in lines]
        shortened = tuple(index for index, line in enumerate(lines) if line.longest() > limit)
    text = "\n".join([*whole.before, *shown, *whole.after]) if shown else None
    return _Written(text=text, kept=len(shown), shortened=shortened)


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

"""The skills of a run: loaded under a deadline, listed in the envelope, never in the way of a dispatch."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio
import structlog
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from symphony import skills
from symphony.observability.history import DroppedSkill, ListedSkill, RunSkills, SkillProblem
from symphony.skills import (
    Dropped,
    DropReason,
    Native,
    Offer,
    Problem,
    Severity,
    Skill,
    SkillOptions,
    SkillSet,
)

__all__ = ["RunCatalog", "Scanned", "load_catalog", "read_catalog", "skill_threads"]

DEADLINE_S = 2.0
DIGEST_DEADLINE_S = 1.0
_THREADS = 4
_FOR_WANT_OF_ROOM = frozenset({DropReason.COUNT, DropReason.BUDGET})
_LEVELS = {Severity.ERROR: logging.WARNING, Severity.WARNING: logging.DEBUG, Severity.INFO: logging.DEBUG}
_limiters = RunVar[CapacityLimiter]("symphony_skill_loaders")
_log = structlog.get_logger(__name__)

Head = Callable[[], str | None]
"""Tells the commit of a tree, blocking; null where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """The directories in which the agent looks for skills by itself.

    Attributes:
        workspace: where the files of the session's workspace can be read now.
        roots: absolute; those of the workspace below that directory.
        copies: ours are read elsewhere (`source: base_branch`). What the agent would show is then the text of
            the branch, for which ours is never left out.
    """

    workspace: Path
    roots: tuple[Path, ...]
    copies: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCatalog:
    """The block for the envelope (null when there is nothing to list) and what was wrong with files.

    Attributes:
        listed: the skills of the block, in its order.
        shortened: names of the listed whose text was cut to keep the block within its characters.
        sha256: by path, of the files that are listed or malformed, as far as they could be read.
        complete: whether everything was looked at. If not, that a problem is missing says nothing.
        commit: of which the skills of the repository are; null where it is not known.
        found: all that was loaded; null unless complete.
        offer: what the session may ask for by its tools; null for nothing.
        own_listing: the agent may list skills by itself; not where every one of them is ours.
    """

    block: str | None = None
    listed: tuple[Skill, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    shortened: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False
    commit: str | None = None
    found: SkillSet | None = None
    offer: Offer | None = None
    own_listing: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Of the listed skills."""
        return tuple(skill.name for skill in self.listed)

    @property
    def skills(self) -> RunSkills:
        """The same for people: names, places and digests, without the text."""
        return RunSkills(
            commit=self.commit,
            listed=tuple(
                ListedSkill(name=one.name, path=one.path, sha256=self.sha256.get(one.path))
                for one in self.listed
            ),
            dropped=tuple(DroppedSkill(name=one.name, reason=one.reason.value) for one in self.dropped),
            problems=tuple(
                SkillProblem(
                    path=one.path,
                    code=one.code.value,
                    severity=one.severity.value,
                    line=one.line,
                    column=one.column,
                    sha256=self.sha256.get(one.path),
                )
                for one in self.problems
            ),
        )


async def load_catalog(
    workspace: Path,
    options: SkillOptions,
    *,
    scanned: Scanned | None = None,
    deadline_s: float | None = None,
    head: Head | None = None,
) -> RunCatalog:
    """The catalog of a workspace, and a log line for what is wrong with it or left out."""
    catalog = await read_catalog(workspace, options, scanned=scanned, deadline_s=deadline_s, head=head)
    _tell(catalog, options)
    return catalog


def _tell(catalog: RunCatalog, options: SkillOptions) -> None:
    for problem in catalog.problems:
        where = f"{problem.path}:{problem.line}" if problem.line else problem.path
        level = _LEVELS[problem.severity]
        _log.log(level, "skill_problem", path=where, code=problem.code.value, hint=problem.hint)
    for hidden in catalog.found.shadowed if catalog.found else ():
        _log.debug("skill_shadowed", name=hidden.name, path=hidden.path, by=hidden.by)
    if catalog.shortened:
        _log.info("skills_shortened", names=catalog.shortened, limit=options.max_prompt_chars)
    if catalog.offer is not None and catalog.offer.searched:
        count = len(catalog.offer.skill_set.skills)
        _log.info("skills_searchable", count=count, limit=options.search_above)
    if not catalog.own_listing:
        _log.info("agent_skills_silenced")
    if catalog.dropped:
        _tell_dropped(catalog.dropped, options)


def _tell_dropped(dropped: Sequence[Dropped], options: SkillOptions) -> None:
    """What there was no room for is news; what the operator has chosen to leave out is not."""
    reasons: dict[str, list[str]] = {}
    for one in dropped:
        reasons.setdefault(one.reason.value, []).append(one.name)
    names = tuple(one.name for one in dropped)
    level = logging.INFO if _FOR_WANT_OF_ROOM & reasons.keys() else logging.DEBUG
    limit = options.max_skills_in_prompt
    _log.log(level, "skills_dropped", names=names, reasons=reasons, limit=limit)


async def read_catalog(
    workspace: Path,
    options: SkillOptions,
    *,
    tree: Path | None = None,
    scanned: Scanned | None = None,
    deadline_s: float | None = None,
    head: Head | None = None,
) -> RunCatalog:
    """The catalog alone; a slow disk or a bug in the loader gives an empty one and a warning.

    Args:
        workspace: where the agent will find the skills.
        options: what the operator chose.
        tree: where to read them instead, for a place that is not made yet.
        scanned: what the agent lists by itself; null where that is nobody's concern.
        deadline_s: seconds after which it goes on without skills; null for `DEADLINE_S`.
        head: tells the commit that the skills are of, in the thread that reads them.
    """
    if not options.enabled:
        return RunCatalog()
    catalog: RunCatalog | None = None
    deadline_s = DEADLINE_S if deadline_s is None else deadline_s
    with anyio.move_on_after(deadline_s):
        try:
            load = partial(_load, workspace, options, tree, scanned, head)
            catalog = await to_thread.run_sync(load, abandon_on_cancel=True, limiter=skill_threads())
        except Exception as error:  # noqa: BLE001 - the loader must never cost a dispatch, whatever its bug
            _log.warning("skills_failed", reason=type(error).__name__)
            return RunCatalog()
    if catalog is None:
        _log.warning("skills_timed_out", deadline_s=deadline_s)
        return RunCatalog()
    digests = await _digests(tree or workspace, options, catalog)
    return replace(catalog, sha256=digests) if digests else catalog


async def _digests(tree: Path, options: SkillOptions, catalog: RunCatalog) -> dict[str, str]:
    """The digests, under a deadline of their own: without them a run goes on as well, and nobody is told."""
    files: tuple[Skill | Problem, ...] = (*catalog.listed, *catalog.problems)
    if not files:
        return {}
    with anyio.move_on_after(DIGEST_DEADLINE_S):
        try:
            return await to_thread.run_sync(
                skills.digests_of, tree, files, options, abandon_on_cancel=True, limiter=skill_threads()
            )
        except Exception as error:  # noqa: BLE001 - as above
            _log.warning("skills_failed", reason=type(error).__name__)
    return {}


def skill_threads() -> CapacityLimiter:
    """Threads of its own: a loader that hangs for good on a dead disk must not use up everybody's."""
    try:
        return _limiters.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _limiters.set(limiter)
        return limiter


def _load(
    workspace: Path, options: SkillOptions, tree: Path | None, scanned: Scanned | None, head: Head | None
) -> RunCatalog:
    commit = None if head is None else head()
    found = skills.load(tree or workspace, options, root=workspace)
    native = Native() if scanned is None else _settle(found, scanned)
    block = skills.render(found, options, native=native.duplicates)
    named = {skill.name: skill for skill in found.skills}
    return RunCatalog(
        block=block.text,
        listed=tuple(named[name] for name in block.listed),
        dropped=block.dropped,
        shortened=block.shortened,
        problems=found.problems,
        complete=True,
        commit=commit,
        found=found,
        offer=Offer.of(found, block, workspace=tree or workspace, options=options),
        own_listing=native.listing,
    )


def _settle(found: SkillSet, scanned: Scanned) -> Native:
    native = skills.settle(found, scanned.workspace, scanned.roots)
    return replace(native, duplicates=frozenset()) if scanned.copies else native

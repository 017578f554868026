"""The skills of a run: loaded under a deadline, listed in the envelope, never in the way of a dispatch."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import structlog
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from symphony import skills
from symphony.observability.history import DroppedSkill, ListedSkill, RunSkills, SkillProblem
from symphony.skills import Dropped, DropReason, Problem, Scope, Severity, Skill, SkillOptions, SkillSet

__all__ = ["RunCatalog", "anchored", "load_catalog", "read_catalog"]

DEADLINE_S = 2.0
DIGEST_DEADLINE_S = 1.0
_THREADS = 4
_FOR_WANT_OF_ROOM = frozenset({DropReason.COUNT, DropReason.BUDGET})
_LEVELS = {Severity.ERROR: logging.WARNING, Severity.WARNING: logging.DEBUG, Severity.INFO: logging.DEBUG}
_limiters = RunVar[CapacityLimiter]("symphony_skill_loaders")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCatalog:
    """The block for the envelope (null when there is nothing to list) and what was wrong with files.

    Attributes:
        listed: the skills of the block, in its order.
        shortened: names of the listed whose text was cut to keep the block within its characters.
        sha256: by path, of the files that are listed or malformed, as far as they could be read.
        complete: whether everything was looked at. If not, that a problem is missing says nothing.
        commit: of which the skills of the repository are; null where it is not known.
        found: all that was loaded, for tools that serve it; null unless complete.
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
    workspace: Path, options: SkillOptions, *, deadline_s: float | None = None
) -> RunCatalog:
    """The catalog of a workspace, and a log line for what is wrong with it or left out."""
    catalog = await read_catalog(workspace, options, deadline_s=deadline_s)
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
    workspace: Path, options: SkillOptions, *, tree: Path | None = None, deadline_s: float | None = None
) -> RunCatalog:
    """The catalog alone; a slow disk or a bug in the loader gives an empty one and a warning.

    Args:
        workspace: where the agent will find the skills.
        options: what the operator chose.
        tree: where to read them instead, for a place that is not made yet.
        deadline_s: seconds after which it goes on without skills; null for `DEADLINE_S`.
    """
    if not options.enabled:
        return RunCatalog()
    catalog: RunCatalog | None = None
    deadline_s = DEADLINE_S if deadline_s is None else deadline_s
    with anyio.move_on_after(deadline_s):
        try:
            catalog = await to_thread.run_sync(
                _load, workspace, options, tree, abandon_on_cancel=True, limiter=_limiter()
            )
        except Exception as error:  # noqa: BLE001 - the loader must never cost a dispatch, whatever its bug
            _log.warning("skills_failed", reason=type(error).__name__)
            return RunCatalog()
    if catalog is None:
        _log.warning("skills_timed_out", deadline_s=deadline_s)
        return RunCatalog()
    return replace(catalog, sha256=await _digests(tree or workspace, options, catalog))


async def _digests(tree: Path, options: SkillOptions, catalog: RunCatalog) -> dict[str, str]:
    """The digests, under a deadline of their own: without them a run goes on as well, and nobody is told."""
    files = [(skill.scope, skill.path) for skill in catalog.listed]
    files += [(problem.scope, problem.path) for problem in catalog.problems]
    if not files:
        return {}
    with anyio.move_on_after(DIGEST_DEADLINE_S):
        try:
            return await to_thread.run_sync(
                _digest_all, tree, options, files, abandon_on_cancel=True, limiter=_limiter()
            )
        except Exception as error:  # noqa: BLE001 - as above
            _log.warning("skills_failed", reason=type(error).__name__)
    return {}


def _digest_all(tree: Path, options: SkillOptions, files: Iterable[tuple[Scope, str]]) -> dict[str, str]:
    """By path as it is shown; each anchor's files are read below it and nowhere else."""
    wanted: dict[Path, dict[str, str]] = {}
    for scope, path in files:
        anchor, below = anchored(scope, path, tree, options)
        wanted.setdefault(anchor, {})[below] = path
    return dict(_by_shown_path(wanted))


def _by_shown_path(wanted: Mapping[Path, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    for anchor, shown in wanted.items():
        for below, sha256 in skills.digests(anchor, shown).items():
            yield shown[below], sha256


def anchored(scope: Scope, path: str, tree: Path, options: SkillOptions) -> tuple[Path, str]:
    """The directory that no link of a skill may lead out of, and the skill's path below it.

    Args:
        scope: of a `Skill` or a `Problem`.
        path: of the same.
        tree: the workspace, or what stands in for it.
        options: those that it was loaded with.
    """
    if scope is not Scope.USER or options.user_path is None:
        return tree, path
    shown = options.user_path.rstrip("/")
    return Path(shown or "/").expanduser(), path.removeprefix(f"{shown}/")


def _limiter() -> CapacityLimiter:
    """Threads of its own: a loader that hangs for good on a dead disk must not use up everybody's."""
    try:
        return _limiters.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _limiters.set(limiter)
        return limiter


def _load(workspace: Path, options: SkillOptions, tree: Path | None) -> RunCatalog:
    found = skills.load(tree or workspace, options, root=workspace)
    block = skills.render(found, options)
    named = {skill.name: skill for skill in found.skills}
    return RunCatalog(
        block=block.text,
        listed=tuple(named[name] for name in block.listed),
        dropped=block.dropped,
        shortened=block.shortened,
        problems=found.problems,
        complete=True,
        found=found,
    )

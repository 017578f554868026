"""The skills of a run: loaded under a deadline, listed in the envelope, never in the way of a dispatch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import structlog
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from symphony import skills
from symphony.observability.history import DroppedSkill, ListedSkill, RunSkills, SkillProblem
from symphony.skills import Dropped, Problem, SkillOptions

__all__ = ["RunCatalog", "load_catalog", "read_catalog"]

DEADLINE_S = 2.0
DIGEST_DEADLINE_S = 1.0
_THREADS = 4
_limiters = RunVar[CapacityLimiter]("symphony_skill_loaders")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCatalog:
    """The block for the envelope (null when there is nothing to list) and what was wrong with files.

    `paths` are those of `listed`, in the same order; `sha256` tells by path what the files held that are
    listed or malformed, as far as it could be read.
    """

    block: str | None = None
    listed: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    problems: tuple[Problem, ...] = ()
    paths: tuple[str, ...] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def skills(self) -> RunSkills:
        """The same for people: names, places and digests, without the text."""
        named = zip(self.listed, self.paths, strict=True)
        return RunSkills(
            listed=tuple(
                ListedSkill(name=name, path=path, sha256=self.sha256.get(path)) for name, path in named
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
    workspace: Path, options: SkillOptions, *, deadline_s: float = DEADLINE_S
) -> RunCatalog:
    """The catalog of a workspace, and a log line for what is wrong with it or left out."""
    catalog = await read_catalog(workspace, options, deadline_s=deadline_s)
    for problem in catalog.problems:
        level = "warning" if problem.severity == "error" else "debug"
        where = f"{problem.path}:{problem.line}" if problem.line else problem.path
        getattr(_log, level)("skill_problem", path=where, code=problem.code, hint=problem.hint)
    if catalog.dropped:
        names = tuple(dropped.name for dropped in catalog.dropped)
        _log.info("skills_dropped", names=names, limit=options.max_skills_in_prompt)
    return catalog


async def read_catalog(
    workspace: Path, options: SkillOptions, *, tree: Path | None = None, deadline_s: float = DEADLINE_S
) -> RunCatalog:
    """The catalog alone; a slow disk or a bug in the loader gives an empty one and a warning.

    Args:
        workspace: where the agent will find the skills.
        options: what the operator chose.
        tree: where to read them instead, for a workspace that is not made yet.
        deadline_s: seconds after which it goes on without skills.
    """
    if not options.enabled:
        return RunCatalog()
    catalog: RunCatalog | None = None
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
    return replace(catalog, sha256=await _digests(tree or workspace, catalog))


async def _digests(tree: Path, catalog: RunCatalog) -> dict[str, str]:
    """The digests, under a deadline of their own: without them a run goes on as well, and nobody is told."""
    paths = [*catalog.paths, *(problem.path for problem in catalog.problems)]
    if not paths:
        return {}
    with anyio.move_on_after(DIGEST_DEADLINE_S):
        try:
            return await to_thread.run_sync(
                skills.digests, tree, paths, abandon_on_cancel=True, limiter=_limiter()
            )
        except Exception as error:  # noqa: BLE001 - as above
            _log.warning("skills_failed", reason=type(error).__name__)
    return {}


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
    paths = {skill.name: skill.path for skill in found.skills}
    return RunCatalog(
        block=block.text,
        listed=block.listed,
        dropped=block.dropped,
        problems=found.problems,
        paths=tuple(paths[name] for name in block.listed),
    )

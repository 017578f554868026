"""The skills of a run: loaded under a deadline, listed in the envelope, never in the way of a dispatch."""

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import structlog
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from symphony import skills
from symphony.agents.base import AgentSkillRoots, ListAgentSkills
from symphony.api.models import DroppedSkill, ListedSkill, SkillProblem, Skills
from symphony.daemon.context import RuntimeContext, skill_options
from symphony.domain import Issue
from symphony.skills import (
    ACTIVATE_TOOL,
    SEARCH_TOOL,
    ActivationMode,
    AvailableSkills,
    Dropped,
    DropReason,
    Incomplete,
    NativeListing,
    Problem,
    Severity,
    Skill,
    SkillOptions,
    SkillSet,
)
from symphony.workspaces import Workspace, WorkspacePreview

LOAD_DEADLINE_S = 2.0
GRACE_S = 0.5  # for a loader that keeps to its deadline, but not to the millisecond
DIGEST_DEADLINE_S = 1.0
_THREADS = 4
_turn = threading.Lock()
_FOR_WANT_OF_ROOM = frozenset({DropReason.COUNT, DropReason.BUDGET})
_LEVELS = {Severity.ERROR: logging.WARNING, Severity.WARNING: logging.DEBUG, Severity.INFO: logging.DEBUG}
T = TypeVar("T")
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
        found: all that was loaded; null where nothing could be.
        offer: what the session may ask for by its tools; null for nothing.
        own_listing: the agent may list skills by itself; not where every one of them is ours.
        once_told: gives the catalog for an agent that has said which files it lists; null where that changes
            nothing.
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
    offer: AvailableSkills | None = None
    own_listing: bool = True
    once_told: Callable[[Collection[Path]], "RunCatalog"] | None = field(default=None, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the listed skills."""
        return tuple(skill.name for skill in self.listed)

    @property
    def skills(self) -> Skills:
        """The same for people: names, places and digests, without the text."""
        return Skills(
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
    _tell_problems(catalog)
    if catalog.once_told is None:
        _tell_listing(catalog, options)
    return catalog


async def settled(catalog: RunCatalog, options: SkillOptions, ask: ListAgentSkills) -> RunCatalog:
    """A catalog of `load_catalog` for a session whose agent may be asked what it lists by itself.

    It is asked only where it finds a file of ours. One that cannot say leaves the catalog as it is.
    """
    if catalog.once_told is None:
        return catalog
    listed = await ask()
    if listed is not None:
        told = await to_thread.run_sync(catalog.once_told, listed, limiter=skill_threads())
        catalog = replace(told, commit=catalog.commit, sha256=catalog.sha256)
    _tell_listing(catalog, options)
    return catalog


def _tell_problems(catalog: RunCatalog) -> None:
    for problem in catalog.problems:
        where = f"{problem.path}:{problem.line}" if problem.line else problem.path
        level = _LEVELS[problem.severity]
        _log.log(level, "skill_problem", path=where, code=problem.code.value, hint=problem.hint)
    for hidden in catalog.found.shadowed if catalog.found else ():
        _log.debug("skill_shadowed", name=hidden.name, path=hidden.path, by=hidden.by)


def _tell_listing(catalog: RunCatalog, options: SkillOptions) -> None:
    if catalog.shortened:
        _log.info("skills_shortened", names=catalog.shortened, limit=options.max_prompt_chars)
    if catalog.offer is not None and catalog.offer.uses_search:
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
    """The catalog alone; a slow disk gives what could be read, a bug in the loader nothing, both a warning.

    Args:
        workspace: where the agent will find the skills.
        options: what the operator chose.
        tree: where to read them instead, for a place that is not made yet.
        scanned: what the agent lists by itself; null where that is nobody's concern.
        deadline_s: seconds after which no further skill is read; null for `DEADLINE_S`.
        head: tells the commit that the skills are of, in the thread that reads them.
    """
    if not options.enabled:
        return RunCatalog()
    catalog: RunCatalog | None = None
    deadline_s = LOAD_DEADLINE_S if deadline_s is None else deadline_s
    until = time.monotonic() + deadline_s
    with anyio.move_on_after(deadline_s + GRACE_S):
        try:
            load = partial(_load, workspace, options, tree, scanned, head, until)
            one_at_a_time = partial(alone, load, deadline_s)
            catalog = await to_thread.run_sync(one_at_a_time, abandon_on_cancel=True, limiter=skill_threads())
        except TimeoutError:
            pass  # said below
        except Exception as error:  # noqa: BLE001 - the loader must never cost a dispatch, whatever its bug
            _log.warning("skills_failed", reason=type(error).__name__)
            return RunCatalog()
    if catalog is None or not catalog.complete:
        _log.warning("skills_timed_out", deadline_s=deadline_s)
    if catalog is None:
        return RunCatalog()
    digests = await _digests(tree or workspace, options, catalog)
    return replace(catalog, sha256=digests) if digests else catalog


async def _digests(tree: Path, options: SkillOptions, catalog: RunCatalog) -> dict[str, str]:
    """The digests, under a deadline of their own: without them a run goes on as well, and nobody is told."""
    listed = catalog.listed if catalog.once_told is None or catalog.found is None else catalog.found.skills
    files: tuple[Skill | Problem, ...] = (*listed, *catalog.problems)
    if not files:
        return {}
    with anyio.move_on_after(DIGEST_DEADLINE_S):
        try:
            digests = partial(skills.skill_digests, tree, files, options)
            one_at_a_time = partial(alone, digests, DIGEST_DEADLINE_S)
            return await to_thread.run_sync(one_at_a_time, abandon_on_cancel=True, limiter=skill_threads())
        except TimeoutError:
            return {}
        except Exception as error:  # noqa: BLE001 - as above
            _log.warning("skills_failed", reason=type(error).__name__)
    return {}


def alone(work: Callable[[], T], wait_s: float) -> T:
    """Do what may hang on a dead disk, one at a time, so that no more than one thread ever hangs.

    Raises:
        TimeoutError: another thread is still at it after `wait_s` seconds.
    """
    if not _turn.acquire(timeout=wait_s):
        raise TimeoutError
    try:
        return work()
    finally:
        _turn.release()


def skill_threads() -> CapacityLimiter:
    """Threads of its own: a loader that hangs for good on a dead disk must not use up everybody's."""
    try:
        return _limiters.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _limiters.set(limiter)
        return limiter


def _load(
    workspace: Path,
    options: SkillOptions,
    tree: Path | None,
    scanned: Scanned | None,
    head: Head | None,
    until: float,
) -> RunCatalog:
    commit = None if head is None else head()
    found = skills.load(tree or workspace, options, root=workspace, until=until)
    native = (
        NativeListing() if scanned is None else skills.dedupe_native(found, scanned.workspace, scanned.roots)
    )
    if scanned is not None and scanned.copies:
        native = NativeListing(listing=native.listing)
    catalog = _rendered(found, options, tree or workspace, native)
    return replace(catalog, commit=commit)


def _rendered(found: SkillSet, options: SkillOptions, tree: Path, native: NativeListing) -> RunCatalog:
    def once_told(listed: Collection[Path]) -> RunCatalog:
        return _rendered(found, options, tree, replace(native.confirmed(listed), shared={}))

    block = skills.render(found, options, native=native.duplicates)
    named = {skill.name: skill for skill in found.skills}
    return RunCatalog(
        block=block.text,
        listed=tuple(named[name] for name in block.listed),
        dropped=block.dropped,
        shortened=block.shortened,
        problems=found.problems,
        complete=found.incomplete is not Incomplete.TIME,
        found=found,
        offer=AvailableSkills.of(found, block, workspace=tree, options=options),
        own_listing=native.listing,
        once_told=once_told if native.shared else None,
    )


def session_options(context: RuntimeContext, agent: str) -> SkillOptions:
    """The choices about skills, as far as a session of an agent can keep them.

    A tool that is missing is not written of: the agent reads the file instead, and the skills are listed.
    """
    options, missing = skill_options(context.settings), missing_tools(context, agent)
    if ACTIVATE_TOOL in missing:
        options = replace(options, activation=ActivationMode.READ)
    return replace(options, search_above=None) if SEARCH_TOOL in missing else options


def missing_tools(context: RuntimeContext, agent: str) -> Mapping[str, str]:
    """The tools for skills that are chosen and cannot be offered, each with the reason, in words."""
    options = skill_options(context.settings)
    tools = [ACTIVATE_TOOL] if options.activation is ActivationMode.TOOL else []
    tools += [] if options.search_above is None else [SEARCH_TOOL]
    if tools and not context.agent(agent).capabilities.client_tools:
        return dict.fromkeys(tools, "the agent takes no tools")
    taken = {spec.name for spec in context.tracker.agent_tool_specs()} if tools else set()
    return {name: "the tracker has a tool of this name" for name in tools if name in taken}


# Whose skills a run is told of: those of the issue's own branch, or those of the base branch (`source`).
#
# One place for the run and for the preview, so that both name the same files.


async def skills_of_run(context: RuntimeContext, workspace: Workspace, agent: str) -> RunCatalog:
    """The catalog for a session of an agent in a workspace that is ready for it; what is wrong is logged.

    Where the base branch is to be the source and cannot be read, there is no catalog: the branch's own files
    are no replacement for it.
    """
    options = session_options(context, agent)
    if not options.enabled:
        return RunCatalog()
    for name, reason in missing_tools(context, agent).items():
        _log.warning("skill_tool_left_out", tool=name, reason=reason)
    scanned = _scanned(context, workspace.path, agent)
    if not _of_base(context):
        head = partial(context.workspaces.head_commit, workspace)
        return await load_catalog(workspace.path, options, scanned=scanned, head=head)
    try:
        pinned = await context.workspaces.pin(_paths(options))
    except Exception as error:  # noqa: BLE001 - skills are never worth a run
        _log.warning("skills_failed", reason=context.redaction.text(str(error)) or type(error).__name__)
        return RunCatalog()
    return replace(await load_catalog(pinned.root, options, scanned=scanned), commit=pinned.commit)


async def skills_foreseen(context: RuntimeContext, issue: Issue, agent: str) -> tuple[RunCatalog, str | None]:
    """The catalog that a session would get now, and why skills are missing that it might get.

    Raises:
        SymphonyError: what would fail the attempt as well.
    """
    options = session_options(context, agent)
    if not options.enabled:
        return RunCatalog(), None
    async with _foreseen(context, issue, options, agent) as (seen, workspace):
        if seen.tree is None:
            return RunCatalog(), seen.note
        tree = None if seen.exists else seen.tree
        scanned = None if workspace is None else _scanned(context, workspace, agent)
        catalog = await read_catalog(seen.path, options, tree=tree, scanned=scanned)
        return replace(catalog, commit=seen.commit), seen.note


@asynccontextmanager
async def _foreseen(
    context: RuntimeContext, issue: Issue, options: SkillOptions, agent: str
) -> AsyncIterator[tuple[WorkspacePreview, Path | None]]:
    """The skills that a run would load, and where what it would have in its workspace can be seen."""
    preview, paths = context.workspaces.preview, _paths(options)
    both = (*paths, *_own_roots(context, agent).workspace)
    if not _of_base(context):
        async with preview(issue.identifier, both) as seen:
            yield seen, seen.tree
        return
    async with (
        preview(issue.identifier, paths, base=True) as seen,
        preview(issue.identifier, both) as workspace,
    ):
        yield seen, workspace.tree


def _of_base(context: RuntimeContext) -> bool:
    return context.settings.agent.skills.source == "base_branch"


def _own_roots(context: RuntimeContext, agent: str) -> AgentSkillRoots:
    """Where the agent finds skills by itself, as far as `native` makes that our concern."""
    left_alone = context.settings.agent.skills.native == "always"
    return AgentSkillRoots() if left_alone else context.agent(agent).skill_roots


def _scanned(context: RuntimeContext, workspace: Path, agent: str) -> Scanned:
    roots = _own_roots(context, agent)
    below = tuple(workspace / one for one in roots.workspace)
    return Scanned(workspace=workspace, roots=(*below, *roots.host), copies=_of_base(context))


def _paths(options: SkillOptions) -> tuple[str, ...]:
    return options.path, *options.extra_paths

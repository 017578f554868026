"""The skills of a run: chosen, loaded within a deadline, and rendered for the system-level text.

`load_run_skills` serves a run, and `preview_run_skills` its preview. Both choose the same files. Broken or
slow skills cost a log line, never a run.
"""

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import structlog
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from msgspec import Struct

from symphony import skills, to_thread
from symphony.agents.base import AgentSkillRoots, ListAgentSkills
from symphony.api.models import DroppedSkill, ListedSkill, SkillProblem, Skills
from symphony.daemon.context import RuntimeContext, skill_options
from symphony.daemon.runs.library_skills import ChosenSkills, choose_skills, resolve_skills, written_files
from symphony.domain import Issue
from symphony.library.workspace import write_skills
from symphony.workspaces import Workspace, WorkspacePreview

LOAD_DEADLINE_S = 2.0
DIGEST_DEADLINE_S = 1.0
_GRACE_S = 0.5  # for a loader that keeps its deadline, but not to the millisecond
_THREADS = 2
_LEVELS = {
    skills.Severity.ERROR: logging.WARNING,
    skills.Severity.WARNING: logging.DEBUG,
    skills.Severity.INFO: logging.DEBUG,
}
_thread_limiter = RunVar[CapacityLimiter]("symphony_skill_threads")
_one_at_a_time = threading.Lock()
_log = structlog.get_logger(__name__)
T = TypeVar("T")


class AgentSkillScan(Struct, frozen=True, kw_only=True):
    """The directories in which the agent finds skills by itself.

    Attributes:
        workspace: the directory where the files of the session's workspace can be read now.
        roots: absolute paths; those of the workspace are below `workspace`.
        catalog_is_copy: whether the catalog is read from another place (`source: base_branch`). The agent may
            then show another version of a skill, so the catalog lists each skill in any case.
    """

    workspace: Path
    roots: tuple[Path, ...]
    catalog_is_copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCatalog:
    """The skills of one run.

    Attributes:
        block: the text for the envelope; `None` if there is nothing to list.
        listed: the skills of the block, in its order.
        dropped: skills that are left out of the block.
        shortened: names of listed skills whose text was cut to keep the block within its size.
        problems: what is wrong with skill files.
        sha256: digests by path of the listed and the malformed files, as far as they could be read.
        complete: whether all files were read in time. If not, the absence of a problem means nothing.
        commit: the commit of the repository's skills; `None` if unknown.
        found: everything that was loaded; `None` if nothing could be loaded.
        offer: the skills that the session may request through tools; `None` for none.
        agent_lists_skills: whether the agent may list skills by itself. False if all of them are in the
            catalog.
        library: the skills of the library that the run gets.
        in_phase: makes the catalog of another phase of the work; `None` if nothing was loaded.
        without_agent_listed: makes the catalog of an agent that lists these files by itself; `None` if the
            answer of the agent changes nothing.
    """

    block: str | None = None
    listed: tuple[skills.Skill, ...] = ()
    dropped: tuple[skills.Dropped, ...] = ()
    shortened: tuple[str, ...] = ()
    problems: tuple[skills.Problem, ...] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False
    commit: str | None = None
    found: skills.SkillSet | None = None
    offer: skills.AvailableSkills | None = None
    agent_lists_skills: bool = True
    library: ChosenSkills = field(default_factory=ChosenSkills)
    in_phase: Callable[[str | None], "RunCatalog"] | None = field(default=None, compare=False)
    without_agent_listed: Callable[[Collection[Path]], "RunCatalog"] | None = field(
        default=None, compare=False
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the listed skills."""
        return tuple(skill.name for skill in self.listed)

    @property
    def native(self) -> tuple[skills.Skill, ...]:
        """The skills that the agent lists by itself."""
        names = {one.name for one in self.dropped if one.reason is skills.DropReason.NATIVE}
        return tuple(one for one in self.found.skills if one.name in names) if self.found else ()

    @property
    def document(self) -> Skills:
        """The catalog as a document of the API: names, paths and digests, without texts."""
        return Skills(
            commit=self.commit,
            listed=self._documents(self.listed),
            native=self._documents(self.native),
            dropped=tuple(
                DroppedSkill(name=one.name, reason=one.reason.value)
                for one in (*self.dropped, *self._not_written)
            ),
            problems=tuple(
                SkillProblem(
                    path=one.path,
                    code=one.code,
                    severity=one.severity.value,
                    line=one.line,
                    column=one.column,
                    sha256=self.sha256.get(one.path),
                )
                for one in self.problems
            ),
        )

    def _documents(self, chosen: tuple[skills.Skill, ...]) -> tuple[ListedSkill, ...]:
        return tuple(
            ListedSkill(
                name=one.name,
                path=one.path,
                sha256=self.sha256.get(one.path),
                library_version=self.library.versions.get(one.name),
            )
            for one in chosen
        )

    @property
    def _not_written(self) -> tuple[skills.Dropped, ...]:
        """The skills of the library that are not in the workspace."""
        return (
            *(skills.Dropped(name=name, reason=skills.DropReason.SHADOWED) for name in self.library.shadowed),
            *(
                skills.Dropped(name=name, reason=skills.DropReason.FOR_PEOPLE)
                for name in self.library.for_people
            ),
        )

    def rendered_as(self, other: "RunCatalog") -> "RunCatalog":
        """This catalog in another rendering of the same files."""
        return replace(other, commit=self.commit, sha256=self.sha256, library=self.library)


# --- the skills of a run ---------------------------------------------------------------------------------


async def repository_skills(
    context: RuntimeContext, workspace: Workspace, agent: str, library: skills.LibraryFiles
) -> frozenset[str]:
    """The names of the usable skills from outside the library.

    Raises:
        SymphonyError: the base branch cannot be read.
    """
    options, root = replace(session_options(context, agent), library=library), workspace.path
    if _from_base_branch(context):
        root = (await context.workspaces.pin(_repository_paths(options))).root
    return await _names(root, options)


async def _names(root: Path, options: skills.SkillOptions) -> frozenset[str]:
    """The names of the usable skills from outside the library."""
    found = await in_skill_thread(lambda: skills.load(root, options), LOAD_DEADLINE_S)
    loaded = () if found is None else found.skills
    return frozenset(one.name for one in loaded if one.scope is not skills.Scope.LIBRARY)


async def load_run_skills(
    context: RuntimeContext,
    workspace: Workspace,
    agent: str,
    phase: str | None = None,
    library: skills.LibraryFiles | None = None,
    called: Collection[str] = (),
) -> RunCatalog:
    """The catalog for a session of an agent in a prepared workspace; logs problems.

    `library` are the skills of the library in the workspace, `called` the names that people called for.

    With `source: base_branch` and an unreadable base branch the catalog is empty: the issue's own branch is
    not trusted instead.
    """
    options = replace(session_options(context, agent, phase), library=library, labelled=frozenset(called))
    if not options.enabled:
        return RunCatalog()
    for name, reason in missing_tools(context, agent).items():
        _log.warning("skill_tool_left_out", tool=name, reason=reason)
    scan = _agent_scan(context, workspace.path, agent)
    if not _from_base_branch(context):
        read_commit = partial(context.workspaces.head_commit, workspace)
        return await load_catalog(workspace.path, options, scan=scan, read_commit=read_commit)
    try:
        pinned = await context.workspaces.pin(_repository_paths(options))
    except Exception as error:  # noqa: BLE001 - a run does not fail because of skills
        _log.warning("skills_failed", reason=context.redaction.text(str(error)) or type(error).__name__)
        return RunCatalog()
    return replace(await load_catalog(pinned.root, options, scan=scan), commit=pinned.commit)


async def preview_run_skills(
    context: RuntimeContext, issue: Issue, agent: str, phase: str | None = None
) -> tuple[RunCatalog, str | None]:
    """The catalog that a session would get now, and a note if a run might find more skills.

    Raises:
        SymphonyError: the run would fail with the same error.
    """
    options = replace(session_options(context, agent, phase), labelled=frozenset(issue.called_skills))
    if not options.enabled:
        return RunCatalog(), None
    async with _previews(context, issue, options, agent) as (seen, workspace):
        if seen.tree is None:
            return RunCatalog(), seen.note
        tree = seen.path if seen.exists else seen.tree
        async with _library_preview(context, issue, agent, tree, seen.path, options) as (chosen, library):
            catalog = await read_catalog(
                seen.path,
                replace(options, library=library),
                tree=tree,
                scan=None if workspace is None else _agent_scan(context, workspace, agent),
            )
        return replace(catalog, commit=seen.commit, library=chosen), seen.note


@asynccontextmanager
async def _library_preview(
    context: RuntimeContext,
    issue: Issue,
    agent: str,
    tree: Path,
    workspace: Path,
    options: skills.SkillOptions,
) -> AsyncIterator[tuple[ChosenSkills, skills.LibraryFiles | None]]:
    """The library skills of a run, in a directory in place of the workspace."""
    directory = context.settings.agent.library.directory
    found = await resolve_skills(context, issue, agent)
    if found is None or not found.skills:
        yield ChosenSkills(), None
        return
    before = await to_thread.run_sync(written_files, workspace, directory)
    repository = await _names(tree, replace(options, library=before))
    chosen = await choose_skills(context, issue, found, repository)
    if chosen is None:
        yield ChosenSkills(), None
        return
    async with anyio.TemporaryDirectory() as made:
        base = Path(made, "workspace")
        await to_thread.run_sync(base.mkdir)
        await to_thread.run_sync(write_skills, base, Path(made, "record"), directory, chosen.data)
        yield (
            chosen,
            skills.LibraryFiles(
                base=base,
                path=directory,
                names=frozenset(chosen.data),
                learned=chosen.learned,
                named=workspace,
            ),
        )


@asynccontextmanager
async def _previews(
    context: RuntimeContext, issue: Issue, options: skills.SkillOptions, agent: str
) -> AsyncIterator[tuple[WorkspacePreview, Path | None]]:
    """The skills that a run would load, and where the files of its workspace can be read."""
    preview, paths = context.workspaces.preview, _repository_paths(options)
    with_agent_roots = (*paths, *_agent_roots(context, agent).workspace)
    if not _from_base_branch(context):
        async with preview(issue.identifier, with_agent_roots) as seen:
            yield seen, seen.tree
        return
    async with (
        preview(issue.identifier, paths, base=True) as seen,
        preview(issue.identifier, with_agent_roots) as workspace,
    ):
        yield seen, workspace.tree


def session_options(context: RuntimeContext, agent: str, phase: str | None = None) -> skills.SkillOptions:
    """The skill options, reduced to what a session of the agent supports.

    Without the activation tool the agent reads the files; without the search tool all skills are listed.
    """
    options, missing = skill_options(context.settings.agent.skills, phase), missing_tools(context, agent)
    if skills.ACTIVATE_TOOL in missing:
        options = replace(options, activation=skills.ActivationMode.READ)
    return replace(options, search_above=None) if skills.SEARCH_TOOL in missing else options


def missing_tools(context: RuntimeContext, agent: str) -> Mapping[str, str]:
    """The configured skill tools that cannot be offered, each with the reason."""
    options = skill_options(context.settings.agent.skills)
    tools = [skills.ACTIVATE_TOOL] if options.activation is skills.ActivationMode.TOOL else []
    tools += [] if options.search_above is None else [skills.SEARCH_TOOL]
    if tools and not context.agent(agent).capabilities.client_tools:
        return dict.fromkeys(tools, "the agent takes no tools")
    taken = {spec.name for spec in context.tools.agent_tool_specs()} if tools else set()
    return {name: "the tracker has a tool of this name" for name in tools if name in taken}


def _from_base_branch(context: RuntimeContext) -> bool:
    return context.settings.agent.skills.source == "base_branch"


def _repository_paths(options: skills.SkillOptions) -> tuple[str, ...]:
    return options.path, *options.extra_paths


def _agent_roots(context: RuntimeContext, agent: str) -> AgentSkillRoots:
    """Where the agent finds skills by itself; empty if `native: always` makes that irrelevant."""
    if context.settings.agent.skills.native == "always":
        return AgentSkillRoots()
    return context.agent(agent).skill_roots


def _agent_scan(context: RuntimeContext, workspace: Path, agent: str) -> AgentSkillScan:
    roots = _agent_roots(context, agent)
    return AgentSkillScan(
        workspace=workspace,
        roots=(*(workspace / one for one in roots.workspace), *roots.host),
        catalog_is_copy=_from_base_branch(context),
    )


# --- loading ---------------------------------------------------------------------------------------------


async def load_catalog(
    workspace: Path,
    options: skills.SkillOptions,
    *,
    scan: AgentSkillScan | None = None,
    deadline_s: float | None = None,
    read_commit: Callable[[], str | None] | None = None,
) -> RunCatalog:
    """As `read_catalog`; also logs problems of skills and left-out skills."""
    catalog = await read_catalog(
        workspace, options, scan=scan, deadline_s=deadline_s, read_commit=read_commit
    )
    for problem in catalog.problems:
        where = f"{problem.path}:{problem.line}" if problem.line else problem.path
        level = _LEVELS[problem.severity]
        _log.log(level, "skill_problem", path=where, code=problem.code, hint=problem.hint)
    for hidden in catalog.found.shadowed if catalog.found else ():
        _log.debug("skill_shadowed", name=hidden.name, path=hidden.path, by=hidden.by)
    if catalog.without_agent_listed is None:
        _log_listing(catalog, options)
    return catalog


async def exclude_agent_listed(
    catalog: RunCatalog, options: skills.SkillOptions, list_agent_skills: ListAgentSkills
) -> RunCatalog:
    """Leave out the skills that the agent lists by itself, so that each skill is listed once.

    Asks the agent only if it could find a file of the catalog. If it cannot answer, the catalog stays as it
    is.
    """
    if catalog.without_agent_listed is None:
        return catalog
    listed = await list_agent_skills()
    if listed is not None:
        rest = await to_thread.run_sync(catalog.without_agent_listed, listed, limiter=_skill_threads())
        catalog = catalog.rendered_as(rest)
    _log_listing(catalog, options)
    return catalog


async def enter_phase(catalog: RunCatalog, phase: str | None) -> RunCatalog:
    """The catalog of a session whose work is in another phase now."""
    if catalog.in_phase is None:
        return catalog
    other = await to_thread.run_sync(catalog.in_phase, phase, limiter=_skill_threads())
    return catalog.rendered_as(other)


async def read_catalog(
    workspace: Path,
    options: skills.SkillOptions,
    *,
    tree: Path | None = None,
    scan: AgentSkillScan | None = None,
    deadline_s: float | None = None,
    read_commit: Callable[[], str | None] | None = None,
) -> RunCatalog:
    """Load and render the skills of a workspace.

    A slow disk gives the skills that could be read in time, a bug in the loader gives none; both are logged.

    Args:
        workspace: where the agent will find the skills.
        options: the operator's choices.
        tree: where to read the skills instead, if the workspace does not exist yet.
        scan: where the agent finds skills by itself; `None` if that is irrelevant.
        deadline_s: seconds after which no further skill is read; `LOAD_DEADLINE_S` by default.
        read_commit: returns the commit of the skills; blocking, called in the thread that reads them.
    """
    if not options.enabled:
        return RunCatalog()
    deadline_s = LOAD_DEADLINE_S if deadline_s is None else deadline_s
    until = time.monotonic() + deadline_s
    tree = tree or workspace

    def load() -> RunCatalog:
        commit = None if read_commit is None else read_commit()
        found = skills.load(tree, options, root=workspace, until=until)
        native = (
            skills.NativeListing()
            if scan is None
            else skills.dedupe_native(found, scan.workspace, scan.roots)
        )
        if scan is not None and scan.catalog_is_copy:
            native = skills.NativeListing(listing=native.listing)
        return replace(_render(found, options, tree, native), commit=commit)

    try:
        catalog = await in_skill_thread(load, deadline_s, grace_s=_GRACE_S)
    except Exception as error:  # noqa: BLE001 - a bug in the loader must not cost a run
        _log.warning("skills_failed", reason=type(error).__name__)
        return RunCatalog()
    if catalog is None or not catalog.complete:
        _log.warning("skills_timed_out", deadline_s=deadline_s)
    if catalog is None:
        return RunCatalog()
    return replace(catalog, sha256=await _digests(tree, options, catalog))


async def _digests(tree: Path, options: skills.SkillOptions, catalog: RunCatalog) -> Mapping[str, str]:
    """The digests of the files that the catalog names; empty if they cannot be read in time."""
    listed = catalog.listed + catalog.native
    may_change = catalog.without_agent_listed is not None or options.phase is not None
    if may_change and catalog.found is not None:
        listed = catalog.found.skills
    files: tuple[skills.Skill | skills.Problem, ...] = (*listed, *catalog.problems)
    if not files:
        return {}
    try:
        return (
            await in_skill_thread(partial(skills.skill_digests, tree, files, options), DIGEST_DEADLINE_S)
            or {}
        )
    except Exception as error:  # noqa: BLE001 - as above
        _log.warning("skills_failed", reason=type(error).__name__)
        return {}


def _render(
    found: skills.SkillSet, options: skills.SkillOptions, tree: Path, native: skills.NativeListing
) -> RunCatalog:
    def without_agent_listed(listed: Collection[Path]) -> RunCatalog:
        return _render(found, options, tree, replace(native.confirmed(listed), shared={}))

    def in_phase(phase: str | None) -> RunCatalog:
        return _render(found, replace(options, phase=phase), tree, native)

    block = skills.render(found, options, native=native.duplicates)
    by_name = {skill.name: skill for skill in found.skills}
    return RunCatalog(
        block=block.text,
        listed=tuple(by_name[name] for name in block.listed),
        dropped=block.dropped,
        shortened=block.shortened,
        problems=found.problems,
        complete=found.incomplete is not skills.Incomplete.TIME,
        found=found,
        offer=skills.AvailableSkills.of(found, block, workspace=tree, options=options),
        agent_lists_skills=native.listing,
        in_phase=in_phase,
        without_agent_listed=without_agent_listed if native.shared else None,
    )


def _log_listing(catalog: RunCatalog, options: skills.SkillOptions) -> None:
    """Log what the block leaves out or shortens."""
    if catalog.shortened:
        _log.info("skills_shortened", names=catalog.shortened, limit=options.max_prompt_chars)
    if catalog.offer is not None and catalog.offer.uses_search:
        count = len(catalog.offer.skill_set.skills)
        _log.info("skills_searchable", count=count, limit=options.search_above)
    if not catalog.agent_lists_skills:
        _log.info("agent_skills_silenced")
    if catalog.dropped:
        reasons: dict[str, list[str]] = {}
        for one in catalog.dropped:
            reasons.setdefault(one.reason.value, []).append(one.name)
        # The operator knows what the settings leave out, but skills that do not fit may be news.
        no_room = not reasons.keys().isdisjoint({skills.DropReason.COUNT, skills.DropReason.BUDGET})
        _log.log(
            logging.INFO if no_room else logging.DEBUG,
            "skills_dropped",
            names=tuple(one.name for one in catalog.dropped),
            reasons=reasons,
            limit=options.max_skills_in_prompt,
        )


# --- threads ---------------------------------------------------------------------------------------------


async def in_skill_thread(work: Callable[[], T], deadline_s: float, *, grace_s: float = 0.0) -> T | None:
    """The result of blocking work that reads skill files; `None` if it takes longer than the deadline.

    Work that hangs on a dead disk keeps its thread and the lock, so at most one thread hangs for good.
    """

    def one_at_a_time() -> T | None:
        if not _one_at_a_time.acquire(timeout=deadline_s):
            return None
        try:
            return work()
        finally:
            _one_at_a_time.release()

    with anyio.move_on_after(deadline_s + grace_s), suppress(TimeoutError):
        return await to_thread.run_sync(one_at_a_time, abandon_on_cancel=True, limiter=_skill_threads())
    return None


def _skill_threads() -> CapacityLimiter:
    """A separate limiter, because threads that hang on a dead disk must not use up the default one."""
    try:
        return _thread_limiter.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _thread_limiter.set(limiter)
        return limiter

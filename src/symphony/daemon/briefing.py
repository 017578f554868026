"""What a session is told at its start: one making of both texts, for the worker and for the preview."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import structlog
from anyio import to_thread

from symphony.agents.base import Briefing, ListAgentSkills, assemble
from symphony.api.models import Skills
from symphony.config import answer_section, answered_prompt, begun_anew_prompt, interrupted_prompt
from symphony.daemon.context import RuntimeContext
from symphony.daemon.skills import (
    RunCatalog,
    SessionTools,
    SkillUsageTracker,
    read_catalog,
    session_options,
    settled,
    skill_threads,
    skills_of_run,
)
from symphony.domain import Issue, ToolResult
from symphony.scheduler import Resume
from symphony.skills import Skill, SkillSet
from symphony.workspaces import Workspace


def envelope(catalog: RunCatalog) -> str | None:
    """The system-level text (DESIGN 9); null where there is nothing to say."""
    return assemble(skills_block=catalog.block)


async def prompt(
    bound: RuntimeContext, issue: Issue, attempt: int | None, resume: Resume | None = None
) -> str:
    """The prompt of the first turn of a session that starts cold; an answer of a person stands at its end.

    Raises:
        WorkflowError: `template_render_error` (PR7).
    """
    rendered = await to_thread.run_sync(bound.workflow.template.render, issue, attempt)
    if resume is None or resume.answer is None:
        return rendered
    return f"{rendered.rstrip()}\n\n{answer_section(resume.question, resume.answer)}\n"


def resumed_prompt(resume: Resume, prompt: str) -> str:
    """The prompt of the first turn of a session that goes on with its thread.

    The task is already in the thread, unless the session was cut off before that was known: then `prompt`,
    which a cold start would be told, is told again.
    """
    if resume.thread is not None and not resume.thread.begun:
        return f"{begun_anew_prompt()}\n\n{prompt}"
    if resume.answer is not None:
        return answered_prompt(resume.question, resume.answer)
    return interrupted_prompt()


# The skills of one session: loaded, told of and offered as tools, and seen when they are read.


_NOT_YET = ToolResult.error("this session has been offered no tool yet")
_log = structlog.get_logger(__name__)


class SessionSkills:
    """One for each session: `load` once, and `brief`, before which there is nothing to be seen or run.

    `load` may run beside the start of the agent: `loaded` and `brief` wait for it.
    `on_skills` is told what the session is told of, and again when it was seen to read one.
    """

    def __init__(self, bound: RuntimeContext, agent: str, on_skills: Callable[[Skills], None]) -> None:
        self._bound = bound
        self._agent = agent
        self._on_skills = on_skills
        self._tools: SessionTools | None = None
        self._sightings: SkillUsageTracker | None = None
        self._catalog = RunCatalog()
        self._loaded = anyio.Event()
        self._found: SkillSet | None = None
        self._first: SkillSet | None = None

    async def load(self, workspace: Workspace) -> None:
        """Load the skills of the run, and look at what is wrong with them."""
        self._catalog = await skills_of_run(self._bound, workspace, self._agent)
        self._found = self._first = _looked_at(self._bound, self._catalog, workspace)
        self._loaded.set()

    async def loaded(self) -> None:
        """Return when `load` has come to its end."""
        await self._loaded.wait()

    async def look_again(self, workspace: Workspace) -> None:
        """Look at what the run has left, for `take_found`; raises nothing.

        Those of the base branch are what they were at the start.
        """
        settings = self._bound.settings.agent.skills
        if self._first is None or not settings.enabled or settings.source == "base_branch":
            return
        catalog = await read_catalog(workspace.path, session_options(self._bound, self._agent))
        if catalog.found is not None and catalog.found != self._first:
            self._found = catalog.found

    async def brief(self, workspace: Workspace, ask: ListAgentSkills) -> Briefing:
        """What the session is told of the skills, and the tools that it is given."""
        await self.loaded()
        catalog = await settled(self._catalog, session_options(self._bound, self._agent), ask)
        self._learn(catalog, workspace)
        self._tools = SessionTools(
            self._bound.tracker, catalog.offer, limiter=skill_threads(), on_activated=self._activated
        )
        return Briefing(
            envelope=envelope(catalog),
            tools=self._tools.specs,
            agent_lists_skills=catalog.own_listing,
        )

    def take_found(self) -> SkillSet | None:
        """The skills as they were last looked at, once; null where not all were looked at."""
        found, self._found = self._found, None
        return found

    async def run_tool(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> ToolResult:
        """Run a tool of the session; raises no more than the tracker does."""
        return _NOT_YET if self._tools is None else await self._tools.run(name, arguments, issue=issue)

    def forget(self) -> None:
        """The conversation was compacted: every skill may be asked for again."""
        if self._tools is not None:
            self._tools.forget()

    def sight(self, arguments: str) -> None:
        """Note the skills whose files a tool call names."""
        if self._sightings is not None:
            self._saw(self._sightings, self._sightings.named_in(arguments))

    def _learn(self, catalog: RunCatalog, workspace: Workspace) -> None:
        self._on_skills(catalog.skills)
        self._sightings = SkillUsageTracker(catalog, workspace.path)
        if catalog.listed:
            digests = {skill.name: catalog.sha256.get(skill.path) for skill in catalog.listed}
            _log.info("skills_listed", names=catalog.names, sha256=digests, commit=catalog.commit)

    def _activated(self, name: str) -> None:
        """Note a skill whose body the session was given."""
        if self._sightings is not None:
            self._saw(self._sightings, self._sightings.activated(name))

    def _saw(self, sightings: SkillUsageTracker, seen: Sequence[Skill]) -> None:
        for skill in seen:
            _log.info("skill_seen", name=skill.name, path=skill.path)
        if seen:
            self._on_skills(sightings.skills)


def _looked_at(bound: RuntimeContext, catalog: RunCatalog, workspace: Workspace) -> SkillSet | None:
    """What is known of the skills: nothing to complain of where they are switched off."""
    if not bound.settings.agent.skills.enabled:
        return SkillSet(root=workspace.path)
    return catalog.found

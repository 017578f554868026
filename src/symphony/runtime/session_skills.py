"""The skills of one session: loaded, told of and offered as tools, and seen when they are read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from symphony.agents.base import Briefing
from symphony.domain.issue import Issue
from symphony.domain.tools import ToolResult
from symphony.observability.history import RunSkills
from symphony.runtime import briefing
from symphony.runtime.bound import Bound
from symphony.runtime.catalog import RunCatalog, skill_threads
from symphony.runtime.session_tools import SessionTools
from symphony.runtime.sightings import Sightings
from symphony.runtime.skill_source import skills_of_run
from symphony.skills import Problem, Skill
from symphony.workspace.model import Workspace

__all__ = ["SessionSkills"]

_NOT_YET = ToolResult.error("this session has been offered no tool yet")
_log = structlog.get_logger(__name__)


class SessionSkills:
    """One for each session; `brief` comes first, and before it there is nothing to be seen or run.

    `on_skills` is told what the session is told of, and again when it was seen to read one.
    """

    def __init__(self, bound: Bound, agent: str, on_skills: Callable[[RunSkills], None]) -> None:
        self._bound = bound
        self._agent = agent
        self._on_skills = on_skills
        self._tools: SessionTools | None = None
        self._sightings: Sightings | None = None
        self._problems: tuple[Problem, ...] | None = None

    async def brief(self, workspace: Workspace) -> Briefing:
        """Load the skills: what the session is told of them, and the tools that it is given."""
        catalog = await skills_of_run(self._bound, workspace, self._agent)
        self._learn(catalog, workspace)
        self._tools = SessionTools(
            self._bound.tracker, catalog.offer, limiter=skill_threads(), on_activated=self._activated
        )
        return Briefing(
            envelope=briefing.envelope(catalog),
            tools=self._tools.specs,
            own_skill_listing=catalog.own_listing,
        )

    def take_problems(self) -> tuple[Problem, ...] | None:
        """What is wrong with files of skills, once; null where not all were looked at."""
        problems, self._problems = self._problems, None
        return problems

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
        self._problems = catalog.problems if catalog.complete else None
        self._sightings = Sightings(catalog, workspace.path)
        if catalog.listed:
            digests = {skill.name: catalog.sha256.get(skill.path) for skill in catalog.listed}
            _log.info("skills_listed", names=catalog.names, sha256=digests, commit=catalog.commit)

    def _activated(self, name: str) -> None:
        """Note a skill whose body the session was given."""
        if self._sightings is not None:
            self._saw(self._sightings, self._sightings.activated(name))

    def _saw(self, sightings: Sightings, seen: Sequence[Skill]) -> None:
        for skill in seen:
            _log.info("skill_seen", name=skill.name, path=skill.path)
        if seen:
            self._on_skills(sightings.skills)

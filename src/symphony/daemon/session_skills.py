"""The skills of one session: loaded, listed, offered as tools, and recognised when they are used."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import structlog
from anyio import CapacityLimiter, to_thread
from msgspec import structs

from symphony.agents.base import Briefing, ListAgentSkills
from symphony.api.models import Skills
from symphony.daemon.context import RuntimeContext
from symphony.daemon.skills import (
    RunCatalog,
    alone,
    read_catalog,
    session_options,
    settled,
    skill_threads,
    skills_of_run,
)
from symphony.domain import Issue, ToolResult, ToolSpec
from symphony.skills import (
    ACTIVATE_TOOL,
    MAX_FOUND,
    SEARCH_TOOL,
    ActivationMode,
    Activations,
    ActivationStatus,
    AvailableSkills,
    Skill,
    SkillSet,
)
from symphony.trackers.base import Tracker
from symphony.workspaces import Workspace

_OCCURRENCE: Final = re.compile(r"([^/\n]+)/SKILL\.md(?![\w-])")
_BETWEEN_WORDS: Final = re.compile(r"""[\s"'`=(]""")
_PART_OF_A_PATH: Final = re.compile(r"[\w./~-]")


class SkillUsageTracker:
    """The skills that one run has loaded, and which of them were seen; each is told once."""

    def __init__(self, catalog: RunCatalog, workspace: Path) -> None:
        self._told = catalog.skills
        self._unseen: dict[str, Skill] = {}
        self._ways: dict[str, list[tuple[str, Skill]]] = {}
        if catalog.found is not None:
            self._learn(catalog.found, workspace)

    def _learn(self, found: SkillSet, workspace: Path) -> None:
        for skill in found.skills:
            self._unseen[skill.name] = skill
            for way in _ways(skill, found.file(skill), workspace):
                self._ways.setdefault(skill.directory, []).append((way, skill))

    @property
    def skills(self) -> Skills:
        """What people are told, with what was seen so far."""
        listed = tuple(structs.replace(one, seen=one.name not in self._unseen) for one in self._told.listed)
        return structs.replace(self._told, listed=listed)

    def named_in(self, arguments: str) -> tuple[Skill, ...]:
        """The skills that are seen for the first time in the arguments of a tool call."""
        seen = {}
        for occurrence in _OCCURRENCE.finditer(arguments):
            directory = occurrence[1]
            for name in {directory, _BETWEEN_WORDS.split(directory)[-1]}:
                for way, skill in self._ways.get(name, ()):
                    if _ends_with(arguments, way, occurrence.end()):
                        seen[skill.name] = skill
        return tuple(skill for name, skill in seen.items() if self._unseen.pop(name, None))

    def activated(self, name: str) -> tuple[Skill, ...]:
        """The skill of that name, unless it was seen before: the session has asked for it."""
        skill = self._unseen.pop(name, None)
        return () if skill is None else (skill,)


def _ways(skill: Skill, file: Path, workspace: Path) -> Iterator[str]:
    """How the path of a skill's file is written."""
    yield str(file)
    if file.is_relative_to(workspace):
        below = file.relative_to(workspace).as_posix()
        yield from (below, f"./{below}")
    elif skill.path.startswith("~"):
        yield skill.path


def _ends_with(text: str, path: str, end: int) -> bool:
    """Whether the path stands before `end` and is not the tail of a longer one."""
    begin = end - len(path)
    return text.endswith(path, 0, end) and (begin == 0 or not _PART_OF_A_PATH.match(text, begin - 1))


TOOL_DEADLINE_S = 5.0
_MAX_QUERY_CHARS: Final = 1_000
_DEFAULT_FOUND: Final = 10
_TOO_SLOW: Final = ToolResult.error(
    "the skills could not be read in time", hint="try again, or go on without"
)
_T = TypeVar("_T")


class SessionTools:
    """Advertises and runs the tools of one session; one for each, because it remembers.

    Args:
        tracker: whose tools come first.
        offer: the skills of the session; null for none.
        limiter: threads for what may hang on a dead disk.
        on_activated: called with the name of each skill whose body the session was given.
    """

    def __init__(
        self,
        tracker: Tracker,
        offer: AvailableSkills | None,
        *,
        limiter: CapacityLimiter,
        on_activated: Callable[[str], None],
    ) -> None:
        self._tracker = tracker
        self._activation = self._search = None
        if offer is not None and offer.options.activation is ActivationMode.TOOL:
            self._activation = _ActivateSkill(offer.activations(), limiter, on_activated)
        if offer is not None and offer.uses_search:
            self._search = _SkillSearch(offer, limiter)
        own = (self._activation, self._search)
        self._own = {tool.spec.name: tool for tool in own if tool is not None}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the agent is told that it may call."""
        return (*self._tracker.agent_tool_specs(), *(tool.spec for tool in self._own.values()))

    async def run(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> ToolResult:
        """Run one of the tools; raises no more than the tracker does."""
        tool = self._own.get(name)
        if tool is None:
            return await self._tracker.execute_agent_tool(name, arguments, issue=issue)
        return await tool.run(arguments)

    def forget(self) -> None:
        """The conversation was compacted: every skill may be asked for again."""
        if self._activation is not None:
            self._activation.forget()


class _ActivateSkill:
    """Gives the body of a skill, once."""

    def __init__(
        self, activations: Activations, limiter: CapacityLimiter, on_activated: Callable[[str], None]
    ) -> None:
        self._activations = activations
        self._limiter = limiter
        self._on_activated = on_activated
        self.spec = ToolSpec(
            name=ACTIVATE_TOOL,
            description="Read a skill before following it: its instructions, and which files come with it.",
            input_schema=activations.input_schema(),
        )

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        name = arguments.get("name")
        if arguments.keys() != {"name"} or not isinstance(name, str):
            return ToolResult.error("the arguments are one text, `name`")
        answer = self._activations.immediate_answer(name)
        if answer is None:
            answer = await _in_thread(lambda: self._activations.read(name), self._limiter)
        if answer is None:
            return _TOO_SLOW
        self._activations.record(answer)
        if answer.status is ActivationStatus.ACTIVATED:
            _log.info("skill_activated", name=answer.name)
            self._on_activated(answer.name)
        if not answer.success:
            return ToolResult.error(answer.text)
        return ToolResult(success=True, text=answer.text, read_only=True)

    def forget(self) -> None:
        self._activations.forget()


class _SkillSearch:
    """Finds skills by words, where there are too many to list."""

    def __init__(self, offer: AvailableSkills, limiter: CapacityLimiter) -> None:
        self._offer = offer
        self._limiter = limiter
        query = {"type": "string", "minLength": 1, "maxLength": _MAX_QUERY_CHARS}
        limit = {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": _DEFAULT_FOUND}
        self.spec = ToolSpec(
            name=SEARCH_TOOL,
            description="Find skills for a task by a few words, the best first.",
            input_schema={
                "type": "object",
                "properties": {"query": query, "limit": limit},
                "required": ["query"],
                "additionalProperties": False,
            },
        )

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        query, limit = arguments.get("query"), arguments.get("limit", _DEFAULT_FOUND)
        if unknown := sorted(arguments.keys() - {"query", "limit"}):
            return ToolResult.error(f"unknown argument {unknown[0][:80]!r}")
        if not isinstance(query, str) or not query.strip() or len(query) > _MAX_QUERY_CHARS:
            return ToolResult.error(f"`query` must be a text of 1 to {_MAX_QUERY_CHARS} characters")
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_FOUND:
            return ToolResult.error(f"`limit` must be a whole number from 1 to {MAX_FOUND}")
        found = await _in_thread(lambda: self._offer.find(query, limit=limit), self._limiter)
        return _TOO_SLOW if found is None else ToolResult(success=True, text=found, read_only=True)


async def _in_thread(step: Callable[[], _T], limiter: CapacityLimiter) -> _T | None:
    """The result of a step that reads the disk; `None` when it takes longer than `DEADLINE_S`.

    A step that hangs keeps its thread. `alone` holds the next ones back, so that one thread hangs at most.
    """
    with anyio.move_on_after(TOOL_DEADLINE_S), contextlib.suppress(TimeoutError):
        one_at_a_time = partial(alone, step, TOOL_DEADLINE_S)
        return await to_thread.run_sync(one_at_a_time, abandon_on_cancel=True, limiter=limiter)
    return None


_NOT_YET = ToolResult.error("this session has been offered no tool yet")
_log = structlog.get_logger(__name__)


class SessionSkills:
    """One for each session: `load` once, and `brief`, before which there is nothing to be seen or run.

    `load` may run beside the start of the agent: `loaded` and `brief` wait for it.
    `on_skills` is told what the session is told of, and again when it was seen to read one.
    """

    def __init__(self, context: RuntimeContext, agent: str, on_skills: Callable[[Skills], None]) -> None:
        self._context = context
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
        self._catalog = await skills_of_run(self._context, workspace, self._agent)
        self._found = self._first = _looked_at(self._context, self._catalog, workspace)
        self._loaded.set()

    async def loaded(self) -> None:
        """Return when `load` has come to its end."""
        await self._loaded.wait()

    async def look_again(self, workspace: Workspace) -> None:
        """Look at what the run has left, for `take_found`; raises nothing.

        Those of the base branch are what they were at the start.
        """
        settings = self._context.settings.agent.skills
        if self._first is None or not settings.enabled or settings.source == "base_branch":
            return
        catalog = await read_catalog(workspace.path, session_options(self._context, self._agent))
        if catalog.found is not None and catalog.found != self._first:
            self._found = catalog.found

    async def brief(self, workspace: Workspace, ask: ListAgentSkills) -> Briefing:
        """What the session is told of the skills, and the tools that it is given."""
        await self.loaded()
        catalog = await settled(self._catalog, session_options(self._context, self._agent), ask)
        self._learn(catalog, workspace)
        self._tools = SessionTools(
            self._context.tracker, catalog.offer, limiter=skill_threads(), on_activated=self._activated
        )
        return Briefing(
            envelope=catalog.block,
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


def _looked_at(context: RuntimeContext, catalog: RunCatalog, workspace: Workspace) -> SkillSet | None:
    """What is known of the skills: nothing to complain of where they are switched off."""
    if not context.settings.agent.skills.enabled:
        return SkillSet(root=workspace.path)
    return catalog.found

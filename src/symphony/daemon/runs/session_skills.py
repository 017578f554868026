"""The skills of one session: loading, briefing, tools, and noticing which ones the agent uses."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import structlog
from msgspec import structs

from symphony import to_thread
from symphony.agents.base import Briefing, ListAgentSkills
from symphony.api.models import ListedSkill, Skills
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs.session_library import SessionLibrary
from symphony.daemon.runs.skills import (
    RunCatalog,
    enter_phase,
    exclude_agent_listed,
    in_skill_thread,
    load_run_skills,
    read_catalog,
    session_options,
)
from symphony.domain import Issue, SkillChanges, ToolResult, ToolSpec
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
from symphony.trackers.base import ToolProvider
from symphony.workspaces import Layout, Workspace

TOOL_DEADLINE_S: Final = 5.0
_MAX_QUERY_CHARS: Final = 1_000
_DEFAULT_FOUND: Final = 10
_SKILL_FILE: Final = re.compile(r"([^/\n]+)/SKILL\.md(?![\w-])")
_WORD_START: Final = re.compile(r"""[\s"'`=(]""")
_QUOTES: Final = ("'\\''", """'"'"'""")  # how a shell command writes ' inside single quotes
_PATH_CHARACTER: Final = re.compile(r"[\w./~-]")
_log = structlog.get_logger(__name__)


class SessionSkills:
    """The skills of one session.

    `load` runs beside the start of the agent; `loaded` and `brief` wait for it. Tools and usage exist from
    `brief` on.

    Args:
        context: the context of the run.
        agent: the name of the agent.
        library: the library in the run.
        called: names of skills that people called for on the issue.
        phase: the phase of the work, or `None`.
        on_skills: called with the listed skills, and again each time the session uses one.
        report_problems: called with loaded skills whose problems may be worth a comment on the issue.
    """

    def __init__(
        self,
        context: RuntimeContext,
        agent: str,
        library: SessionLibrary,
        *,
        called: Collection[str] = (),
        phase: str | None = None,
        on_skills: Callable[[Skills], None],
        report_problems: Callable[[SkillSet], Awaitable[None]],
    ) -> None:
        self._context = context
        self._agent = agent
        self._library = library
        self._called = called
        self._phase = phase
        self._on_skills = on_skills
        self._report_problems = report_problems
        self._catalog = RunCatalog()
        self._loaded = anyio.Event()
        self._at_start: SkillSet | None = None
        self._unreported: SkillSet | None = None
        self._tools: SessionTools | None = None
        self._memory: ActivationMemory | None = None
        self._usage: SkillUsageTracker | None = None

    async def load(self, workspace: Workspace) -> None:
        """Load the skills of the run."""
        catalog = await load_run_skills(
            self._context, workspace, self._agent, self._phase, self._library.files, self._called
        )
        self._catalog = replace(catalog, library=self._library.chosen)
        enabled = self._context.settings.agent.skills.enabled
        self._at_start = self._catalog.found if enabled else SkillSet(root=workspace.path)
        self._unreported = self._at_start
        self._loaded.set()

    async def loaded(self) -> None:
        """Wait for the end of `load`."""
        await self._loaded.wait()

    async def reload(self, workspace: Workspace) -> None:
        """Load the skills at the end of the run, to report their problems; never raises.

        Skills of the base branch cannot change during a run.
        """
        settings = self._context.settings.agent.skills
        if self._at_start is None or not settings.enabled or settings.source == "base_branch":
            return
        options = replace(session_options(self._context, self._agent), library=self._library.files)
        catalog = await read_catalog(workspace.path, options)
        if catalog.found is not None and catalog.found != self._at_start:
            self._unreported = catalog.found

    async def sync(self, workspace: Workspace) -> None:
        """Turn the agent's changes of the library's skills into proposals, and report them; never raises."""
        synced = await self._library.sync(workspace)
        if synced is not None and self._usage is not None:
            self._usage.synced = synced.changes
            self._on_skills(self._usage.document)

    async def report_problems(self) -> None:
        """Report the last loaded skills, once."""
        found, self._unreported = self._unreported, None
        if found is not None:
            await self._report_problems(found)

    async def brief(self, workspace: Workspace, list_agent_skills: ListAgentSkills) -> Briefing:
        """The system-level text and the tools of the session."""
        await self.loaded()
        options = session_options(self._context, self._agent)
        catalog = self._catalog = await exclude_agent_listed(self._catalog, options, list_agent_skills)
        self._on_skills(catalog.document)
        self._usage = SkillUsageTracker(catalog, workspace.path)
        self._log_listed()
        self._tools = SessionTools(self._context.tools, catalog.offer, on_activated=self._on_activated)
        return Briefing(
            envelope=catalog.block,
            tools=self._tools.specs,
            agent_lists_skills=catalog.agent_lists_skills,
        )

    async def conversation_opened(self, workspace: Workspace, thread_id: str, *, resumed: bool) -> None:
        """The session has this conversation; if it is `resumed`, it remembers the skills that it got."""
        record = Layout(workspace.path.parent).activated_skills(workspace.key)
        self._memory = memory = ActivationMemory(record, thread_id)
        if self._tools is not None and resumed:
            self._tools.remember(await to_thread.run_sync(memory.read))

    async def turn_ended(self) -> None:
        """Store which skills the conversation got, for a session that continues it; never raises."""
        if self._memory is None or self._tools is None:
            return
        active = self._tools.active
        if active != self._memory.written:
            await to_thread.run_sync(self._memory.write, active)

    @property
    def block(self) -> str | None:
        """The list of skills for the present phase, or `None`."""
        return self._catalog.block

    async def enter_phase(self, phase: str | None) -> None:
        """List the skills of another phase from the next turn on."""
        self._phase = phase
        self._catalog = await enter_phase(self._catalog, phase)
        if self._usage is not None:
            self._usage.relist(self._catalog)
            self._on_skills(self._usage.document)
        self._log_listed()

    def _log_listed(self) -> None:
        catalog = self._catalog
        if catalog.listed:
            digests = {skill.name: catalog.sha256.get(skill.path) for skill in catalog.listed}
            _log.info("skills_listed", names=catalog.names, sha256=digests, commit=catalog.commit)

    async def run_tool(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> ToolResult:
        """Run a tool of the session; raises only what the tracker raises."""
        if self._tools is None:
            return ToolResult.error("this session has been offered no tool yet")
        return await self._tools.run(name, arguments, issue=issue)

    def on_compacted(self) -> None:
        """The agent compacted its conversation: every skill may be activated again."""
        if self._tools is not None:
            self._tools.on_compacted()
        if self._memory is not None:
            self._memory.forget()

    def on_tool_arguments(self, arguments: str) -> tuple[str, ...]:
        """Note skills whose files the arguments of a tool call name first; return their names."""
        if self._usage is None:
            return ()
        used = self._usage.named_in(arguments)
        self._note_used(self._usage, used)
        return tuple(skill.name for skill in used)

    def _on_activated(self, name: str) -> None:
        if self._usage is not None:
            self._note_used(self._usage, self._usage.activated(name))

    def _note_used(self, usage: "SkillUsageTracker", used: Sequence[Skill]) -> None:
        for skill in used:
            _log.info("skill_seen", name=skill.name, path=skill.path)
        if used:
            self._on_skills(usage.document)


class SkillUsageTracker:
    """Tracks which skills of a catalog a session used, and reports each one once.

    A skill counts as used if a tool call names the path of its SKILL.md or if the session activates it. This
    is a lower bound: a session may change into the directory first, or read all files with a pattern.
    """

    def __init__(self, catalog: RunCatalog, workspace: Path) -> None:
        self._document = catalog.document
        self.synced: SkillChanges | None = None
        self._unused: dict[str, Skill] = {}
        self._paths: dict[str, list[tuple[str, Skill]]] = {}  # by the name of the skill's directory
        if catalog.found is None:
            return
        for skill in catalog.found.skills:
            self._unused[skill.name] = skill
            file = catalog.found.file(skill)
            paths = [str(file)]
            if file.is_relative_to(workspace):
                relative = file.relative_to(workspace).as_posix()
                paths += [relative, f"./{relative}"]
            elif skill.path.startswith("~"):
                paths.append(skill.path)
            quoted = [path.replace("'", quote) for path in paths for quote in _QUOTES if "'" in path]
            self._paths.setdefault(skill.directory, []).extend((path, skill) for path in (*paths, *quoted))

    def relist(self, catalog: RunCatalog) -> None:
        """Report another listing of the same skills from now on."""
        self._document = catalog.document

    @property
    def document(self) -> Skills:
        """The document of the catalog, with the skills used so far."""

        def marked(skills: tuple[ListedSkill, ...]) -> tuple[ListedSkill, ...]:
            return tuple(structs.replace(one, seen=one.name not in self._unused) for one in skills)

        document = self._document
        return structs.replace(
            document,
            listed=marked(document.listed),
            native=marked(document.native),
            synced=self.synced,
        )

    def named_in(self, arguments: str) -> tuple[Skill, ...]:
        """The skills that the arguments of a tool call name for the first time."""
        named: dict[str, Skill] = {}
        for match in _SKILL_FILE.finditer(arguments):
            directory, end = match[1], match.end()
            for name in {directory, _WORD_START.split(directory)[-1]}:
                for path, skill in self._paths.get(name, ()):
                    start = end - len(path)
                    # The path must not be the tail of a longer one.
                    if arguments.endswith(path, 0, end) and (
                        start == 0 or not _PATH_CHARACTER.match(arguments, start - 1)
                    ):
                        named[skill.name] = skill
        return tuple(skill for name, skill in named.items() if self._unused.pop(name, None))

    def activated(self, name: str) -> tuple[Skill, ...]:
        """The skill with this name, if this is its first use."""
        skill = self._unused.pop(name, None)
        return () if skill is None else (skill,)


# --- tools -----------------------------------------------------------------------------------------------


class SessionTools:
    """The client tools of one session: the tracker's tools, then the tools for skills.

    Args:
        provider: the tools of the tracker, which come first.
        offer: the skills of the session; `None` for no skill tools.
        on_activated: called with the name of each skill whose text the session got.
    """

    def __init__(
        self, provider: ToolProvider, offer: AvailableSkills | None, *, on_activated: Callable[[str], None]
    ) -> None:
        self._provider = provider
        self._activate: _ActivateSkill | None = None
        self._skill_tools: dict[str, _ActivateSkill | _SearchSkills] = {}
        if offer is not None and offer.options.activation is ActivationMode.TOOL:
            self._activate = _ActivateSkill(offer.activations(), on_activated)
            self._skill_tools[ACTIVATE_TOOL] = self._activate
        if offer is not None and offer.uses_search:
            self._skill_tools[SEARCH_TOOL] = _SearchSkills(offer)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools to advertise to the agent."""
        return (*self._provider.agent_tool_specs(), *(tool.spec for tool in self._skill_tools.values()))

    async def run(self, name: str, arguments: Mapping[str, Any], *, issue: Issue) -> ToolResult:
        """Run one of the tools; raises only what the tracker raises."""
        tool = self._skill_tools.get(name)
        if tool is None:
            return await self._provider.execute_agent_tool(name, arguments, issue=issue)
        result = await tool.run(arguments)
        if result is None:
            return ToolResult.error(
                "the skills could not be read in time", hint="try again, or go on without"
            )
        return result

    def on_compacted(self) -> None:
        """The agent compacted its conversation: every skill may be activated again."""
        if self._activate is not None:
            self._activate.activations.forget()

    @property
    def active(self) -> Mapping[str, str]:
        """See `Activations.active`."""
        return {} if self._activate is None else self._activate.activations.active

    def remember(self, given: Mapping[str, str]) -> None:
        """See `Activations.remember`."""
        if self._activate is not None:
            self._activate.activations.remember(given)


class _Given(msgspec.Struct, frozen=True):
    thread_id: str
    skills: dict[str, str]


class ActivationMemory:
    """The record of the skills that a conversation got; it outlasts the session. Everything blocks.

    It is written at the end of each turn, because an interrupted conversation may lack the last skills.

    Attributes:
        written: the digests in the record, by name; empty without a record of this conversation.
    """

    def __init__(self, record: Path, thread_id: str) -> None:
        self._record = record
        self._thread_id = thread_id
        self.written: Mapping[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """The digests of the skills that it got, by name; empty if unknown."""
        try:
            given = msgspec.json.decode(self._record.read_bytes(), type=_Given)
        except (OSError, msgspec.MsgspecError):
            return {}
        self.written = given.skills if given.thread_id == self._thread_id else {}
        return self.written

    def forget(self) -> None:
        """Remove the record; never raises."""
        with suppress(OSError):
            self._record.unlink(missing_ok=True)
        self.written = {}

    def write(self, active: Mapping[str, str]) -> None:
        """Replace the record; never raises."""
        with suppress(OSError):
            self._record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._record.write_bytes(msgspec.json.encode(_Given(self._thread_id, dict(active))))
            self.written = dict(active)


class _ActivateSkill:
    """Gives the text of a skill, once per conversation."""

    def __init__(self, activations: Activations, on_activated: Callable[[str], None]) -> None:
        self.activations = activations
        self._on_activated = on_activated
        self.spec = ToolSpec(
            name=ACTIVATE_TOOL,
            description="Read a skill before following it: its instructions, and which files come with it.",
            input_schema=activations.input_schema(),
        )

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult | None:
        """The text, an error, or `None` if reading takes too long."""
        name = arguments.get("name")
        if arguments.keys() != {"name"} or not isinstance(name, str):
            return ToolResult.error("the arguments are one text, `name`")
        answer = self.activations.immediate_answer(name)
        if answer is None:
            answer = await in_skill_thread(lambda: self.activations.read(name), TOOL_DEADLINE_S)
        if answer is None:
            return None
        self.activations.record(answer)
        if answer.status is ActivationStatus.ACTIVATED:
            _log.info("skill_activated", name=answer.name)
            self._on_activated(answer.name)
        if not answer.success:
            return ToolResult.error(answer.text)
        return ToolResult(success=True, text=answer.text, read_only=True)


class _SearchSkills:
    """Finds skills by words, if there are too many to list."""

    spec = ToolSpec(
        name=SEARCH_TOOL,
        description="Find skills for a task by a few words, the best first.",
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": _MAX_QUERY_CHARS},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": _DEFAULT_FOUND},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )

    def __init__(self, offer: AvailableSkills) -> None:
        self._offer = offer

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult | None:
        """The skills found, an error, or `None` if the search takes too long."""
        query, limit = arguments.get("query"), arguments.get("limit", _DEFAULT_FOUND)
        if unknown := sorted(arguments.keys() - {"query", "limit"}):
            return ToolResult.error(f"unknown argument {unknown[0][:80]!r}")
        if not isinstance(query, str) or not query.strip() or len(query) > _MAX_QUERY_CHARS:
            return ToolResult.error(f"`query` must be a text of 1 to {_MAX_QUERY_CHARS} characters")
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_FOUND:
            return ToolResult.error(f"`limit` must be a whole number from 1 to {MAX_FOUND}")
        found = await in_skill_thread(lambda: self._offer.find(query, limit=limit), TOOL_DEADLINE_S)
        return None if found is None else ToolResult(success=True, text=found, read_only=True)

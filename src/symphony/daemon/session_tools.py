"""The tools of one session: the tracker's, and those by which it gets at skills (AG17, AG18).

Nothing of ours is offered where there is nothing to get at. What a session has activated is known until it
ends, or until its agent has summed the conversation up and no longer has the words.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import structlog
from anyio import CapacityLimiter, to_thread

from symphony.daemon.bound import Bound, skill_options
from symphony.daemon.catalog import alone
from symphony.domain.issue import Issue
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.skills import (
    ACTIVATE_TOOL,
    MAX_FOUND,
    SEARCH_TOOL,
    ActivationMode,
    Activations,
    ActivationStatus,
    Offer,
    SkillOptions,
)
from symphony.trackers.base import Tracker

__all__ = ["SessionTools", "missing_tools", "session_options"]

DEADLINE_S = 5.0
_MAX_QUERY_CHARS: Final = 1_000
_DEFAULT_FOUND: Final = 10
_TOO_SLOW: Final = ToolResult.error(
    "the skills could not be read in time", hint="try again, or go on without"
)
_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


def session_options(bound: Bound, agent: str) -> SkillOptions:
    """The choices about skills, as far as a session of an agent can keep them.

    A tool that is missing is not written of: the agent reads the file instead, and the skills are listed.
    """
    options, missing = skill_options(bound.settings), missing_tools(bound, agent)
    if ACTIVATE_TOOL in missing:
        options = replace(options, activation=ActivationMode.READ)
    return replace(options, search_above=None) if SEARCH_TOOL in missing else options


def missing_tools(bound: Bound, agent: str) -> Mapping[str, str]:
    """The tools for skills that are chosen and cannot be offered, each with the reason, in words."""
    options = skill_options(bound.settings)
    tools = [ACTIVATE_TOOL] if options.activation is ActivationMode.TOOL else []
    tools += [] if options.search_above is None else [SEARCH_TOOL]
    if tools and not bound.agent(agent).capabilities.client_tools:
        return dict.fromkeys(tools, "the agent takes no tools")
    taken = {spec.name for spec in bound.tracker.agent_tool_specs()} if tools else set()
    return {name: "the tracker has a tool of this name" for name in tools if name in taken}


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
        offer: Offer | None,
        *,
        limiter: CapacityLimiter,
        on_activated: Callable[[str], None],
    ) -> None:
        self._tracker = tracker
        self._activation = self._search = None
        if offer is not None and offer.options.activation is ActivationMode.TOOL:
            self._activation = _ActivateSkill(offer.activations(), limiter, on_activated)
        if offer is not None and offer.searched:
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
        answer = self._activations.settled(name)
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

    def __init__(self, offer: Offer, limiter: CapacityLimiter) -> None:
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
    with anyio.move_on_after(DEADLINE_S), contextlib.suppress(TimeoutError):
        one_at_a_time = partial(alone, step, DEADLINE_S)
        return await to_thread.run_sync(one_at_a_time, abandon_on_cancel=True, limiter=limiter)
    return None

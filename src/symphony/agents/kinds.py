"""What there is to know of a kind of agent; each kind tells it in a module `kind` of its package."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from symphony.agents.base import AgentBackend, Surroundings
from symphony.agents.posture import Remark
from symphony.agents.program import Wanted

__all__ = ["Kind", "Program", "Remarks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remarks:
    """What a person should know about the settings of an agent before anything runs.

    `wrong` is what no session could start with, `unguarded` says why sessions would run without any guard,
    `doubtful` what the agent will probably refuse; nothing, or null, where there is nothing to say.
    """

    wrong: tuple[Remark, ...] = ()
    unguarded: Remark | None = None
    doubtful: Remark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What an agent starts: a shell command, and what is said when its program is not there."""

    command: str
    wanted: Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind; each function is given settings of that kind.

    `judge` is told too whether `workspace.isolation` encloses the sessions. `program` takes the section's
    name for its words; null is a command that only the agent itself could tell.
    """

    make: Callable[[Any, Surroundings, str], AgentBackend]
    judge: Callable[[Any, bool], Remarks]
    program: Callable[[Any, str], Program | None]

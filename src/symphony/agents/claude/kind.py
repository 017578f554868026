"""The kind `claude`: what the registry knows of it."""

from symphony.agents.base import AgentBackend, Surroundings
from symphony.agents.claude.backend import ClaudeBackend
from symphony.agents.claude.errors import INSTALL_HINT
from symphony.agents.claude.posture import doubtful, unguarded
from symphony.agents.kinds import Kind, Program, Remarks
from symphony.agents.program import Wanted
from symphony.domain.failures import Category
from symphony.workflow.settings import ClaudeSettings

__all__ = ["KIND"]


def _make(settings: ClaudeSettings, around: Surroundings, name: str) -> AgentBackend:
    return ClaudeBackend(settings=settings, around=around, name=name)


def _judge(settings: ClaudeSettings, isolated: bool) -> Remarks:  # noqa: FBT001 - as told to `judge`
    return Remarks(unguarded=None if isolated else unguarded(settings), doubtful=doubtful(settings))


def _program(settings: ClaudeSettings, section: str) -> Program:
    wanted = Wanted(key=f"{section}.command", category=Category.AGENT_NOT_FOUND, hint=INSTALL_HINT)
    return Program(command=settings.command, wanted=wanted)


KIND = Kind(make=_make, judge=_judge, program=_program)

"""The kind `codex`: what the registry knows of it."""

from symphony.agents.base import AgentBackend, Surroundings
from symphony.agents.codex.backend import CodexBackend
from symphony.agents.codex.errors import INSTALL_HINT
from symphony.agents.codex.posture import refused_policy, unguarded
from symphony.agents.kinds import Kind, Program, Remarks
from symphony.agents.program import Wanted
from symphony.domain.failures import Category
from symphony.workflow.settings import CodexSettings

__all__ = ["KIND"]


def _make(settings: CodexSettings, around: Surroundings, name: str) -> AgentBackend:
    return CodexBackend(settings=settings, around=around, name=name)


def _judge(settings: CodexSettings, isolated: bool) -> Remarks:  # noqa: FBT001 - as told to `judge`
    return Remarks(unguarded=None if isolated else unguarded(settings), doubtful=refused_policy(settings))


def _program(settings: CodexSettings, section: str) -> Program:
    wanted = Wanted(key=f"{section}.command", category=Category.CODEX_NOT_FOUND, hint=INSTALL_HINT)
    return Program(command=settings.command, wanted=wanted)


KIND = Kind(make=_make, judge=_judge, program=_program)

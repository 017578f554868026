"""The kind `acp`: what the registry knows of it."""

from symphony.agents.acp.backend import AcpBackend
from symphony.agents.acp.posture import problems, unguarded
from symphony.agents.acp.profiles import command_of, profile_of
from symphony.agents.base import AgentBackend, Surroundings
from symphony.agents.kinds import Kind, Program, Remarks
from symphony.agents.program import Wanted
from symphony.domain.failures import Category
from symphony.workflow.settings import AcpSettings

__all__ = ["KIND"]


def _make(settings: AcpSettings, around: Surroundings, name: str) -> AgentBackend:
    return AcpBackend(settings=settings, around=around, name=name)


def _judge(settings: AcpSettings, isolated: bool) -> Remarks:  # noqa: FBT001 - as told to `judge`
    return Remarks(wrong=problems(settings), unguarded=unguarded(settings, isolated=isolated))


def _program(settings: AcpSettings, section: str) -> Program | None:
    profile = profile_of(settings)
    command = None if profile is None else command_of(settings, profile)
    if command is None or profile is None:
        return None
    wanted = Wanted(key=f"{section}.command", category=Category.AGENT_NOT_FOUND, hint=profile.install_hint)
    return Program(command=command, wanted=wanted)


KIND = Kind(make=_make, judge=_judge, program=_program)

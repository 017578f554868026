"""From the kind of an agent to its backend: the one place that knows which kinds exist (AG22)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from symphony.agents.acp import posture as acp_posture
from symphony.agents.acp import profiles as acp_profiles
from symphony.agents.acp.backend import AcpBackend
from symphony.agents.base import AgentBackend, AgentError, Surroundings
from symphony.agents.claude import errors as claude_errors
from symphony.agents.claude import posture as claude_posture
from symphony.agents.claude.backend import ClaudeBackend
from symphony.agents.codex import errors as codex_errors
from symphony.agents.codex import posture as codex_posture
from symphony.agents.codex.backend import CodexBackend
from symphony.agents.command import posture as command_posture
from symphony.agents.command.backend import CommandBackend
from symphony.agents.command.profiles import command_of, profile_of
from symphony.agents.enclosed import EnclosedBackend
from symphony.agents.posture import Remark
from symphony.agents.program import Wanted
from symphony.domain.failures import Blame, Category, Failure
from symphony.workflow.agents import NamedAgent
from symphony.workflow.settings import AcpSettings, ClaudeSettings, CodexSettings, CommandSettings

__all__ = ["KINDS", "Program", "Remarks", "create_backend", "program", "remarks"]


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
class _Kind:
    """What there is to know of a kind; each function is given settings of that kind.

    `judge` is told too whether `workspace.isolation` encloses the sessions. `program` takes the section's
    name for its words; null is a command that only the agent itself could tell.
    """

    make: Callable[[Any, Surroundings, str], AgentBackend]
    judge: Callable[[Any, bool], Remarks]
    program: Callable[[Any, str], Program | None]


def _make_codex(settings: CodexSettings, around: Surroundings, name: str) -> AgentBackend:
    return CodexBackend(settings=settings, around=around, name=name)


def _judge_codex(settings: CodexSettings, isolated: bool) -> Remarks:  # noqa: FBT001 - as told to `judge`
    unguarded = None if isolated else codex_posture.unguarded(settings)
    return Remarks(unguarded=unguarded, doubtful=codex_posture.refused_policy(settings))


def _codex_program(settings: CodexSettings, section: str) -> Program:
    hint = codex_errors.INSTALL_HINT
    wanted = Wanted(key=f"{section}.command", category=Category.CODEX_NOT_FOUND, hint=hint)
    return Program(command=settings.command, wanted=wanted)


def _make_claude(settings: ClaudeSettings, around: Surroundings, name: str) -> AgentBackend:
    return ClaudeBackend(settings=settings, around=around, name=name)


def _judge_claude(settings: ClaudeSettings, isolated: bool) -> Remarks:  # noqa: FBT001 - as above
    unguarded = None if isolated else claude_posture.unguarded(settings)
    return Remarks(unguarded=unguarded, doubtful=claude_posture.doubtful(settings))


def _claude_program(settings: ClaudeSettings, section: str) -> Program:
    hint = claude_errors.INSTALL_HINT
    wanted = Wanted(key=f"{section}.command", category=Category.AGENT_NOT_FOUND, hint=hint)
    return Program(command=settings.command, wanted=wanted)


def _make_command(settings: CommandSettings, around: Surroundings, name: str) -> AgentBackend:
    return CommandBackend(settings=settings, around=around, name=name)


def _judge_command(settings: CommandSettings, isolated: bool) -> Remarks:  # noqa: FBT001 - as above
    unguarded = command_posture.unguarded(settings, isolated=isolated)
    return Remarks(wrong=command_posture.problems(settings), unguarded=unguarded)


def _command_program(settings: CommandSettings, section: str) -> Program | None:
    profile = profile_of(settings)
    command = None if profile is None else command_of(settings, profile)
    if command is None or profile is None:
        return None
    wanted = Wanted(key=f"{section}.command", category=Category.AGENT_NOT_FOUND, hint=profile.install_hint)
    return Program(command=command, wanted=wanted)


def _make_acp(settings: AcpSettings, around: Surroundings, name: str) -> AgentBackend:
    return AcpBackend(settings=settings, around=around, name=name)


def _judge_acp(settings: AcpSettings, isolated: bool) -> Remarks:  # noqa: FBT001 - as above
    unguarded = acp_posture.unguarded(settings, isolated=isolated)
    return Remarks(wrong=acp_posture.problems(settings), unguarded=unguarded)


def _acp_program(settings: AcpSettings, section: str) -> Program | None:
    profile = acp_profiles.profile_of(settings)
    command = None if profile is None else acp_profiles.command_of(settings, profile)
    if command is None or profile is None:
        return None
    wanted = Wanted(key=f"{section}.command", category=Category.AGENT_NOT_FOUND, hint=profile.install_hint)
    return Program(command=command, wanted=wanted)


_KINDS: Final[Mapping[str, _Kind]] = {
    "acp": _Kind(make=_make_acp, judge=_judge_acp, program=_acp_program),
    "claude": _Kind(make=_make_claude, judge=_judge_claude, program=_claude_program),
    "codex": _Kind(make=_make_codex, judge=_judge_codex, program=_codex_program),
    "command": _Kind(make=_make_command, judge=_judge_command, program=_command_program),
}
KINDS = frozenset(_KINDS)


def create_backend(agent: NamedAgent, around: Surroundings) -> AgentBackend:
    """The backend of an agent; makes nothing on disk.

    Raises:
        AgentError: `invalid_workflow_config` for a kind that does not exist.
    """
    kind = _KINDS.get(agent.kind)
    if kind is None:
        failure = Failure(
            category=Category.INVALID_WORKFLOW_CONFIG,
            blame=Blame.CONFIG,
            message=f"agent.kind {agent.kind!r} is not supported",
            retryable=False,
            hint=f"supported kinds: {', '.join(sorted(KINDS))}",
        )
        raise AgentError(failure)
    backend = kind.make(agent.settings, around, agent.name)
    return backend if around.isolation is None else EnclosedBackend(backend, around, around.isolation)


def remarks(agent: NamedAgent, *, isolated: bool) -> Remarks:
    """Judge the settings of an agent, of a kind that exists; pure."""
    return _KINDS[agent.kind].judge(agent.settings, isolated)


def program(agent: NamedAgent) -> Program | None:
    """What an agent of a kind that exists would start; null where only the agent itself could tell."""
    return _KINDS[agent.kind].program(agent.settings, agent.section)

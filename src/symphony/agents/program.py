"""The agent's program: is it there, asked of the login shell that would start it; and its start (AG1)."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from symphony.agents.base import AgentError
from symphony.agents.environment import child_environment
from symphony.agents.process import AgentProcess, Launch, shell_argv
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure
from symphony.hosts.base import Host

__all__ = ["Wanted", "missing_program", "program_of", "start_program"]

_TIMEOUT_MS = 10_000
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9_@%+=:,.~/-]+")


def program_of(command: str) -> str | None:
    """The program that a shell command starts; null where only a shell could tell.

    A path that is relative to a workspace cannot be looked up either: there is no workspace yet.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    names = [word for word in words if not _ASSIGNMENT.fullmatch(word) and word != "exec"]
    first = names[0] if names else ""
    if not _WORD.fullmatch(first) or ("/" in first and not first.startswith(("/", "~/"))):
        return None
    return first


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is said when a program is not there.

    Attributes:
        key: where the command is told, such as `codex.command`.
        category: what its absence is called.
        hint: how to get it.
    """

    key: str
    category: Category
    hint: str


async def missing_program(
    command: str, *, host: Host, environment: Mapping[str, str], wanted: Wanted
) -> Failure | None:
    """Why a command could not be started; null where its program is there, or nobody can tell."""
    program = program_of(command)
    if program is None:
        return None
    argv = shell_argv(f"command -v {program} >&2", (), search_path=environment.get("PATH"))
    try:
        done = await host.run(
            argv, env=child_environment(environment, run_id="check"), timeout_ms=_TIMEOUT_MS
        )
    except OSError:
        return _missing("bash", wanted)
    return None if done.exit_code == 0 or done.timed_out else _missing(program, wanted)


async def start_program(
    host: Host, launch: Launch, *, grace_ms: int, missing: Category, install_hint: str
) -> AgentProcess:
    """Start a process; whether its shell finds the program in there, only its first words tell.

    Raises:
        AgentError: `missing`, when not even the shell can be started.
    """
    try:
        return await AgentProcess.start(host, launch, grace_ms=grace_ms)
    except OSError as error:
        failure = Failure(
            category=missing,
            blame=Blame.CONFIG,
            message=redact(f"the agent could not be started: {error}"),
            hint=f"bash must be on PATH; {install_hint}",
        )
        raise AgentError(failure) from error


def _missing(program: str, wanted: Wanted) -> Failure:
    return Failure(
        category=wanted.category,
        blame=Blame.CONFIG,
        message=f"{wanted.key}: the login shell finds no program {program}",
        retryable=False,
        hint=wanted.hint,
    )

"""The agent's program: is it there, asked of the login shell that would start it (AG1)?"""

import re
import shlex
from collections.abc import Mapping

from symphony.agents.base import Program
from symphony.agents.environment import child_environment
from symphony.agents.process import shell_argv
from symphony.domain.failures import Blame, Failure
from symphony.processes.base import Host

__all__ = ["missing_program", "program_of"]

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


async def missing_program(program: Program, *, host: Host, environment: Mapping[str, str]) -> Failure | None:
    """Why a program could not be started; None where it is there, or nobody can tell."""
    name = program_of(program.command)
    if name is None:
        return None
    argv = shell_argv(f"command -v {name} >&2", (), search_path=environment.get("PATH"))
    try:
        done = await host.run(
            argv, env=child_environment(environment, run_id="check"), timeout_ms=_TIMEOUT_MS
        )
    except OSError:
        return _missing("bash", program)
    return None if done.exit_code == 0 or done.timed_out else _missing(name, program)


def _missing(name: str, program: Program) -> Failure:
    return Failure(
        category=program.missing,
        blame=Blame.CONFIG,
        message=f"{program.key}: the login shell finds no program {name}",
        retryable=False,
        hint=program.hint,
    )

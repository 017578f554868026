"""Homes of the daemon's own for agents: `home: private` inherits nothing of the operator's (DESIGN 9).

No login, MCP server, skill, instruction or setting of the person who runs the daemon reaches such an agent;
it is logged in there once, by the agent's own means. A home stays between sessions, because agents keep their
threads in it.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from symphony.agents.base import AgentError, Surroundings
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["at_home", "private_home", "temp_directory"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_ELSEWHERE = re.compile(r"XDG_(?:CONFIG|DATA|STATE|CACHE)_HOME|XDG_RUNTIME_DIR", re.ASCII)
_HINT = "set SYMPHONY_STATE_DIR to a directory that this user can write"


def private_home(around: Surroundings, name: str, *, outside_temp: bool = False) -> Path:
    """The home of the agent called `name`, made for this user alone (mode 0700) if need be; blocking.

    `outside_temp` is for agents that refuse a home below the temp directory, which of theirs is ours too.

    Raises:
        AgentError: `state_directory`; it cannot be made, is not ours, or lies where the agent refuses it.
    """
    home = around.homes / name
    if not _NAME.fullmatch(name):
        raise _unusable(
            f"an agent called {name[:60]!r} can have no home", hint="use letters, digits and . _ -"
        )
    temp = temp_directory(around.environ)
    if outside_temp and Path(os.path.realpath(home)).is_relative_to(os.path.realpath(temp)):
        hint = f"{_HINT} and that is not below {temp}"
        raise _unusable(f"the agent's home {home} lies below the temp directory {temp}", hint=hint)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = home.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            raise _unusable(f"the agent's home {home} is not a directory of this user")
        for place in (around.homes, home):
            place.chmod(0o700)
    except OSError as error:
        raise _unusable(f"the agent's home {home} cannot be made: {error.strerror}") from error
    return home


def at_home(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """The variables of a program that lives in `home`: nothing points to what the operator has elsewhere."""
    passed = {name: value for name, value in environ.items() if not _ELSEWHERE.fullmatch(name)}
    return {**passed, "HOME": str(home)}


def temp_directory(environ: Mapping[str, str]) -> Path:
    """Where programs with these variables keep temporary files."""
    return Path(environ.get("TMPDIR") or "/tmp")  # noqa: S108 - where others look, nothing is made here


def _unusable(message: str, *, hint: str = _HINT) -> AgentError:
    failure = Failure(
        category=Category.STATE_DIRECTORY, blame=Blame.HOST, message=message, retryable=False, hint=hint
    )
    return AgentError(failure)

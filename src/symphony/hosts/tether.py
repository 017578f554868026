"""Children that die with the daemon: the kernel signals them when the thread that started them ends.

That is `PR_SET_PDEATHSIG` of Linux, which a process can only set for itself. Setting it between `fork` and
`exec` would cost the fast `vfork` of each start (fifty times the time, with a daemon of 100 MB), so `setpriv`
of util-linux stands before the command and is replaced by it. Where there is none, nothing is lost but
promptness: a successor finds every child by its mark. The same goes for a daemon that dies before `setpriv`
has spoken, for grandchildren, and for programs that change their user, to which the kernel does not apply it.

Start children from a thread that lives as long as they shall: in the daemon, that of the event loop.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

__all__ = ["Tether", "startable"]


class Tether:
    """Puts `setpriv` before commands, where this machine has one. It blocks, so use it in a thread."""

    def __init__(self, *, program: str = "setpriv") -> None:
        self._name = program
        self._found: set[tuple[str, str | None]] = set()

    @property
    def holds(self) -> bool:
        """Whether children can be tied at all."""
        return self._program is not None

    @cached_property
    def _program(self) -> str | None:
        found = shutil.which(self._name) if sys.platform == "linux" else None
        return found if found is not None and _works(found) else None

    def tie(
        self, argv: Sequence[str], number: signal.Signals, *, cwd: Path | None, env: Mapping[str, str]
    ) -> list[str]:
        """The command that gets the signal when we die; unchanged where it cannot be, or cannot be started.

        A program that is not there must fail to start, which behind `setpriv` could not be told from an exit.
        """
        if self._program is None or not startable(argv[0], cwd, env):
            return list(argv)
        if "/" not in argv[0]:
            self._found.add((argv[0], env.get("PATH")))
        return self._tied(self._program, argv, number)

    def tie_at_once(
        self, argv: Sequence[str], number: signal.Signals, *, env: Mapping[str, str]
    ) -> list[str] | None:
        """The same without a look at the disk, for a program found on this PATH before; else null."""
        if (argv[0], env.get("PATH")) not in self._found or self._program is None:
            return None
        return self._tied(self._program, argv, number)

    @staticmethod
    def _tied(program: str, argv: Sequence[str], number: signal.Signals) -> list[str]:
        return [program, "--pdeathsig", number.name.removeprefix("SIG"), "--", *argv]


def _works(program: str) -> bool:
    """Whether it knows the option (util-linux 2.33; the one of BusyBox does not)."""
    try:
        tried = subprocess.run(
            [program, "--pdeathsig", "KILL", "--", "true"], capture_output=True, check=False
        )
    except OSError:
        return False
    return tried.returncode == 0


def startable(program: str, cwd: Path | None, env: Mapping[str, str]) -> bool:
    """Whether there is such a program; behind another one its absence could not be told from its failure."""
    if "/" in program:
        path = Path(cwd or "", program)
        return path.is_file() and os.access(path, os.X_OK)
    return shutil.which(program, path=env.get("PATH", os.defpath)) is not None

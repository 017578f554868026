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
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Tether", "startable"]


class Tether:
    """Puts `setpriv` before commands, where this machine has one. It blocks, so use it in a thread."""

    def __init__(self, *, program: str = "setpriv") -> None:
        self._name = program
        self._trial: _Trial | None = None
        self._found: set[tuple[str, str | None]] = set()

    def __enter__(self) -> Self:
        """Begin to try the program while there is other work to do, so that nobody waits for it later."""
        self._trial = _try(self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ = self._program  # the child that tries it is ended and forgotten

    @property
    def holds(self) -> bool:
        """Whether children can be tied at all."""
        return self._program is not None

    @cached_property
    def _program(self) -> str | None:
        trial = self._trial or _try(self._name)
        return None if trial is None or trial.child.wait() != 0 else trial.program

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """A start of the program, whose exit tells whether it knows the option."""

    program: str
    child: "subprocess.Popen[bytes]"


def _try(name: str) -> _Trial | None:
    """Begin to see whether it knows the option (util-linux 2.33; the one of BusyBox does not)."""
    program = shutil.which(name) if sys.platform == "linux" else None
    if program is None:
        return None
    argv, silent = [program, "--pdeathsig", "KILL", "--", "true"], subprocess.DEVNULL
    try:
        return _Trial(
            program=program, child=subprocess.Popen(argv, stdin=silent, stdout=silent, stderr=silent)
        )
    except OSError:
        return None


def startable(program: str, cwd: Path | None, env: Mapping[str, str]) -> bool:
    """Whether there is such a program; behind another one its absence could not be told from its failure."""
    if "/" in program:
        path = Path(cwd or "", program)
        return path.is_file() and os.access(path, os.X_OK)
    return shutil.which(program, path=env.get("PATH", os.defpath)) is not None

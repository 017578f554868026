"""A command on a pseudo terminal of a given size."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.project import Project

if TYPE_CHECKING:
    from harness.forks import Fork

__all__ = ["DEADLINE_S", "Terminal", "terminal"]


DEADLINE_S = 120.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Terminal:
    """A command on a pseudo terminal; `modes` is how that was set before the command began."""

    process: "subprocess.Popen[bytes] | Fork"
    master: int
    modes: list[Any]
    text: str = ""

    def read(self) -> bool:
        """Take what comes next; false once no process has the terminal any more."""
        ready, _, _ = select.select([self.master], [], [], 1.0)
        if ready:
            try:
                data = os.read(self.master, 65_536)
            except OSError:  # how Linux tells the end of a terminal
                return False
            self.text += data.decode("utf-8", "replace")
        return True

    def until(self, words: str, count: int = 1) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.text.count(words) < count:
            assert time.monotonic() < deadline, self.text
            assert self.read(), self.text

    def screen(self, holds: Callable[[str], bool]) -> str:
        """Wait for a whole picture of a live view that has something; return it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for picture in reversed(self.text.split("\x1b[H")[1:-1]):
                if holds(shown := ESCAPES.sub("", picture).replace("\r\n", "\n")):
                    return shown
            assert time.monotonic() < deadline, self.text
            assert self.read(), self.text

    def press(self, keys: str) -> None:
        """Type; only later pictures count from now on."""
        self.text = ""
        os.write(self.master, keys.encode())

    def resize(self, columns: int, lines: int = 24) -> None:
        """Change the size, as a window does."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def modes_now(self) -> list[Any]:
        """How the terminal is set."""
        return termios.tcgetattr(self.master)

    def end(self) -> str:
        """Everything it wrote, without what steers the terminal."""
        while self.read():
            pass
        self.process.wait(DEADLINE_S)
        return ESCAPES.sub("", self.text).replace("\r\n", "\n")


@contextmanager
def terminal(
    project: Project, *arguments: str, columns: int = 80, term: str = "xterm", suspends: bool = False
) -> Iterator[Terminal]:
    """Run a command there; with `suspends` the system lets it be stopped, as a shell's child."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    modes = termios.tcgetattr(master)
    environment = {
        name: value for name, value in project.env().items() if name not in {"NO_COLOR", "COLUMNS"}
    }
    environment["TERM"] = term
    process: subprocess.Popen[bytes] | Fork | None = None
    if not suspends:
        process = project.on_terminal(os.ttyname(slave), *arguments, env=environment)
    if process is None:
        process = subprocess.Popen(
            [sys.executable, "-m", "symphony", *arguments],
            cwd=project.repo,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=not suspends,
            process_group=0 if suspends else None,
        )
    os.close(slave)
    try:
        yield Terminal(process, master, modes)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)

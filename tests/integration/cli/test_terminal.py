"""The reading commands on a real terminal of a given size."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.project import Project

DEADLINE_S = 30.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Terminal:
    """A command on a pseudo terminal."""

    process: "subprocess.Popen[bytes]"
    master: int
    text: str = ""

    def read(self) -> bool:
        """Take what comes next; false at the end."""
        ready, _, _ = select.select([self.master], [], [], 1.0)
        if ready:
            try:
                data = os.read(self.master, 65_536)
            except OSError:  # how Linux tells the end of a terminal
                return False
            self.text += data.decode("utf-8", "replace")
            return bool(data)
        return self.process.poll() is None

    def until(self, words: str, count: int = 1) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.text.count(words) < count:
            assert time.monotonic() < deadline, self.text
            assert self.read(), self.text

    def end(self) -> str:
        """Everything it wrote, without what steers the terminal."""
        while self.read():
            pass
        self.process.wait(DEADLINE_S)
        return ESCAPES.sub("", self.text).replace("\r\n", "\n")


@contextmanager
def terminal(project: Project, *arguments: str, columns: int = 80, term: str = "xterm") -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {
        name: value for name, value in project.env().items() if name not in {"NO_COLOR", "COLUMNS"}
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "symphony.cli", *arguments],
        cwd=project.repo,
        env={**environment, "TERM": term},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(root=tmp_path).create()
    made.workflow()
    made.skill("release", description="When releasing.")
    made.commit("Skills")
    made.issue("SYM-1", title="Fix \x07[b]login[/b]", text="The page is blank.")
    return made


def test_the_status_fits_the_terminal(project: Project) -> None:
    with terminal(project, "status", columns=60) as shown:
        text = shown.end()
    assert shown.process.returncode == 0
    assert max(map(len, text.splitlines())) <= 60
    assert "SYM-1     Fix [b]login[/b]\n" in text
    assert "\x07" not in shown.text
    assert "\x1b[" in shown.text, "a terminal has colours"


def test_watching_redraws_until_ctrl_c_and_leaves_the_terminal_as_it_was(project: Project) -> None:
    with terminal(project, "status", "--watch", "--interval", "0.1") as shown:
        shown.until("No daemon is running", count=3)
        shown.process.send_signal(signal.SIGINT)
        shown.end()
    assert shown.process.returncode == 0
    entered, left = shown.text.count("\x1b[?1049h"), shown.text.count("\x1b[?1049l")
    assert entered == left == 1, "the other screen is left"
    assert "Traceback" not in shown.text


def test_a_terminal_that_cannot_redraw_gets_one_picture_below_the_other(project: Project) -> None:
    with terminal(project, "status", "--watch", "--interval", "0.1", term="dumb") as shown:
        shown.until("No daemon is running", count=2)
        shown.process.send_signal(signal.SIGINT)
        shown.end()
    assert shown.process.returncode == 0
    assert "\x1b[?1049h" not in shown.text


def test_a_person_sees_which_text_is_which(project: Project) -> None:
    with terminal(project, "prompt", "SYM-1") as shown:
        text = shown.end()
    assert text.startswith("Envelope: the system-level text ")
    assert "\nPrompt of the first turn " in text
    assert "SYM-1: Fix  [b]login[/b]" in text
    assert "skills: 1 listed, 0 dropped, 0 malformed\n" in text
    assert "\x07" not in shown.text


def test_a_person_sees_how_many_skills_would_be_searched(project: Project) -> None:
    project.skill("another")
    project.commit("Another")
    project.workflow(agent={"skills": {"search_above": 1, "user_path": None}})
    with terminal(project, "prompt", "SYM-1") as shown:
        assert "skills: 0 listed, 2 to be searched, 0 dropped, 0 malformed\n" in shown.end()


def test_a_person_sees_that_there_is_no_envelope(project: Project) -> None:
    project.workflow(agent={"skills": {"enabled": False}})
    with terminal(project, "prompt", "SYM-1") as shown:
        assert "(none)\n" in shown.end()
    with terminal(project, "explain", "SYM-1", columns=50) as shown:
        assert "It is not running: it would start now, and no\ndaemon is running." in shown.end()


def test_a_reader_that_goes_away_ends_the_watch_quietly(project: Project) -> None:
    command = f"{sys.executable} -m symphony.cli status --watch --interval 0.1 --json | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=project.repo,
        env=project.env(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stdout.startswith('{"source": "files"')
    assert done.stderr == ""

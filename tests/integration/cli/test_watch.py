"""The live view of `status --watch` on a real terminal, beside a real daemon."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from harness.project import Project, until
from harness.terminals import Terminal, terminal

WATCH = ("status", "--watch", "--interval", "0.2")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """SYM-1 says something and waits, SYM-2 asks, SYM-3 waits behind SYM-1."""
    made = Project(root=tmp_path).create()
    made.workflow()
    made.commit("Workflow")
    wait = {"wait_for": str(tmp_path / "go")}
    made.issue("SYM-1", [{"say": "I look at the login page"}, wait], title="Fix \x1b[2J[b]login[/b]")
    made.issue("SYM-2", [{"ask_input": "Which colour?"}], title="Pick a colour")
    made.issue("SYM-3", title="Write the docs", extra="blocked_by: [SYM-1]\n")
    return made


def assert_left(shown: Terminal) -> None:
    """The terminal is as it was before the view: its screen, its cursor, its keyboard."""
    assert shown.text.rindex("\x1b[?1049l") > shown.text.rfind("\x1b[?1049h")
    assert shown.text.rindex("\x1b[?25h") > shown.text.rfind("\x1b[?25l")
    assert shown.modes_now() == shown.modes
    assert "Traceback" not in shown.text


def stopped(shown: Terminal) -> bool | None:
    return psutil.Process(shown.process.pid).status() == psutil.STATUS_STOPPED or None


@pytest.mark.slow
def test_a_person_watches_filters_selects_and_explains(project: Project) -> None:
    with project.daemon() as daemon, terminal(project, *WATCH, suspends=True) as shown:
        daemon.wait_for("issue_blocked", issue_identifier="SYM-2")
        board = shown.screen(lambda text: "I look at the login page" in text and "QUESTIONS" in text)
        lines = board.splitlines()
        assert lines[0].startswith("repo  /")
        assert lines[1].startswith("Daemon healthy")
        words = [line.split()[0] for line in lines if line and not line.startswith(" ")]
        order = ["QUESTIONS", "SYM-2", "RUNNING", "SYM-1", "WAITING", "SYM-3", "q"]
        assert [word for word in words if word in order] == order
        assert "Fix [b]login[/b]" in board
        assert 'or: symphony answer SYM-2 "…"' in " ".join(board.split())

        shown.press("/")
        shown.press("docs")
        shown.screen(lambda text: "SYM-3" in text and "QUESTIONS" not in text and "RUNNING" not in text)
        shown.press("\r\r")
        assert "Write the docs" in shown.screen(lambda text: "It is not running" in text)
        shown.press("\x1b")
        shown.screen(lambda text: "WAITING" in text and "/docs" in text)
        shown.press("\x1b")
        shown.screen(lambda text: "QUESTIONS" in text)
        shown.press("jj\r")
        shown.screen(lambda text: "An agent is at work" in text)
        shown.press("?")
        shown.screen(lambda text: "suspend" in text)
        shown.press("\x1b")
        shown.screen(lambda text: "QUESTIONS" in text)

        shown.resize(130)
        os.kill(shown.process.pid, signal.SIGWINCH)  # the kernel sends it to the session of the terminal
        shown.screen(lambda text: max(map(len, text.splitlines())) == 130)
        os.kill(shown.process.pid, signal.SIGTSTP)
        until(lambda: stopped(shown), lambda: "not stopped")
        shown.read()
        assert_left(shown)
        os.kill(shown.process.pid, signal.SIGCONT)
        shown.press("")
        shown.screen(lambda text: "QUESTIONS" in text)

        daemon.signal(signal.SIGINT)
        daemon.end()
        shown.screen(lambda text: "No daemon is running" in text)
        with project.daemon():
            shown.screen(lambda text: "Daemon healthy" in text and "SYM-1" in text)
            shown.press("q")
            shown.end()
        assert shown.process.returncode == 0
        assert_left(shown)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_view_and_the_terminal_is_as_it_was(
    project: Project, number: signal.Signals, code: int
) -> None:
    with terminal(project, *WATCH) as shown:
        shown.screen(lambda text: "No daemon is running" in text)
        shown.process.send_signal(number)
        shown.end()
        assert shown.process.returncode == code
        assert_left(shown)


def test_a_terminal_that_goes_away_ends_the_view(project: Project) -> None:
    with terminal(project, *WATCH) as shown:
        shown.screen(lambda text: "No daemon is running" in text)
        os.close(shown.master)
        shown.master = os.open(os.devnull, os.O_RDONLY)
        assert shown.process.wait(60) in {129, 1}, "by the signal, or by a write that failed before it came"


@pytest.mark.slow
def test_a_daemon_in_a_terminal_shows_the_view_that_its_settings_enable(project: Project) -> None:
    project.workflow(observability={"dashboard_enabled": True, "refresh_ms": 200, "render_interval_ms": 20})
    with terminal(project, "run", suspends=True) as shown:
        shown.screen(lambda text: "I look at the login page" in text and "QUESTIONS" in text)
        shown.press("q")
        shown.until("Ctrl-C ends the daemon")
        assert_left(shown)
        shown.text = ""
        project.issue("SYM-4", title="Later")
        shown.until("SYM-4")
        shown.process.send_signal(signal.SIGINT)
        shown.end()
        assert shown.process.returncode == 0
    log = (project.state_dir / "log" / "symphony.log").read_text()
    assert '"event": "run_started"' in log
    assert "SYM-4" in log


@pytest.mark.slow
def test_the_view_of_a_daemon_that_is_killed_ends_too(project: Project) -> None:
    project.workflow(observability={"dashboard_enabled": True, "refresh_ms": 200})
    with terminal(project, "run", suspends=True) as shown:
        shown.screen(lambda text: "QUESTIONS" in text)
        shown.process.kill()
        shown.end()
        assert_left(shown)

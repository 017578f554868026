"""A real daemon and a real socket: what a service manager hears of it, and when it hears nothing any more."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from harness.project import Project, scripted, until
from harness.service_manager import Manager, managing
from harness.shell import word

WATCHDOG_MS = 400
DEADLINE_S = 30.0
HOLD = [{"write": "a", "text": "a"}, {"commit": "A"}, {"wait_for": "never"}]
DONE = [{"tool": "board_move", "arguments": {"state": "Done"}}]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with managing(tmp_path / "notify") as listening:
        yield listening


@pytest.fixture
def project(tmp_path: Path, manager: Manager) -> Project:
    made = Project(tmp_path).create()
    made.environment |= {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": str(WATCHDOG_MS * 1000)}
    return made


def test_a_daemon_tells_its_manager_from_the_start_to_the_end(project: Project, manager: Manager) -> None:
    project.workflow()
    project.issue("SYM-1", HOLD)
    with project.daemon() as daemon:
        ready = manager.until_said("READY")
        assert all("EXTEND_TIMEOUT_USEC" in said for said in manager.heard[:-1])
        assert [said["STATUS"] for said in manager.heard[:-1]] == [
            "starting: ending processes of the last daemon",
            "starting: checking the workspace and the agent",
        ]
        assert ready["WATCHDOG"] == "1"
        manager.until(lambda said: said.get("STATUS") == "1 running, 0 retrying, 0 blocked")

        daemon.signal(signal.SIGHUP)
        manager.until_said("RELOADING")
        manager.until(lambda said: "READY" in said and "WATCHDOG" not in said)

        daemon.signal(signal.SIGTERM)
        assert "EXTEND_TIMEOUT_USEC" in manager.until_said("STOPPING")
        draining = manager.until(lambda said: said.get("STATUS", "").endswith("; draining"))
        assert draining["STATUS"].startswith("1 running")
        assert "EXTEND_TIMEOUT_USEC" in draining
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    manager.waiting()
    assert len(manager.all("STOPPING")) == 1


def test_an_idle_daemon_feeds_the_watchdog_and_a_stopped_one_does_not(
    project: Project, manager: Manager
) -> None:
    project.workflow(polling={"interval_ms": 3_600_000})
    with project.daemon() as daemon:
        manager.until_said("READY")
        for _ in range(5):
            manager.until_said("WATCHDOG")
        daemon.signal(signal.SIGSTOP)
        stopped = psutil.Process(daemon.process.pid)
        so(lambda: stopped.status() == psutil.STATUS_STOPPED)
        manager.waiting()
        assert not manager.hears_within(WATCHDOG_MS)
        daemon.signal(signal.SIGCONT)
        manager.until_said("WATCHDOG")


@pytest.mark.slow
def test_a_loop_that_hangs_starves_the_watchdog_and_its_abort_says_where(
    project: Project, manager: Manager
) -> None:
    project.workflow()
    hang, log = project.root / "hang", project.root / "hanging.log"
    with hanging(project, hang, log) as daemon:
        manager.until_said("READY")
        hang.touch()
        so(lambda: hang.with_suffix(".hangs").exists())
        manager.waiting()
        assert not manager.hears_within(2 * WATCHDOG_MS)
        daemon.send_signal(signal.SIGABRT)
        assert daemon.wait(DEADLINE_S) == -signal.SIGABRT
    assert "in hanging_step" in log.read_text(encoding="utf-8")


def test_a_broken_socket_costs_one_line_and_nothing_else(project: Project) -> None:
    project.environment |= {"NOTIFY_SOCKET": str(project.root / "nobody" / "there")}
    project.workflow()
    project.issue("SYM-1", DONE)
    with project.daemon() as daemon:
        so(lambda: project.written_state("SYM-1") == "Done")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
        assert [line["event"] for line in daemon.events()].count("service_manager_not_told") == 1


def test_neither_agents_nor_hooks_can_speak_to_the_manager(project: Project) -> None:
    seen = project.root / "seen"
    seen.mkdir()
    project.environment |= {"LISTEN_FDS": "1", "LISTEN_PID": "1"}
    project.workflow(
        command=f"env > {word(seen)}/agent; exec {scripted()}",
        hooks={"before_run": f"env > {word(seen)}/hook"},
    )
    project.issue("SYM-1", DONE)
    with project.daemon() as daemon:
        so(lambda: project.written_state("SYM-1") == "Done")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    for name in ("agent", "hook"):
        variables = (seen / name).read_text(encoding="utf-8").splitlines()
        assert any(line.startswith("PATH=") for line in variables)
        assert not [line for line in variables if line.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_"))]


def so(holds: Callable[[], bool]) -> None:
    until(lambda: True if holds() else None, lambda: "it did not become so")


@contextmanager
def hanging(project: Project, hang: Path, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A daemon whose scheduler hangs once there is a file `hang`."""
    tests = Path(__file__).parents[2]
    environment = {**project.env(), "PYTHONPATH": f"{tests}:{os.environ.get('PYTHONPATH', '')}"}
    with log.open("wb") as sink:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "harness.hanging_daemon", str(hang), "run", "--log-format", "json"],
            cwd=project.repo,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=sink,
        )
        try:
            yield daemon
        finally:
            daemon.kill()
            daemon.wait()

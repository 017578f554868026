"""Promise: `kill -9` leaves one live agent per issue, in the same thread, and the issue is finished."""

import json
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.nightly import NIGHTLY
from harness.project import DEADLINE_S, Daemon, Project, remembering, scripted, until
from harness.shell import word

STUBBORN = ("--ignore-eof", "--ignore-sigterm", "--own-session-child")


def _alive(folder: Path, role: str) -> list[int]:
    """Pids of agents (or of their children) that wrote a pid file and still run."""
    found = []
    for path in folder.glob("*.json"):
        facts = json.loads(path.read_text())
        if facts["role"] == role and _runs(facts["pid"]):
            found.append(facts["pid"])
    return found


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _agents(project: Project, pids: Path, *switches: str) -> None:
    # Behind a pipe the agent is no child of its subreaper, so the kernel does not end it with that.
    piped = "cat | " if switches else ""
    command = piped + scripted("--pid-file", str(pids), *switches)
    project.workflow(command=command, agent={"max_concurrent_agents": 3})


def _prepare(project: Project, *switches: str) -> Path:
    pids = project.root / "pids"
    pids.mkdir()
    _agents(project, pids, *switches)
    for number in (1, 2, 3):
        project.issue(
            f"SYM-{number}",
            [
                {"write": "work.txt", "text": "work\n"},
                {"wait_for": str(project.root / "go")},
                {"commit": "Work"},
                {"tool": "board_move", "arguments": {"state": "Done"}},
            ],
        )
    return pids


def _three_agents(pids: Path) -> list[int]:
    return until(
        lambda: agents if len(agents := _alive(pids, "agent")) == 3 else None,
        lambda: f"agents alive: {_alive(pids, 'agent')}",
    )


def _wait_for_work(project: Project, daemon: Daemon) -> None:
    files = [project.workspaces / f"SYM-{number}" / "work.txt" for number in (1, 2, 3)]
    until(lambda: all(path.exists() for path in files) or None, daemon.log.read_text)


def _damage(state_dir: Path) -> None:
    for path in state_dir.rglob("*"):
        if path.is_file() and path.name != "lock":
            path.write_bytes(b"\0\xff{")


@pytest.mark.parametrize(
    "forget",
    [shutil.rmtree, pytest.param(_damage, marks=pytest.mark.slow)],
    ids=["the state directory is gone", "every file is damaged"],
)
def test_kill_9_in_mid_run_leaves_one_agent_per_issue_and_finishes_it(
    project: Project, forget: Callable[[Path], None]
) -> None:
    """The agents ignore EOF and SIGTERM, and no file tells the successor of them."""
    pids = _prepare(project, *STUBBORN)
    with project.daemon() as first:
        old = _three_agents(pids)
        _wait_for_work(project, first)
        first.kill_with_subreapers()
        first.end()
    assert sorted(_alive(pids, "agent")) == sorted(old), "these survive their daemon: the control"
    forget(project.state_dir)
    _agents(project, pids)  # ordinary ones, which end at once
    with project.daemon("--once") as second:
        new = until(
            lambda: agents if len(agents := set(_alive(pids, "agent")) - set(old)) == 3 else None,
            second.log.read_text,
        )
        assert not set(_alive(pids, "agent")) & set(old), "nothing of the predecessor is alive"
        assert len(new) == 3
        (project.root / "go").touch()
        assert second.end() == 0, second.log.read_text()
    for number in (1, 2, 3):
        assert project.state(f"SYM-{number}") == "Done"
        assert project.branch_log(f"SYM-{number}") == ["Work"]
    assert not _alive(pids, "agent")
    assert not _alive(pids, "child")


def _killed_by_its_first_prompt(project: Project, number: int) -> Daemon:
    """A daemon that is killed as soon as the agent of this issue has its first prompt."""
    told = project.workspaces / f"SYM-{number}" / "told"
    with project.daemon() as daemon:
        deadline = time.monotonic() + DEADLINE_S
        while not told.exists():  # `until` looks now and then: too late for this
            assert time.monotonic() < deadline, daemon.log.read_text()
            time.sleep(0.001)
        daemon.signal(signal.SIGKILL)
        daemon.end()
    return daemon


@pytest.mark.slow
def test_kill_9_at_the_very_first_prompt_loses_no_thread(project: Project) -> None:
    """Each daemon but the first also goes on with the issue whose prompt ended the one before."""
    threads, rounds = project.root / "threads", 10 if NIGHTLY else 4
    project.workflow(command=remembering(threads), agent={"max_concurrent_agents": 1})
    lives = []
    for number in range(1, rounds + 1):
        project.issue(
            f"SYM-{number}",
            [
                {"write": "told", "text": "once\n"},
                {"wait_for": str(project.root / f"go-{number}")},
                {"commit": "Work"},
                {"tool": "board_move", "arguments": {"state": "Done"}},
            ],
        )
        lives.append(_killed_by_its_first_prompt(project, number))
        (project.root / f"go-{number}").touch()
    with project.daemon("--once") as last:
        assert last.end() == 0, last.log.read_text()
    events = [line for life in [*lives, last] for line in life.events()]
    resumed = [line["thread_id"] for line in events if line["event"] == "thread_resumed"]
    assert sorted(resumed) == sorted(path.stem for path in threads.glob("*.json"))
    assert len(resumed) == rounds
    assert all(project.branch_log(f"SYM-{number}") == ["Work"] for number in range(1, rounds + 1))


def _kept(project: Project, query: str) -> list[Any]:
    """A column of the journal."""
    with closing(sqlite3.connect(project.state_dir / "journal.db")) as journal:
        return [value for (value,) in journal.execute(query)]


def _kept_threads(project: Project) -> int:
    """How many runs are known to the journal with their thread."""
    return sum("thread_id" in text for text in _kept(project, "SELECT record FROM runs"))


def _left(project: Project) -> list[str]:
    """Half-written files, and names of a holder, in the state directory and beside the workspaces."""
    places = (project.state_dir, project.workspaces)
    half = [
        path
        for place in places
        for path in place.rglob("*")
        if path.name.endswith((".tmp", ".lock")) and path.name != "tenants.lock"  # it stays on purpose
    ]
    half += (project.workspaces / ".symphony" / "staging").iterdir()
    named = (project.state_dir / "lock").read_text()
    return [str(path) for path in half if path.parent.name != "mirrors"] + ([named] if named else [])


@pytest.mark.conformance("L-3")
@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGTERM, signal.SIGTERM), pytest.param((signal.SIGINT,), marks=pytest.mark.slow)],
    ids=["SIGTERM twice", "SIGINT"],
)
def test_a_second_signal_or_an_interrupt_stops_at_once_and_leaves_nothing(
    project: Project, numbers: tuple[signal.Signals, ...]
) -> None:
    pids = _prepare(project, *STUBBORN)
    with project.daemon() as daemon:
        _three_agents(pids)
        _wait_for_work(project, daemon)
        for number in numbers:
            daemon.signal(number)
            if number is not numbers[-1]:
                daemon.wait_for("draining")
        assert daemon.end() == 0, daemon.log.read_text()
    assert not _alive(pids, "agent")
    assert not _alive(pids, "child")
    assert _left(project) == []
    for issue in (1, 2, 3):
        assert (project.workspaces / f"SYM-{issue}" / "work.txt").exists(), "work in progress is kept"


@pytest.mark.conformance("L-3")
def test_the_first_signal_lets_running_turns_end(project: Project) -> None:
    pids = _prepare(project)
    with project.daemon() as daemon:
        _three_agents(pids)
        _wait_for_work(project, daemon)
        daemon.signal(signal.SIGTERM)
        daemon.wait_for("draining")
        (project.root / "go").touch()
        assert daemon.end() == 0, daemon.log.read_text()
    assert [project.branch_log(f"SYM-{issue}") for issue in (1, 2, 3)] == [["Work"]] * 3


@pytest.mark.conformance("L-2")
def test_a_second_daemon_is_refused_in_one_line(project: Project) -> None:
    project.workflow()
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        refused = project.symphony("run")
        assert refused.returncode == 1
        assert "already serves this workflow" in refused.stderr
        assert str(project.state_dir) in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 2
        assert str(daemon.process.pid) in refused.stderr
        assert "hint:" in refused.stderr


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_a_slow_hook_at_the_end(project: Project) -> None:
    pids = _prepare(project)
    project.workflow(
        command=scripted("--pid-file", str(pids)),
        hooks={"after_run": f"touch {word(project.root)}/ending; sleep 50", "timeout_ms": 60_000},
    )
    with project.daemon() as daemon:
        _wait_for_work(project, daemon)
        daemon.signal(signal.SIGTERM)
        daemon.wait_for("draining")
        (project.root / "go").touch()
        until(lambda: (project.root / "ending").exists() or None, daemon.log.read_text)
        daemon.signal(signal.SIGTERM)
        assert daemon.end(timeout_s=30) == 0, daemon.log.read_text()
    assert not _alive(pids, "agent")
    assert all((project.workspaces / f"SYM-{number}").exists() for number in (1, 2, 3)), "nothing is lost"

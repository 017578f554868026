"""Promise: kill it, damage what it remembers, set the clock: work goes on, and nothing is destroyed."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.project import Daemon, Project, until
from harness.shell import word
from symphony.daemon.state_dir import instance_of
from symphony.processes.local import LocalHost

DAY_MS = 86_400_000
WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


@pytest.fixture
def killed(project: Project) -> Project:
    """A project whose daemon was killed while an agent worked on SYM-1; the next agent comes to its end."""
    project.workflow()
    project.issue("SYM-1", [WORK[0], {"wait_for": str(project.root / "go")}, *WORK[1:]])
    with project.daemon() as daemon:
        begun = project.workspaces / "SYM-1" / "work.txt"
        until(lambda: (begun.exists() and _agents(project)) or None, daemon.log.read_text)
        daemon.signal(signal.SIGKILL)
        daemon.end()
    host = LocalHost(instance=instance_of(project.state_dir))
    until(lambda: True if host.find_survivors() == () else None, lambda: f"left: {host.find_survivors()}")
    (project.root / "go").touch()
    return project


def _journal(project: Project) -> Path:
    return project.state_dir / "journal.db"


def _records(project: Project, table: str) -> list[dict[str, Any]]:
    if not _journal(project).exists():
        return []
    with closing(sqlite3.connect(_journal(project))) as journal:
        rows = journal.execute(f"SELECT record FROM {table}").fetchall()  # noqa: S608 - a name of ours
    return [json.loads(text) for (text,) in rows]


def _change(project: Project, table: str, change: Callable[[dict[str, Any]], None]) -> int:
    """Change each record of a table of the journal; returns how many there are."""
    records = _records(project, table)
    with closing(sqlite3.connect(_journal(project))) as journal, journal:
        for (text,) in journal.execute(f"SELECT record FROM {table}").fetchall():  # noqa: S608 - as above
            record = json.loads(text)
            change(record)
            told = (json.dumps(record), text)
            journal.execute(f"UPDATE {table} SET record = ? WHERE record = ?", told)  # noqa: S608 - as above
    return len(records)


def _agents(project: Project) -> list[dict[str, Any]]:
    """The agents that the journal knows of."""
    return [run["agent"] for run in _records(project, "runs") if run.get("agent")]


def _told(daemon: Daemon, event: str) -> dict[str, Any]:
    found = [line for line in daemon.events() if line["event"] == event]
    assert len(found) == 1, daemon.log.read_text()
    return found[0]


@contextmanager
def _finishing(project: Project) -> Iterator[Daemon]:
    """The next daemon, which finishes SYM-1 as if nothing had been."""
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
        assert project.written_state("SYM-1") == "Done"
        assert project.branch_log("SYM-1") == ["Work"]
        yield daemon


def test_a_damaged_journal_is_set_aside_and_told_in_one_line(killed: Project) -> None:
    damage = b"\0\xff{" * 4_096
    for path in killed.state_dir.glob("journal.db*"):
        path.write_bytes(damage)
    with _finishing(killed) as daemon:
        line = _told(daemon, "journal_notice")
    assert "was damaged" in line["reason"]
    assert "delete it when you do not need it" in line["hint"]
    (aside,) = [
        path for path in killed.state_dir.glob("*.damaged-*") if path.name[-4:] not in {"-wal", "-shm"}
    ]
    assert aside.read_bytes() == damage, "nothing is destroyed"


@pytest.mark.slow
def test_a_journal_that_is_removed_ends_its_daemon_and_the_next_start_begins_a_new_one(
    project: Project,
) -> None:
    project.workflow()
    project.issue(
        "SYM-1",
        [
            {"write": "a.txt", "text": "a"},
            {"commit": "A"},
            {"tool": "board_move", "arguments": {"state": "Done"}},
        ],
    )
    with project.daemon() as daemon:
        daemon.wait_for("run_ended", issue_identifier="SYM-1")
        for file in project.state_dir.glob("journal.db*"):
            file.unlink()
        project.issue(
            "SYM-2",
            [
                {"write": "b.txt", "text": "b"},
                {"commit": "B"},
                {"tool": "board_move", "arguments": {"state": "Done"}},
            ],
        )
        daemon.wait_for("journal_degraded")
        assert daemon.end() == 1
        assert "was removed while the daemon was running" in daemon.log.read_text()
    assert not list(project.state_dir.glob("journal.db*"))
    project.once()
    assert project.state("SYM-2") == "Done"
    assert list(project.state_dir.glob("journal.db"))


def test_a_clock_that_was_set_back_between_two_lives_holds_nothing_up(project: Project) -> None:
    """As the successor sees it: all that is remembered is of a time that is yet to come."""
    project.workflow(agent={"max_retry_backoff_ms": 1_000})
    project.issue("SYM-1", [{"run": "test -e ../../mended"}, *WORK])
    with project.daemon() as first:
        first.wait_for("run_ended", outcome="failed")
        until(
            lambda: (
                [record["claim"]["kind"] for record in _records(project, "claims")] == ["retrying"] or None
            ),
            first.log.read_text,
        )
        first.signal(signal.SIGKILL)
        first.end()
    moments = ("due_wall_ms", "since_wall_ms", "started_wall_ms", "ended_wall_ms")

    def later(record: dict[str, Any]) -> None:
        record.update({key: record[key] + 90 * DAY_MS for key in moments if record.get(key)})

    assert _change(project, "claims", later) == 1
    assert _change(project, "runs", later) >= 1
    (project.root / "mended").touch()
    with _finishing(project):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_workspace_of_another_user_is_kept_and_the_others_go_on(killed: Project) -> None:
    workspace = killed.workspaces / "SYM-1"
    os.chown(workspace, 65_534, 65_534)
    killed.issue("SYM-2", WORK)
    with killed.daemon() as daemon:
        line = daemon.wait_for("run_ended", issue_identifier="SYM-1")
        until(lambda: killed.written_state("SYM-2") == "Done" or None, daemon.log.read_text)
        daemon.wait_for("issue_blocked", issue_identifier="SYM-1")
    assert "belongs to another user" in line["reason"]
    assert f"chown -R 0 {word(workspace)}" in line["hint"]
    assert (workspace / "work.txt").read_text() == "work\n"
    assert workspace.stat().st_uid == 65_534
    os.chown(workspace, 0, 0)
    with killed.daemon() as daemon:
        daemon.wait_for("serving")
        until(lambda: _goes_on(killed) or None, daemon.log.read_text)
        until(lambda: killed.written_state("SYM-1") == "Done" or None, daemon.log.read_text)


def _goes_on(project: Project) -> bool:
    """Unblocked; or resumed, as the daemon before ended between the block and its record."""
    return project.symphony("unblock", "SYM-1").returncode == 0 or project.written_state("SYM-1") == "Done"


@pytest.mark.parametrize(("number", "verb"), [(signal.SIGTERM, "fetch"), (signal.SIGINT, "read-tree")])
def test_a_stop_in_the_middle_of_making_a_workspace_leaves_nothing_behind(
    project: Project, number: signal.Signals, verb: str
) -> None:
    _slow_git(project, verb)
    project.workflow(agent={"drain_timeout_ms": 0})
    project.issue("SYM-1", WORK)
    with project.daemon() as daemon:
        until(lambda: (project.root / "reached").exists() or None, daemon.log.read_text)
        daemon.signal(number)
        assert daemon.end() == 0, daemon.log.read_text()
    assert LocalHost(instance=instance_of(project.state_dir)).find_survivors() == ()
    inner = project.workspaces / ".symphony"
    assert [path.name for name in ("staging", "records", "trash") for path in (inner / name).iterdir()] == []
    assert [path.name for path in project.workspaces.iterdir()] == [".symphony"]
    stay = [inner / "tenants.lock", *(inner / "mirrors").glob("*.lock")]
    assert sorted(project.workspaces.rglob("*.lock")) == sorted(stay)
    del project.environment["PATH"]
    with _finishing(project):
        pass


def _slow_git(project: Project, verb: str) -> None:
    """For the daemon a git that hangs when it is asked for this."""
    folder, reached = project.root / "bin", project.root / "reached"
    folder.mkdir()
    hang = f'touch "{reached}"; sleep 600'
    script = f'#!/bin/sh\ncase " $* " in *" {verb} "*) {hang};; esac\nexec "{shutil.which("git")}" "$@"\n'
    (folder / "git").write_text(script)
    (folder / "git").chmod(0o755)
    project.environment["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"

"""The recipes of docs/operations.md, run as they stand there."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from harness.project import Project, until

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
BACKUP, RESTORE = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def blocked(tmp_path: Path) -> Project:
    """A project with an issue whose agent asks a person."""
    project = Project(root=tmp_path).create()
    project.workflow()
    project.issue("SYM-1", [{"ask_input": "Which colour?"}])
    return project


def _shell(project: Project, script: str) -> None:
    python = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    places = {"STATE": str(project.state_dir), "BACKUP": str(project.root / "a backup")}
    done = subprocess.run(
        ["sh", "-ec", script],
        cwd=project.repo,
        env={**project.env(), **python, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_backup_of_a_running_daemon_brings_back_what_it_remembered(blocked: Project) -> None:
    with blocked.daemon() as daemon:
        daemon.wait_for("issue_blocked")
        until(lambda: True if _claims(blocked.state_dir / "journal.db") else None, daemon.log.read_text)
        skill = blocked.write("style.md", "---\nname: style\ndescription: Style.\n---\n")
        assert blocked.symphony("library", "add", str(skill)).returncode == 0
        _shell(blocked, BACKUP)
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    copy = blocked.root / "a backup" / "journal.db"
    assert copy.stat().st_mode & 0o077 == 0, "issues and answers are nobody else's business"
    for name in ("journal", "library"):
        for path in blocked.state_dir.glob(f"{name}.db*"):
            path.write_bytes(b"damage")
    _shell(blocked, RESTORE)
    assert blocked.symphony("library", "show", "style").returncode == 0
    explained = blocked.symphony("explain", "SYM-1")
    assert "the agent asks: Which colour?" in explained.stdout, explained.stderr
    with blocked.daemon() as daemon:
        daemon.wait_for("serving")
        assert not [line for line in daemon.events() if line["event"].startswith("journal_")]
        assert not [line for line in daemon.events() if line["event"] == "run_started"]


def _claims(journal: Path) -> list[tuple[str]]:
    with closing(sqlite3.connect(journal)) as reader:
        return reader.execute("SELECT record FROM claims WHERE record LIKE '%blocked%'").fetchall()


def test_a_drain_is_waited_for_and_the_next_daemon_goes_on(blocked: Project) -> None:
    """What the page says of an upgrade: what waits for a person waits on with the next daemon."""
    with blocked.daemon() as daemon:
        daemon.wait_for("issue_blocked")
        done = blocked.symphony("drain", "--wait")
        assert done.returncode == 0, done.stderr
        assert daemon.end() == 0
    assert blocked.symphony("check").returncode == 0
    with blocked.daemon() as daemon:
        daemon.wait_for("serving")
        assert "Which colour?" in blocked.symphony("explain", "SYM-1").stdout

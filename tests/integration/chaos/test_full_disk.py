"""The disk of the state directory is full in mid-work: work goes on, and is remembered afterwards."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from harness.project import SYMPHONY, Daemon, Project, until
from harness.real import require_own_disk
from symphony.journal.reader import checkup

pytestmark = pytest.mark.slow

WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]
_MOUNT = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
_APART = ["unshare", "--map-root-user", "--mount"]


@contextmanager
def on_a_small_disk(project: Project) -> Iterator[tuple[Daemon, Path]]:
    """A daemon whose state directory is a disk of one megabyte, and the directory as we can see it."""
    require_own_disk()
    (project.root / "home").mkdir(exist_ok=True)
    project.state_dir.mkdir()
    log = project.root / "daemon.log"
    command = [*SYMPHONY, "run", "--log-format", "json"]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*_APART, "sh", "-c", _MOUNT, str(project.state_dir), *command],
            cwd=project.repo,
            env=project.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sink,
        )
    daemon = Daemon(process=process, log=log)
    try:
        daemon.wait_for("serving")
        seen = os.open(f"/proc/{process.pid}/root{project.state_dir}", os.O_DIRECTORY)  # keeps the disk there
        try:
            yield daemon, Path(f"/proc/self/fd/{seen}")
        finally:
            os.close(seen)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def fill(path: Path) -> None:
    """Take all the room there is."""
    with path.open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(b"\0" * 4_096):
            pass


def test_a_full_disk_costs_a_warning_and_not_the_work(tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow()
    with on_a_small_disk(project) as (daemon, state):
        fill(state / "ballast")
        project.issue("SYM-1", WORK)
        degraded = daemon.wait_for("journal_degraded")
        assert "the disk is full" in degraded["reason"]
        assert degraded["hint"]
        until(lambda: project.written_state("SYM-1") == "Done" or None, daemon.log.read_text)
        daemon.wait_for("workspace_removed")
        assert project.branch_log("SYM-1") == ["Work"]
        (state / "ballast").unlink()
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0, daemon.log.read_text()
        copy = tmp_path / "copy"
        copy.mkdir()
        for path in state.glob("journal.db*"):
            (copy / path.name).write_bytes(path.read_bytes())
        kept = checkup(copy / "journal.db")
        assert kept.failure is None
        assert kept.runs == 1, "what memory held is written as soon as there is room"

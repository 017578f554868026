"""The disk of the local repository is full when a branch comes: the work is safe, the branch comes later."""

import subprocess
from pathlib import Path

import pytest

from harness.project import SYMPHONY, Daemon, Project, until
from harness.real import require_own_disk

pytestmark = pytest.mark.slow

_MOUNT = """
cp -a "$0" "$0.before" && mount -t tmpfs -o size=1m none "$0" && cp -a "$0.before/." "$0" && exec "$@"
"""


def test_a_branch_that_finds_a_full_disk_comes_when_there_is_room(tmp_path: Path) -> None:
    require_own_disk()
    project = Project(root=tmp_path / "place").create()
    project.workflow()
    project.issue(
        "SYM-1",
        [
            {"run": "head -c 3000000 /dev/urandom > large.bin"},
            {"commit": "Large"},
            {"tool": "board_move", "arguments": {"state": "Done"}},
        ],
    )
    (project.root / "home").mkdir()
    objects, log = project.repo / ".git" / "objects", project.root / "daemon.log"
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(objects), *SYMPHONY]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, "run", "--log-format", "json"],
            cwd=project.repo,
            env=project.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sink,
        )
    daemon = Daemon(process=process, log=log)
    try:
        told = daemon.wait_for("branch_not_placed", branch="symphony/SYM-1")
        inside = ["nsenter", "--user", "--preserve-credentials", "--mount", "--target", str(process.pid)]
        subprocess.run([*inside, "mount", "-o", "remount,size=50m", str(objects)], check=True)
        branch = project.repo / ".git" / "refs" / "heads" / "symphony" / "SYM-1"
        until(lambda: branch.exists() or None, log.read_text)
        whole = ["git", "-C", str(project.repo), "fsck", "--connectivity-only", branch.read_text().strip()]
        subprocess.run([*inside, *whole], check=True)
        assert "No space left" in told["reason"]
        assert told["hint"]
    finally:
        process.kill()
        process.wait()

"""Disks that are full, limited, or turn read-only: memory serves, with a reason, and nothing is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.real import require_own_disk


def child(command: list[str]) -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def on_a_disk_of_its_own(what: str, place: Path) -> list[dict[str, Any]]:
    """Run the child where the directory is a disk of one megabyte that nobody else sees."""
    require_own_disk()
    script = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
    python = [sys.executable, "-m", "harness.journal_child", what, str(place / "journal.db")]
    return child(["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(place), *python])


def check_full_and_back(told: list[dict[str, Any]]) -> None:
    memory, back = told
    assert memory["state"] == "memory"
    assert "cannot be used" in memory["message"]
    assert "disk" in memory["hint"]
    assert back == {
        "state": "ok", "notices": [], "claims": ["id-1", "id-2"], "live": ["r-1"], "last": "message 9999"
    }  # fmt: skip


def test_a_file_that_may_not_grow_is_written_once_it_may(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    check_full_and_back(child([sys.executable, "-m", "harness.journal_child", "limited", str(path)]))


def test_a_full_disk_is_written_once_there_is_room(tmp_path: Path) -> None:
    told = on_a_disk_of_its_own("full", tmp_path)
    check_full_and_back(told)
    assert "the disk is full" in told[0]["message"]


def test_what_became_read_only_is_still_read(tmp_path: Path) -> None:
    read, memory = on_a_disk_of_its_own("readonly", tmp_path)
    assert read == {"claims": ["id-1"]}
    assert memory["state"] == "memory"
    assert "cannot be" in memory["message"]

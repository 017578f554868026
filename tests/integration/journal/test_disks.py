"""Disks that are full, limited, or turn read-only: memory serves, with a reason, and nothing is lost."""

import sys
from pathlib import Path
from typing import Any

import pytest

from harness.small_disk import on_a_small_disk, told_by

CHILD = "harness.journal_child"


def check_full_and_back(told: list[dict[str, Any]]) -> None:
    memory, back = told
    assert memory["state"] == "memory"
    assert "cannot be used" in memory["message"]
    assert "disk" in memory["hint"]
    assert back == {
        "state": "ok", "notices": [], "claims": ["id-1", "id-2"], "live": ["r-1"], "last": "message 9999"
    }  # fmt: skip


@pytest.mark.slow
def test_a_file_that_may_not_grow_is_written_once_it_may(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    check_full_and_back(told_by([sys.executable, "-m", CHILD, "limited", str(path)]))


def test_a_full_disk_is_written_once_there_is_room(tmp_path: Path) -> None:
    told = on_a_small_disk(tmp_path, CHILD, "full", str(tmp_path / "journal.db"))
    check_full_and_back(told)
    assert "the disk is full" in told[0]["message"]


def test_what_became_read_only_is_still_read(tmp_path: Path) -> None:
    read, memory = on_a_small_disk(tmp_path, CHILD, "readonly", str(tmp_path / "journal.db"))
    assert read == {"claims": ["id-1"]}
    assert memory["state"] == "memory"
    assert "cannot be" in memory["message"]

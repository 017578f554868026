from pathlib import Path
from typing import Any

import pytest

from harness.project import Project, scripted

ABOVE_EVERY_PROCESS = 2**22
WORK: list[dict[str, Any]] = [
    {"write": "a", "text": "a"},
    {"commit": "A"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


@pytest.mark.parametrize(
    ("command", "is_thread"),
    [
        (scripted(), True),
        (scripted("--ignore-sigterm"), False),
        (scripted("--garbage", "--split-lines"), True),
        (f"{scripted()} | cat", False),
    ],
    ids=["plain", "misbehaves as a process", "misbehaves in words", "behind a pipe"],
)
def test_a_scripted_agent_that_needs_no_process_is_a_thread(
    tmp_path: Path, command: str, *, is_thread: bool
) -> None:
    project = Project(root=tmp_path).create()
    project.workflow(command=command)
    project.issue("SYM-1", WORK)
    done = project.once()
    assert done.returncode == 0, done.stderr
    assert (done.wait_for("turn_started")["pid"] >= ABOVE_EVERY_PROCESS) == is_thread
    assert project.branch_log("SYM-1") == ["A"]

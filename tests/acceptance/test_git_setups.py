"""Promise: however git is set up on a machine and in a repository, work arrives, or the reason is told."""

from pathlib import Path
from typing import Any

import pytest

from harness.project import Project

HAND_OVER = {"tool": "board_move", "arguments": {"state": "Human Review"}}
WORK: list[dict[str, Any]] = [{"write": "a.txt", "text": "a"}, {"commit": "A"}, HAND_OVER]

DEFAULTS = """\
[safe]
\tbareRepository = explicit
[init]
\tdefaultObjectFormat = sha256
\tdefaultRefFormat = reftable
[transfer]
\tfsckObjects = true
[protocol "file"]
\tallow = never
[remote "origin"]
\turl = /nowhere
"""


@pytest.fixture
def home(project: Project) -> Path:
    """Where the person has settings of git."""
    path = project.root / "home"
    path.mkdir()
    return path


def test_defaults_of_a_person_do_not_reach_repositories_of_the_daemon(project: Project, home: Path) -> None:
    (home / ".gitconfig").write_text(DEFAULTS)
    project.environment |= {"GIT_DEFAULT_HASH": "sha256", "GIT_DEFAULT_REF_FORMAT": "reftable"}
    project.workflow()
    project.issue("SYM-1", WORK)

    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()

    assert project.branch_log("SYM-1") == ["A"]

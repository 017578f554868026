"""Wherever a daemon is killed while it carries out an approval, the next one finishes it: once, and whole."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.forks import CRASHING
from harness.project import Project, forks, scripted, until
from symphony.api.models import ReviewGiven
from symphony.cli.client import Client, connect
from symphony.cli.failures import CommandError
from symphony.daemon.state_dir import instance_of
from symphony.domain import FaultPoint
from symphony.processes.local import LocalHost

_WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]
_WAIT: list[dict[str, Any]] = [
    {"wait_for": "../../go-on"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """SYM-1 waits for a review; SYM-2 keeps the daemon from ending."""
    made = Project(root=tmp_path).create()
    (tmp_path / "home").mkdir()
    (tmp_path / "pids").mkdir()
    made.workflow(
        command=scripted("--pid-file", str(tmp_path / "pids")),
        tracker={"comment_on_delivery": False},
        agent={"skills": {"enabled": False}},
        review={"merge": True},
    )
    made.issue("SYM-1", _WORK)
    made.issue("SYM-2", _WAIT)
    yield made
    assert LocalHost(instance=instance_of(made.state_dir)).find_survivors() == ()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(FaultPoint.BEFORE_MERGE, marks=pytest.mark.slow),
        FaultPoint.AFTER_MERGE,
        pytest.param(FaultPoint.AFTER_COMMENT, marks=pytest.mark.slow),
        pytest.param(FaultPoint.BEFORE_MOVE, marks=pytest.mark.slow),
        pytest.param(FaultPoint.AFTER_MOVE, marks=pytest.mark.slow),
    ],
)
def test_an_approval_is_finished_after_a_kill(project: Project, point: FaultPoint) -> None:
    out = project.root / "crash.log"
    dying = forks().start(
        CRASHING,
        ["--at", point, "--", "WORKFLOW.md"],
        cwd=project.repo,
        env=project.env(),
        out=project.root / "crash.out",
        err=out,
    )
    client = until(lambda: _ready(project), out.read_text)
    before = project.git("rev-parse", "main")
    given = ReviewGiven(decision="approve", message="Good work", reviewer="lea")
    with pytest.raises(CommandError):  # it dies before it answers
        client.decide(given, "SYM-1")
    assert dying.wait(60) == -signal.SIGKILL
    (project.root / "go-on").touch()

    assert project.symphony("run", "--once").returncode == 0
    assert project.symphony("run", "--once").returncode == 0

    assert project.written_state("SYM-1") == "Done"
    assert project.git("rev-parse", "main") == project.git("rev-parse", "symphony/SYM-1")
    assert project.git("rev-list", "--count", f"{before}..main") == "1"
    assert len(project.comments("SYM-1", kind="person")) == 1
    assert project.git("status", "--porcelain", "--untracked-files=no") == ""


def _ready(project: Project) -> Client | None:
    """A client, once the work was shown as ready for a review."""
    with suppress(CommandError):  # it still starts
        client = connect(project.repo / "WORKFLOW.md", project.env())
        if client is not None and any(row.issue_identifier == "SYM-1" for row in client.state().ready):
            shown = client.review("SYM-1", reviewer="lea", since=None)
            return client if shown is not None and shown.approve.allowed else None
    return None

"""A daemon whose user may start no more processes and threads goes on when there is room again."""

import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from harness.other_user import as_ordinary_user
from harness.project import Daemon, Project, until

_ISSUES = [f"SYM-{number}" for number in range(1, 7)]
_LOST = {"run_crashed", "effect_crashed", "decision_failed", "tracker_crashed"}


@contextmanager
def _no_room(project: Project, daemon: Daemon) -> Iterator[None]:
    """Its user may have no further process or thread, as the limits of the daemon and its supervisor say."""
    main = psutil.Process(daemon.process.pid)
    pids = [main.pid, *(child.pid for child in main.children())]

    def limit(most: int) -> None:
        for pid in pids:
            command = ["prlimit", "--pid", str(pid), f"--nproc={'unlimited' if most < 0 else most}:"]
            subprocess.run(command, check=True, user=project.user, group=project.user)

    limit(1)
    yield
    limit(resource.getrlimit(resource.RLIMIT_NPROC)[0])


@pytest.mark.slow
def test_what_cannot_be_started_fails_alone_and_is_tried_again(reachable: Path) -> None:
    project = Project(root=reachable / "place").create()
    for name in _ISSUES:
        project.issue(
            name,
            [
                {"write": "work.txt", "text": "x\n"},
                {"sleep_ms": 300},
                {"commit": "Work"},
                {"tool": "board_move", "arguments": {"state": "Done"}},
            ],
        )
    agent = {"max_concurrent_agents": 3, "max_retry_backoff_ms": 500}
    project.workflow(agent=agent)
    project.workflow(command=as_ordinary_user(project), agent=agent)

    with project.daemon() as daemon:
        daemon.wait_for("run_started")
        with _no_room(project, daemon):
            failed = daemon.wait_for("run_ended", outcome="failed")
            daemon.wait_for("thread_awaited")
        until(
            lambda: all(project.written_state(name) == "Done" for name in _ISSUES) or None,
            lambda: daemon.log.read_text()[-5_000:],
        )
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0

    assert "temporarily unavailable" in failed["reason"]
    assert _LOST.isdisjoint(line["event"] for line in daemon.events())
    branches = project.git("-c", "safe.directory=*", "branch", "--format=%(refname:short) %(subject)")
    assert {f"symphony/{name} Work" for name in _ISSUES} <= {*branches.splitlines()}

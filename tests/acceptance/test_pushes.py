"""Promise: a push neither holds a run nor gets lost, and a branch is only named where it is."""

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.project import Project, until

REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}
WORK: list[dict[str, Any]] = [{"write": "a", "text": "a\nb\n"}, {"commit": "A"}, REVIEW]
HANGS = "#!/bin/sh\necho $$ >> pids\nsleep 3600\n"
HANGS_LATER = """\
#!/bin/sh
echo $$ >> pids
while ! test -e silent; do echo at work >&2; sleep 0.3; done
sleep 3600
"""
COUNTS = "#!/bin/sh\necho push >> pushes\n"


@pytest.fixture
def origin(project: Project) -> Path:
    """The remote of the project's repository, with a hook that hangs."""
    path = project.root / "origin.git"
    project.git("clone", "--quiet", "--bare", "--template=", str(project.repo), str(path), cwd=project.root)
    project.git("remote", "add", "origin", str(path))
    hooked(path, "pre-receive", HANGS)
    return path


def hooked(origin: Path, name: str, script: str) -> None:
    hook = origin / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(script)
    hook.chmod(0o755)


def hanging(origin: Path, number: int = 1) -> int:
    """The process of the hook that hangs as the nth one."""

    def found() -> int | None:
        lines = (origin / "pids").read_text().split() if (origin / "pids").exists() else []
        return int(lines[number - 1]) if len(lines) >= number else None

    return until(found, lambda: "no hook began")


def gone(pid: int) -> bool:
    return bool(until(lambda: not psutil.pid_exists(pid) or None, lambda: f"{pid} is alive"))


def document(project: Project, *arguments: str) -> dict[str, Any]:
    done = project.symphony(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def head(project: Project, where: Path) -> str:
    return project.git("rev-parse", "symphony/SYM-1", cwd=where)


def test_a_push_that_hangs_holds_no_slot_and_is_ended_told_and_made_up_for(
    project: Project, origin: Path
) -> None:
    project.workflow(
        workspace={"push": "origin", "push_stall_timeout_ms": 6_000}, agent={"max_concurrent_agents": 1}
    )
    hooked(origin, "pre-receive", HANGS_LATER)
    project.issue("SYM-1", WORK)
    with project.daemon() as daemon:
        hook = hanging(origin)
        daemon.wait_for("work_ready", issue_identifier="SYM-1")
        state = document(project, "status")
        assert state["slots"]["used"] == 0
        assert [row["issue_identifier"] for row in state["pushes"]] == ["SYM-1"]
        assert [row["delivered"]["push"] for row in state["ready"]] == ["pushing"]
        assert "being pushed" in project.symphony("status").stdout
        assert "being pushed" in document(project, "explain", "SYM-1")["explanation"]["answer"]
        project.issue("SYM-2", [{"ask_input": "Which colour?"}])
        daemon.wait_for("run_started", issue_identifier="SYM-2")
        assert not any(event["event"] == "push_failed" for event in daemon.events())

        (origin / "silent").touch()
        failed = daemon.wait_for("push_failed", issue_identifier="SYM-1")
        assert "no headway for 6 s" in failed["reason"]
        assert gone(hook)
        (row,) = document(project, "status")["failed_pushes"]
        assert row["place"] == "origin"
        until(lambda: "no headway" in project.comments("SYM-1")[0] or None, daemon.log.read_text)

    hooked(origin, "pre-receive", COUNTS)
    with project.daemon() as daemon:
        daemon.wait_for("branch_pushed", issue_identifier="SYM-1")
    assert head(project, origin) == head(project, project.repo)


@pytest.mark.slow
def test_a_push_that_hangs_outlasts_neither_sigterm_nor_kill_and_the_next_daemon_pushes_once(
    project: Project, origin: Path
) -> None:
    workspace = {"push": "origin", "push_stall_timeout_ms": 3_600_000}  # nothing else ends the push
    project.workflow(workspace=workspace, agent={"drain_timeout_ms": 1_500})
    project.issue("SYM-1", WORK)
    with project.daemon() as daemon:
        hook = hanging(origin)
        daemon.wait_for("work_ready", issue_identifier="SYM-1")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
        assert gone(hook)
    with project.daemon() as daemon:
        hook = hanging(origin, 2)
        daemon.kill_with_subreapers()
    (row,) = document(project, "status")["ready"]
    assert (row["issue_identifier"], row["delivered"]["push"]) == ("SYM-1", "waiting")

    hooked(origin, "pre-receive", COUNTS)
    with project.daemon() as daemon:
        daemon.wait_for("branch_pushed", issue_identifier="SYM-1")
        assert gone(hook)
    with project.daemon() as daemon:
        daemon.wait_for("serving")
    assert head(project, origin) == head(project, project.repo)
    assert (origin / "pushes").read_text().splitlines() == ["push"]


def test_a_branch_whose_name_is_taken_is_named_nowhere_as_there_and_comes_once_it_is_free(
    project: Project,
) -> None:
    project.git("branch", "symphony")
    project.workflow()
    project.issue("SYM-1", WORK)
    checked = json.loads(project.symphony("check", "--json").stdout)
    assert "branch_name_taken" in {problem["code"] for problem in checked["problems"]}

    done = project.symphony("run", "--once")

    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("SYM-1: ")]
    assert "on symphony/SYM-1" not in line
    (row,) = document(project, "status")["ready"]
    assert row["delivered"]["branch_failure"]["code"] == "branch_not_placed"
    told = document(project, "explain", "SYM-1")["explanation"]
    (comment,) = project.comments("SYM-1")
    for text in (comment, told["advice"], row["delivered"]["branch_failure"]["hint"]):
        assert "branch -m symphony old-symphony" in text
    assert "git fetch" in told["advice"]
    assert "is on the branch" not in comment + told["answer"]

    project.git("branch", "-m", "symphony", "old-symphony")
    with project.daemon() as daemon:
        daemon.wait_for("comment_posted", issue_identifier="SYM-1", outcome="edited")
        assert document(project, "status")["failed_pushes"] == []
    assert project.branch_log("SYM-1") == ["A"]
    assert "is on the branch `symphony/SYM-1`" in project.comments("SYM-1")[0]

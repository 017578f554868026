"""Wherever a daemon is killed, the next one finishes the issue: once, with one commit, no comment twice."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.crashes import AFTERWARDS, table
from harness.forks import CRASHING, SYMPHONY
from harness.project import DEADLINE_S, Project, forks, scripted
from symphony.daemon.state_dir import instance_of
from symphony.domain import FaultPoint
from symphony.processes.local import LocalHost

_DOCS = Path(__file__).parents[3] / "docs" / "RELIABILITY.md"
_BEGIN, _END = "<!-- crash-points:begin -->", "<!-- crash-points:end -->"
_WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]
_FAIL_ONCE = {"run": "test -e ../../tried || { touch ../../tried; exit 1; }"}
_RETRIED = {FaultPoint.RETRY_PUT, FaultPoint.RETRY_WRITTEN}
# A daemon that dies while it hands a notification over gives nothing.
_NOTES = """umask 077; cat >"$0/draft.$$" && test -s "$0/draft.$$" && mv "$0/draft.$$" "$0/note.$$" """
_MALFORMED = "---\nname: broken\n---\n# No description\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """One issue whose agent works, commits and moves it; the skill it meets is worth a comment.

    Whatever happens, no agent may be left.
    """
    made = Project(root=tmp_path).create()
    (tmp_path / "home").mkdir()
    (tmp_path / "pids").mkdir()
    made.write(".symphony/skills/broken/SKILL.md", _MALFORMED)
    made.commit("Add a skill that is not well")
    made.git("clone", "--quiet", "--bare", "--template=", str(made.repo), str(tmp_path / "origin.git"))
    made.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    hook = tmp_path / "origin.git" / "hooks" / "post-receive"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\ncat >> pushes\n")
    hook.chmod(0o755)
    made.workflow(
        notify=[
            {
                "name": "note",
                "kind": "command",
                "command": ["sh", "-c", _NOTES, str(tmp_path)],
                "gather_ms": 0,
            }
        ],
        command=scripted("--pid-file", str(tmp_path / "pids")),
        workspace={"push": "origin"},
        tracker={"on_start": "In Progress"},
        agents={"critic": {"kind": "codex", "command": scripted("--review", "true")}},
        verify={"commands": ["echo checked >>../../checked"], "reviewer": "critic"},
    )
    made.issue("SYM-1", _WORK)
    yield made
    assert LocalHost(instance=instance_of(made.state_dir)).find_survivors() == ()


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def crash(project: Project) -> Run:
    """A daemon that dies as it is told to."""
    return partial(_run, project, CRASHING)


@pytest.fixture
def symphony(project: Project) -> Run:
    """The command line."""
    return partial(_run, project, SYMPHONY)


def _run(project: Project, main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forks().run(
        main, arguments, cwd=project.repo, env=project.env(), output=project.root, timeout_s=DEADLINE_S
    )


def sessions(project: Project) -> int:
    """How many agents were started to work; those of the check before the first dispatch do not count."""
    facts = [json.loads(path.read_text()) for path in (project.root / "pids").glob("*.json")]
    return sum(one["role"] == "agent" and not one["run_id"].endswith("-preflight") for one in facts)


def notified(project: Project) -> list[str]:
    """The ids of the notifications that a target was given."""
    notes = [json.loads(path.read_text()) for path in project.root.glob("note.*")]
    return sorted(each["id"] for note in notes for each in note["notifications"])


_COMMENTED = frozenset({FaultPoint.BEFORE_COMMENT, FaultPoint.AFTER_COMMENT})
_WITH_JOBS = _COMMENTED | {
    FaultPoint.JOB_PUT,
    FaultPoint.JOB_WRITTEN,
    FaultPoint.BEFORE_MOVE,
    FaultPoint.AFTER_MOVE,
    FaultPoint.BEFORE_NOTIFICATION,
    FaultPoint.AFTER_NOTIFICATION,
    FaultPoint.JOB_DONE_PUT,
    FaultPoint.JOB_DONE_WRITTEN,
}
_BESIDE_THE_RUN = _WITH_JOBS | {FaultPoint.CLAIM_WRITTEN, FaultPoint.RETRY_WRITTEN}


# A point before the work, in it, at its end and after it; in the simulator the daemon dies at every one.
_SHARE = (FaultPoint.CLAIM_WRITTEN, FaultPoint.AFTER_NOTIFICATION, FaultPoint.TURN_ENDED)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if point in _SHARE else pytest.mark.slow)
        for point in FaultPoint
        if point not in {FaultPoint.BEFORE_MERGE, FaultPoint.AFTER_MERGE}  # see test_review_crashes.py
    ],
)
def test_a_daemon_that_dies_there_is_made_up_for(
    project: Project, crash: Run, symphony: Run, point: FaultPoint
) -> None:
    if point in _RETRIED:
        project.issue("SYM-1", [_FAIL_ONCE, *_WORK])
    died = crash("--at", point, "--", "WORKFLOW.md")
    assert died.returncode == -signal.SIGKILL, died.stderr
    before = sessions(project)

    done = symphony("run", "--once", "--log-format", "json")

    assert done.returncode == 0, done.stderr
    assert project.written_state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["Work"]
    assert (project.root / "checked").exists(), "its work was verified"
    pushes = (project.root / "origin.git" / "pushes").read_text().splitlines()
    assert [line.split()[1:] for line in pushes] == [
        [project.git("rev-parse", "symphony/SYM-1"), "refs/heads/symphony/SYM-1"]
    ], "it is pushed once"
    skills, deliveries = (len(project.comments("SYM-1", kind=kind)) for kind in ("skills", "delivery"))
    assert skills == 1
    started, expected = sessions(project) - before, AFTERWARDS[point].sessions
    done_before = point in _BESIDE_THE_RUN and started == 0
    assert deliveries in ({0, 1} if done_before else {1})
    assert len(project.comments("SYM-1")) == skills + deliveries, "no comment of another kind"
    ids = notified(project)
    assert len(set(ids)) == 1, "the skill that cannot be used"
    assert len(ids) in {1, 2}, "twice, by the same id, if the daemon died before it knew of the answer"
    assert not (project.workspaces / "SYM-1").exists()
    places = project.workspaces / ".symphony"
    assert [path.name for name in ("records", "trash") for path in (places / name).iterdir()] == []
    # Journal and comments are written beside the run, which on a busy machine may have done its work before.
    allowed = {0, expected} if point in _BESIDE_THE_RUN else {expected}
    assert started in allowed, done.stderr


_MENDED = "---\nname: broken\ndescription: Says how tests are written. Use it for every test.\n---\n# Tests\n"
_MENDS: list[dict[str, Any]] = [
    {"write": ".symphony/skills/broken/SKILL.md", "text": _MENDED},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


@pytest.mark.slow
@pytest.mark.parametrize("nth", [2, 3])
@pytest.mark.parametrize("point", sorted(_COMMENTED))
def test_the_comment_says_that_a_run_mended_its_skill_whenever_the_daemon_dies(
    project: Project, crash: Run, symphony: Run, point: FaultPoint, nth: int
) -> None:
    """The second and the third comment of a run tell of the delivery and of the skill, in either order."""
    project.issue("SYM-1", _MENDS)
    died = crash("--at", point, "--nth", str(nth), "--", "WORKFLOW.md")
    assert died.returncode == -signal.SIGKILL, died.stderr

    done = symphony("run", "--once", "--log-format", "json")

    assert done.returncode == 0, done.stderr
    assert project.branch_log("SYM-1") == ["Work"]
    [comment] = project.comments("SYM-1", kind="skills")
    assert "missing_description" not in comment


@pytest.mark.slow
def test_dying_again_and_again_at_the_same_point_changes_nothing(
    project: Project, crash: Run, symphony: Run
) -> None:
    for _ in range(3):
        died = crash("--at", FaultPoint.BEFORE_TOOL, "--", "WORKFLOW.md")
        assert died.returncode == -signal.SIGKILL, died.stderr
    assert symphony("run", "--once").returncode == 0
    assert project.branch_log("SYM-1") == ["Work"]
    assert len(project.comments("SYM-1", kind="skills")) == 1
    assert len(project.comments("SYM-1", kind="delivery")) == 1
    assert len(project.comments("SYM-1")) == 2


def test_the_table_in_the_docs_is_that_of_the_expectations() -> None:
    """`SYMPHONY_WRITE_DOCS=1` writes it."""
    text = _DOCS.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    wanted = f"{before}{_BEGIN}\n{table()}\n{_END}{after}"
    if os.environ.get("SYMPHONY_WRITE_DOCS"):
        _DOCS.write_text(wanted, encoding="utf-8")
    assert text == wanted, "write it anew with SYMPHONY_WRITE_DOCS=1"

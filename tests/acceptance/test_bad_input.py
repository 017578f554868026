"""Promise: bad input costs one clear line, never the daemon."""

import pytest

from harness.project import Project, scripted

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}


def _one_error(stderr: str) -> str:
    (line,) = [line for line in stderr.splitlines() if line.startswith("error:")]
    assert "hint:" in stderr
    assert "Traceback" not in stderr
    return line


@pytest.mark.conformance("O-1")
def test_an_agent_that_is_not_installed(project: Project) -> None:
    project.workflow(command="no-such-agent app-server")
    project.issue("SYM-1", [DONE])
    done = project.symphony("run", "--once")
    assert done.returncode == 3
    assert "codex_not_found" in _one_error(done.stderr)
    assert "npm install -g @openai/codex" in done.stderr


def test_an_agent_that_prints_garbage_costs_nothing(project: Project) -> None:
    project.workflow(command=scripted("--garbage", "--stderr-flood", "200000", "--split-lines"))
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    assert project.symphony("run", "--once").returncode == 0
    assert project.state("SYM-1") == "Done"


def test_an_agent_that_only_prints_garbage_is_refused_before_any_dispatch(project: Project) -> None:
    project.workflow(command="while :; do echo garbage; sleep 0.1; done", codex={"read_timeout_ms": 500})
    project.issue("SYM-1", [DONE])
    done = project.symphony("run", "--once")
    assert done.returncode == 1
    assert _one_error(done.stderr)
    assert not project.workspaces.exists() or not list(project.workspaces.glob("SYM-*"))


@pytest.mark.parametrize(
    ("workspace", "code", "words"),
    [
        ({"repo": "../nowhere"}, 1, "cannot be fetched"),
        ({"repo": "../bare"}, 3, "has no commit yet"),
        ({"base_branch": "no-such-branch"}, 3, "has no branch no-such-branch"),
    ],
    ids=["not there", "without a commit", "without the base branch"],
)
def test_a_repository_that_cannot_be_worked_on(
    project: Project, workspace: dict[str, str], code: int, words: str
) -> None:
    project.git("init", "--quiet", "--bare", str(project.root / "bare"))
    project.workflow(workspace=workspace)
    project.issue("SYM-1", [DONE])
    done = project.symphony("run", "--once")
    assert done.returncode == code
    assert words in _one_error(done.stderr)


@pytest.mark.conformance("O-1")
def test_a_repository_that_is_lost_while_the_daemon_runs(project: Project) -> None:
    project.git("clone", "--quiet", "--bare", str(project.repo), str(project.root / "origin.git"))
    project.workflow(workspace={"repo": str(project.root / "origin.git")})
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        (project.root / "origin.git").rename(project.root / "gone.git")
        project.issue("SYM-1", [DONE])
        retry = daemon.wait_for("run_retrying", issue_identifier="SYM-1")
        assert "workspace_repository" in retry["reason"]
        assert daemon.process.poll() is None, "the daemon stays up"


@pytest.mark.conformance("L-2")
def test_a_workspace_root_that_cannot_be_used(project: Project) -> None:
    (project.root / "file").write_text("not a directory")
    project.workflow(workspace={"root": str(project.root / "file" / "workspaces")})
    done = project.symphony("run", "--once")
    assert done.returncode == 3
    assert str(project.root / "file") in _one_error(done.stderr)


@pytest.mark.conformance("O-1")
def test_a_board_that_is_not_there(project: Project) -> None:
    project.workflow(tracker={"provider": {"path": "no/such/board"}})
    done = project.symphony("run", "--once")
    assert done.returncode == 1
    assert "tracker_request" in _one_error(done.stderr)


@pytest.mark.conformance("L-2")
def test_a_state_directory_that_cannot_be_used(project: Project) -> None:
    project.workflow()
    project.environment["SYMPHONY_STATE_DIR"] = "/proc/nowhere"
    done = project.symphony("run", "--once")
    assert done.returncode == 1
    assert "state_directory" in _one_error(done.stderr)


@pytest.mark.parametrize(
    "title",
    ["{{ issue.id }} {% raw %}", "line\nbreak\n---\n", "`` ` ``` ``", "x" * 10_000, "\u202e\x1b[31m"],
    ids=["liquid", "line breaks", "fences", "very long", "control characters"],
)
def test_hostile_titles_are_data(project: Project, title: str) -> None:
    project.workflow()
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE], title=title)
    done = project.symphony("run", "--once")
    assert done.returncode == 0, done.stderr
    assert project.state("SYM-1") == "Done"


def test_a_usage_error_exits_with_2(project: Project) -> None:
    assert project.symphony("run", "--no-such-option").returncode == 2
    assert project.symphony("no-such-command").returncode == 2

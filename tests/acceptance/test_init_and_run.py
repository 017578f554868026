"""Promise: `symphony init` never overwrites, and `symphony run` works right after it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from contract.github import OWNER, REPO, SECRET, GithubDesk
from contract.served import served
from harness.project import Project, scripted
from harness.real import require_bubblewrap

FILES = (
    "WORKFLOW.md",
    ".symphony/issues/SYM-1.md",
    ".symphony/skills/example/SKILL.md",
    ".symphony/.gitignore",
)


@pytest.fixture
def temporary(place: Path) -> Path:
    """A temporary directory without the workspaces of others, whose issues `symphony init` would count."""
    temporary = place / "temporary"
    temporary.mkdir()
    return temporary


@pytest.fixture
def project(project: Project, temporary: Path) -> Project:
    project.environment["TMPDIR"] = str(temporary)
    return project


def test_init_writes_commented_files_and_names_the_next_command(project: Project) -> None:
    done = project.symphony("init")
    assert done.returncode == 0, done.stderr
    for name in FILES:
        assert (project.repo / name).is_file()
        assert f"created  {name}" in done.stdout
    assert "symphony run" in done.stdout
    assert "delete me" in (project.repo / FILES[2]).read_text()
    assert "# " in (project.repo / FILES[0]).read_text(), "the workflow is commented"
    told = (project.repo / FILES[0]).read_text()
    assert "  root: $SYMPHONY_STATE_DIR/workspaces " in told, "not in the temp directory"
    assert str(project.root) not in told, "nothing in a committed file depends on the checkout"


def test_init_works_from_a_subdirectory_and_keeps_what_is_there(project: Project) -> None:
    mine = project.write("WORKFLOW.md", "mine")
    project.write("sub/file", "x")
    done = project.symphony("-C", "sub", "init")
    assert done.returncode == 0
    assert mine.read_text() == "mine"
    assert "kept     WORKFLOW.md" in done.stdout
    assert (project.repo / FILES[1]).is_file()
    again = project.symphony("init")
    assert again.stdout.count("kept") == len(FILES)


def _next_steps(stdout: str) -> list[str]:
    return [line.strip() for line in stdout.split("Next:\n")[1].splitlines()]


def test_its_next_steps_can_be_followed_literally(place: Path, temporary: Path) -> None:
    odd = Project(root=place / "Müllers $HOME & Söhne", environment={"TMPDIR": str(temporary)}).create()
    (odd.repo / ".gitignore").unlink()
    sub = odd.repo / "sub"
    sub.mkdir()
    *steps, check, run, watch = _next_steps(odd.symphony("init", cwd=sub).stdout)
    assert (check.split("  ")[0], run) == ("symphony check", "symphony run")
    assert watch.startswith("symphony status --watch ")
    shown = [step for step in steps if not step.startswith("npm ")]
    assert (len(steps) > len(shown)) == (shutil.which("codex") is None)
    script = "\n".join(["set -e", *shown, "pwd"])
    done = subprocess.run(
        ["bash", "-c", script], cwd=sub, env=odd.env(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(odd.repo)
    committed = odd.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    assert {"WORKFLOW.md", ".symphony/skills/example/SKILL.md"} <= set(committed)
    assert not [name for name in committed if name.startswith(".symphony/issues")], "one board, not many"
    again = _next_steps(odd.symphony("init").stdout)
    assert [step for step in again if not step.startswith("npm ")] == [check, run, watch]


def test_it_names_no_directory_where_one_is_there_already(project: Project) -> None:
    steps = _next_steps(project.symphony("init").stdout)
    assert not [step for step in steps if step.startswith("cd ")]


@pytest.mark.parametrize("state", ["detached", "on another branch"])
def test_run_works_whatever_is_checked_out(project: Project, state: str) -> None:
    project.symphony("init")
    workflow = project.repo / "WORKFLOW.md"
    workflow.write_text(workflow.read_text().replace("codex app-server", json.dumps(scripted())))
    project.commit("Add Symphony")
    project.git("checkout", "--quiet", *(["--detach"] if state == "detached" else ["-b", "other"]))
    move = {"tool": "board_move", "arguments": {"state": "Human Review"}}
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, move])
    done = project.once()
    assert done.returncode == 0, done.stderr
    assert project.branch_log("SYM-1") == ["A"]


def test_outside_a_repository_init_says_what_to_do(project: Project) -> None:
    bare = project.root / "bare"
    bare.mkdir()
    done = project.symphony("-C", str(bare), "init")
    assert done.returncode == 1
    assert "is not in a git repository" in done.stderr
    assert "hint: run `git init`" in done.stderr


def test_run_once_works_with_what_init_wrote(project: Project) -> None:
    project.symphony("init")
    workflow = project.repo / "WORKFLOW.md"
    workflow.write_text(workflow.read_text().replace("codex app-server", json.dumps(scripted())))
    project.issue(
        "SYM-1",
        [
            {"write": "HELLO.md", "text": "Hello.\n"},
            {"commit": "Say hello"},
            {"tool": "board_move", "arguments": {"state": "Human Review"}},
        ],
    )
    project.commit("Add Symphony")
    done = project.symphony("run", "--once")
    assert done.returncode == 0, done.stderr
    assert project.state("SYM-1") == "Human Review"
    assert project.branch_log("SYM-1") == ["Say hello"]
    assert not (project.repo / "HELLO.md").exists(), "the work is on its branch"


def test_run_once_with_nothing_to_do_ends_at_once(project: Project) -> None:
    project.workflow()
    done = project.once()
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["codex", "command"])
def test_off_the_board_and_onto_github_in_one_command(project: Project, agent: str) -> None:
    """An agent moves its issue by a tool; one that takes no tools is done when it changes nothing more."""
    if agent == "command":  # which `symphony init` confines
        require_bubblewrap()
    desk, options = GithubDesk(), ["--agent", agent]
    steps = [
        {"write": "HELLO.md", "text": "Hello.\n"},
        {"commit": "Say hello"},
        {"tool": "issue_comment", "arguments": {"body": "Please look."}},
        {"tool": "issue_move", "arguments": {"state": "Human Review"}},
    ]
    desk.put(7, description=f"```scripted\n{json.dumps([steps])}\n```")
    if agent == "command":
        options += [
            "--command",
            "test -e HELLO.md || (echo > HELLO.md; git add .; git commit -m 'Say hello')",
        ]
    with served(desk) as provider:
        url = provider["api_url"].removesuffix("/api/v3")
        done = project.symphony(
            "init", "--tracker", "github", "--repo", f"{OWNER}/{REPO}", "--url", url, *options
        )
        assert done.returncode == 0, done.stderr
        workflow = project.repo / "WORKFLOW.md"
        workflow.write_text(workflow.read_text().replace("codex app-server", json.dumps(scripted())))
        project.commit("Add Symphony")
        project.environment["GITHUB_TOKEN"] = SECRET
        checked = project.symphony("check")
        assert checked.returncode == 0, checked.stdout
        ran = project.once()
    assert desk.vendor.records[7].labels == ["status:human-review"], ran.stderr
    assert project.branch_log("GH-7") == ["Say hello"]
    assert any("Please look." in comment for comment in desk.comments(7)) == (agent == "codex")
    assert SECRET not in ran.stderr + workflow.read_text()

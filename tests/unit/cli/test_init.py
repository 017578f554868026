import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from symphony.cli import main
from symphony.cli.serving import open_store
from symphony.skills import SkillOptions, Validation, load

FILES = ("WORKFLOW.md", ".symphony/issues/SYM-1.md", ".symphony/skills/example/SKILL.md")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty git repository; state goes beside it."""
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "repo"
    git(tmp_path, "init", "--quiet", "--initial-branch=main", "repo")
    return path


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True)


def init(directory: Path) -> Result:
    return CliRunner().invoke(main, ["init", "--dir", str(directory)])


def test_it_writes_what_a_repository_needs_and_keeps_what_is_there(repo: Path) -> None:
    first = init(repo)
    assert first.exit_code == 0, first.stderr
    assert [line for line in first.stdout.splitlines() if line.startswith("created")] == [
        f"created  {name}" for name in FILES
    ]
    before = [(repo / name).read_bytes() for name in FILES]
    second = init(repo)
    assert [line for line in second.stdout.splitlines() if line.startswith("kept")] == [
        f"kept     {name}" for name in FILES
    ]
    assert [(repo / name).read_bytes() for name in FILES] == before


def test_case_83_an_example_skill_that_was_edited_is_never_overwritten(repo: Path) -> None:
    init(repo)
    skill = repo / ".symphony/skills/example/SKILL.md"
    assert "delete me" in skill.read_text()
    (found,) = load(repo, SkillOptions(validation=Validation.STRICT)).skills
    assert "delete me" in found.description
    skill.write_text("edited")
    assert init(repo).exit_code == 0
    assert skill.read_text() == "edited"


@pytest.mark.parametrize(
    "branch", ["main", "feature/x", "1.0", "2024", "true", "NULL", "wip#7", "a,b", "ünï"]
)
def test_the_workflow_is_valid_and_names_the_branch_of_today(repo: Path, branch: str) -> None:
    git(repo, "symbolic-ref", "HEAD", f"refs/heads/{branch}")
    assert init(repo).exit_code == 0
    assert open_store(repo / "WORKFLOW.md", {}).current().settings.workspace.base_branch == branch


@pytest.mark.parametrize("name", ["plain", "with space", "a: b # c", 'q"uote', "-dash", "50%"])
def test_workspaces_go_below_the_state_directory_whatever_it_is_called(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / name))
    assert init(repo).exit_code == 0
    settings = open_store(repo / "WORKFLOW.md", {}).current().settings
    assert settings.workspace.root == tmp_path / name / "workspaces"


def test_below_the_home_directory_the_workflow_says_so_with_a_tilde(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert init(repo).exit_code == 0
    assert "root: ~/state/workspaces\n" in (repo / "WORKFLOW.md").read_text()


def test_a_detached_head_gives_the_usual_name(repo: Path) -> None:
    git(repo, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x")
    git(repo, "checkout", "--quiet", "--detach")
    assert init(repo).exit_code == 0
    assert "base_branch: main\n" in (repo / "WORKFLOW.md").read_text()


def test_the_next_command_can_be_pasted(tmp_path: Path, repo: Path) -> None:
    odd = tmp_path / "my project"
    repo.rename(odd)
    assert f"  cd '{odd}'\n" in init(odd).stdout


def test_what_to_do_next_fits_what_was_done(repo: Path) -> None:
    add = "git add WORKFLOW.md .symphony/skills && git commit -m 'Add Symphony'"
    first = init(repo).stdout
    assert add in first
    assert (
        first.index("symphony check ")
        < first.index("symphony run\n")
        < first.index("symphony status --watch")
    )
    git(repo, "add", "WORKFLOW.md", ".symphony/skills")
    assert add in init(repo).stdout
    git(repo, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "Add Symphony")
    again = init(repo).stdout
    assert "git add" not in again
    assert "symphony run\n" in again
    (repo / "WORKFLOW.md").write_text("changed")
    assert add in init(repo).stdout


def test_how_to_get_the_agent_is_said_only_where_it_is_absent(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    codex = programs / "codex"
    codex.write_text("#!/bin/sh\n")
    codex.chmod(0o755)
    assert "npm install" not in init(repo).stdout
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "npm install -g @openai/codex" in init(repo).stdout


def test_a_file_in_the_way_of_a_folder_is_told(repo: Path) -> None:
    (repo / ".symphony").mkdir()
    (repo / ".symphony" / "issues").write_text("in the way")
    done = init(repo)
    assert done.exit_code == 1
    assert "SYM-1.md cannot be written" in done.stderr
    assert "hint:" in done.stderr
    assert (repo / ".symphony" / "issues").read_text() == "in the way"


def test_a_link_that_leads_nowhere_is_kept(repo: Path) -> None:
    (repo / "WORKFLOW.md").symlink_to("nowhere")
    assert "kept     WORKFLOW.md" in init(repo).stdout
    assert not (repo / "nowhere").exists()


def test_outside_a_repository_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    done = init(tmp_path)
    assert done.exit_code == 1
    assert "is not in a git repository" in done.stderr


def test_without_git_it_says_what_to_install(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = init(repo)
    assert (done.exit_code, done.stderr) == (
        1,
        "error: git is not installed\nhint: install git, then run the command again\n",
    )

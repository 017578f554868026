import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from symphony.cli.main import main
from symphony.daemon.admission import open_store
from symphony.daemon.state_dir import locate
from symphony.skills import SkillOptions, Validation, load

FILES = (
    "WORKFLOW.md",
    ".symphony/.gitignore",
    ".symphony/issues/SYM-1.md",
    ".symphony/skills/example/SKILL.md",
)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty git repository; state goes beside it."""
    monkeypatch.chdir(tmp_path)  # which is back when `-C` has led elsewhere
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "repo"
    git(tmp_path, "init", "--quiet", "--initial-branch=main", "repo")
    return path


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True)


def init(directory: Path) -> Result:
    return CliRunner().invoke(main, ["-C", str(directory), "init"])


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


def test_each_checkout_has_workspaces_of_its_own_below_its_state_directory(
    repo: Path, tmp_path: Path
) -> None:
    init(repo)
    git(repo, "add", "WORKFLOW.md")
    git(repo, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "x")
    git(repo, "worktree", "add", "--quiet", str(tmp_path / "worktree"))
    git(tmp_path, "clone", "--quiet", "repo", "clone")
    checkouts = [tmp_path / name / "WORKFLOW.md" for name in ("repo", "worktree", "clone")]
    assert len({file.read_bytes() for file in checkouts}) == 1
    assert str(tmp_path) not in checkouts[0].read_text()
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    roots = [open_store(file, environment).current().settings.workspace.root for file in checkouts]
    assert roots == [locate(file, environment) / "workspaces" for file in checkouts]
    assert len(set(roots)) == len(roots)


@pytest.mark.parametrize("name", ["plain", "with space", "a: b # c", 'q"uote', "-dash", "50%"])
def test_a_state_directory_of_any_name_holds_the_workspaces(repo: Path, tmp_path: Path, name: str) -> None:
    init(repo)
    environment = {"SYMPHONY_STATE_DIR": str(tmp_path / name)}
    settings = open_store(repo / "WORKFLOW.md", environment).current().settings
    assert settings.workspace.root == tmp_path / name / "workspaces"


def test_a_detached_head_gives_the_usual_name(repo: Path) -> None:
    git(repo, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x")
    git(repo, "checkout", "--quiet", "--detach")
    assert init(repo).exit_code == 0
    assert "base_branch: main\n" in (repo / "WORKFLOW.md").read_text()


def test_the_next_command_can_be_pasted(tmp_path: Path, repo: Path) -> None:
    odd = tmp_path / "my project"
    repo.rename(odd)
    assert f"  cd {shlex.quote(str(odd))}\n" in init(odd).stdout


def test_what_to_do_next_fits_what_was_done(repo: Path) -> None:
    add = "git add WORKFLOW.md .symphony/.gitignore .symphony/skills && git commit -m 'Add Symphony'"
    first = init(repo).stdout
    assert add in first
    assert (
        first.index("symphony check ")
        < first.index("symphony run\n")
        < first.index("symphony status --watch")
    )
    git(repo, "add", "WORKFLOW.md", ".symphony")
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
    codex.unlink()
    (programs / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(programs))
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


def untracked(repo: Path) -> str:
    asked = ["git", "status", "--porcelain", "--untracked-files=all"]
    return subprocess.run(asked, cwd=repo, check=True, capture_output=True, text=True).stdout


def test_the_board_does_not_show_in_git_status(repo: Path) -> None:
    init(repo)
    (repo / ".symphony/issues/SYM-1").mkdir()
    (repo / ".symphony/issues/SYM-1/comment.md").write_text("x")
    told = untracked(repo)
    assert "issues" not in told
    assert ".symphony/.gitignore" in told, "the rule is committed, so that it holds in every clone"
    git(repo, "add", "--all")
    git(repo, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "x")
    assert untracked(repo) == ""


def test_a_board_that_is_committed_is_not_ignored(repo: Path) -> None:
    board = repo / ".symphony/issues"
    board.mkdir(parents=True)
    (board / "SYM-1.md").write_text("---\ntitle: x\nstate: Todo\n---\n")
    git(repo, "add", "--all")
    init(repo)
    (board / "SYM-2.md").write_text("---\ntitle: x\nstate: Todo\n---\n")
    assert not (repo / ".symphony/.gitignore").exists()
    assert "?? .symphony/issues/SYM-2.md" in untracked(repo)


def test_taking_the_line_out_commits_the_board_for_good(repo: Path) -> None:
    init(repo)
    ignored = repo / ".symphony/.gitignore"
    ignored.write_text(ignored.read_text().replace("/issues/\n", ""))
    init(repo)
    assert "?? .symphony/issues/SYM-1.md" in untracked(repo)


def test_the_first_issue_does_not_come_back(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init(repo)
    (repo / ".symphony/issues/SYM-1.md").unlink()
    init(repo)
    assert not (repo / ".symphony/issues/SYM-1.md").exists()
    monkeypatch.chdir(repo)
    made = CliRunner().invoke(main, ["issue", "new", "x"])
    assert made.stdout.split()[0] == "SYM-2"


def test_skills_that_sessions_would_not_see_are_offered_as_a_comment(repo: Path) -> None:
    skill = repo / ".claude/skills/one/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: one\ndescription: d\n---\n")
    done = init(repo)
    assert done.exit_code == 0, done.stderr
    assert ".claude/skills (1 skill)" in done.stderr
    workflow = repo / "WORKFLOW.md"
    (line,) = [line for line in workflow.read_text().splitlines() if "extra_paths" in line]
    assert line.startswith('    # extra_paths: [".claude/skills"]')
    workflow.write_text(workflow.read_text().replace("    # extra_paths", "    extra_paths"))
    store = open_store(workflow, os.environ, acknowledged=True)
    assert store.current().settings.agent.skills.extra_paths == (".claude/skills",)


def test_without_such_skills_nothing_is_offered(repo: Path) -> None:
    skill = repo / ".agents/skills/one/SKILL.md"  # Codex lists it by itself
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: one\ndescription: d\n---\n")
    assert "skill" not in init(repo).stderr
    assert "extra_paths" not in (repo / "WORKFLOW.md").read_text()


PEER = """\
---
tracker:
  kind: github
  repo: octo/web
  token: ghp_0123456789abcdefghij0123456789abcdef
  exclude_labels: [x]
  active_states: [open]
  terminal_states: [closed]
---
Do {{ identifier }}.
"""


def convert(repo: Path, text: str, *options: str) -> Result:
    source = repo.parent / "PEER.md"
    source.write_text(text, encoding="utf-8")
    return CliRunner().invoke(main, ["-C", str(repo), "init", "--from", str(source), *options])


def test_a_file_of_another_program_is_converted_and_what_is_different_is_said(repo: Path) -> None:
    done = convert(repo, PEER)
    assert done.exit_code == 0, done.stderr
    text = (repo / "WORKFLOW.md").read_text()
    assert "token: $GITHUB_TOKEN\n" in text
    assert "Do {{ issue.identifier }}.\n" in text
    words = [line.split()[0] for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert words == ["created", *["changed"] * 4, "left", "Next:"]
    assert "  export GITHUB_TOKEN=...\n" in done.stdout
    assert "ghp_" not in done.stdout + done.stderr + text
    store = open_store(repo / "WORKFLOW.md", {"GITHUB_TOKEN": "x"})
    assert store.current().settings.tracker.provider["repo"] == "octo/web"


def test_a_workflow_that_exists_is_left_alone_without_force(repo: Path) -> None:
    assert convert(repo, PEER).exit_code == 0
    first = (repo / "WORKFLOW.md").read_bytes()
    again = convert(repo, PEER)
    assert again.exit_code == 1
    assert "--force" in again.stderr
    (repo / "WORKFLOW.md").write_text("mine")
    assert convert(repo, PEER).exit_code == 1
    assert (repo / "WORKFLOW.md").read_text() == "mine"
    assert convert(repo, PEER, "--force").exit_code == 0
    assert (repo / "WORKFLOW.md").read_bytes() == first
    assert sorted(path.name for path in repo.iterdir()) == [".git", "WORKFLOW.md"]


def test_a_dangling_link_is_a_workflow_that_exists(repo: Path) -> None:
    (repo / "WORKFLOW.md").symlink_to("elsewhere/WORKFLOW.md")
    assert convert(repo, PEER).exit_code == 1
    assert convert(repo, PEER, "--force").exit_code == 0
    assert not (repo / "WORKFLOW.md").is_symlink()


def test_the_workflow_itself_can_be_converted_and_then_stays_as_it_is(repo: Path) -> None:
    (repo / "WORKFLOW.md").write_text(PEER)
    itself = ["-C", str(repo), "init", "--from", str(repo / "WORKFLOW.md"), "--force"]
    assert CliRunner().invoke(main, itself).exit_code == 0
    converted = (repo / "WORKFLOW.md").read_bytes()
    again = CliRunner().invoke(main, itself)
    assert "nothing was to be changed" in again.stdout
    assert (repo / "WORKFLOW.md").read_bytes() == converted


def test_print_writes_nothing_and_the_file_alone_to_stdout(repo: Path) -> None:
    done = convert(repo, PEER, "--print")
    assert done.exit_code == 0
    assert not (repo / "WORKFLOW.md").exists()
    assert done.stdout.startswith("---\n")
    assert "changed" in done.stderr
    assert "changed" not in done.stdout


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("---\ntracker: [a\n---\n", 3),
        ("---\n- a\n---\n", 3),
        ("---\ntracker: {kind: a, kind: b}\n---\n", 3),
        ("---\ntracker: {kind: markdown}\n---\n" + "x" * 5_000_000, 3),
    ],
)
def test_a_file_that_cannot_be_read_is_no_reason_to_write_one(repo: Path, text: str, code: int) -> None:
    done = convert(repo, text)
    assert done.exit_code == code
    assert done.stderr.startswith(("error: ", str(repo.parent)))
    assert not (repo / "WORKFLOW.md").exists()


@pytest.mark.parametrize(
    "options",
    [["--from", "x.md", "--tracker", "github"], ["--from", "x.md", "--agent", "codex"], ["--force"]],
)
def test_options_that_do_not_go_together_are_a_wrong_command_line(repo: Path, options: list[str]) -> None:
    done = CliRunner().invoke(main, ["-C", str(repo), "init", *options])
    assert done.exit_code == 2
    assert not (repo / "WORKFLOW.md").exists()

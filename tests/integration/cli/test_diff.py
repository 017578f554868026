"""`symphony diff`: what a branch changes, in the operator's repository or in the mirror."""

import json
import os
import pty
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.project import SYMPHONY, Project
from harness.shell import word
from published.schemas import conforms_to

WORK: list[dict[str, Any]] = [
    {"write": "a", "text": "a\n"},
    {"commit": "A"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A repository whose issue SYM-1 has a branch with two commits; `main` went on meanwhile."""
    made = Project(root=tmp_path).create()
    made.write("old name.txt", "1\n2\n3\n4\n5\n6\n")
    made.workflow()
    made.commit("Second")
    made.issue("SYM-1")
    made.issue("SYM-2")
    made.git("checkout", "--quiet", "-b", "symphony/SYM-1")
    made.git("mv", "old name.txt", "new name.txt")
    made.write("README.md", "# Other\nmore\n")
    made.commit("One")
    (made.repo / "image.bin").write_bytes(b"a\0b")
    made.commit("Two")
    made.git("checkout", "--quiet", "main")
    made.write("elsewhere.txt", "of somebody else\n")
    made.commit("Third")
    return made


def shown(project: Project, *arguments: str, code: int = 0) -> str:
    done = project.symphony("diff", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def counted(project: Project, *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(shown(project, *arguments, "--json"))
    conforms_to("diff", document)
    return document


def refusal(project: Project, *arguments: str) -> str:
    """The error of a command that ends with 1; it has a hint."""
    done = project.symphony("diff", *arguments)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return error


def test_a_branch_is_compared_with_the_commit_on_which_it_left_the_base(project: Project) -> None:
    patch = shown(project, "SYM-1")
    assert "+# Other" in patch
    assert "rename to new name.txt" in patch
    assert "elsewhere.txt" not in patch
    assert "\x1b" not in patch
    stat = shown(project, "SYM-1", "--stat")
    assert "README.md" in stat
    assert "+# Other" not in stat
    assert counted(project, "SYM-1") == {
        "issue_identifier": "SYM-1",
        "branch": "symphony/SYM-1",
        "base": "main",
        "work": {"commits": 2, "files_changed": 3, "insertions": 2, "deletions": 1},
        "files": [
            {"path": "README.md", "insertions": 2, "deletions": 1},
            {"path": "image.bin", "insertions": 0, "deletions": 0},
            {"path": "new name.txt", "insertions": 0, "deletions": 0},
        ],
    }


def test_the_base_is_not_the_branch_that_a_person_looks_at(project: Project) -> None:
    project.git("checkout", "--quiet", "symphony/SYM-1")
    assert counted(project, "SYM-1")["base"] == "main"
    project.git("branch", "release", "main")
    project.workflow(workspace={"base_branch": "release"})
    assert counted(project, "SYM-1")["base"] == "release"


def test_no_program_that_the_settings_name_is_run_for_what_an_agent_wrote(project: Project) -> None:
    canary = project.root / "canary"
    project.git("config", "diff.external", f"touch {word(canary)}; false")
    project.git("config", "diff.trap.textconv", f"touch {word(canary)}; cat")
    project.git("config", "diff.trap.command", f"touch {word(canary)}; false")
    (project.repo / ".git" / "info" / "attributes").write_text("* diff=trap\n")
    for form in ((), ("--stat",), ("--json",)):
        shown(project, "SYM-1", *form)
    assert not canary.exists()


@pytest.mark.slow
def test_on_a_terminal_the_pager_of_git_shows_it_in_colours(project: Project) -> None:
    said = on_a_terminal(project, "sed s/^/paged:/")
    assert b"paged:" in said
    assert b"\x1b[32m" in said


@pytest.mark.slow
@pytest.mark.parametrize("pager", ["sed s/^/paged:/", "cat"])
def test_on_a_terminal_hidden_characters_are_shown_and_nothing_is_obeyed(
    project: Project, pager: str
) -> None:
    hostile = "if level != 'user\u202e \u2066// admin\u2069 \u2066': \x1b]0;owned\x07\x1b[2J \x9b31m grün\n"
    project.git("checkout", "--quiet", "symphony/SYM-1")
    (project.repo / "access.py").write_text(hostile)
    project.git("add", "access.py")
    project.git("commit", "--quiet", "-m", "Hide")
    project.git("checkout", "--quiet", "main")
    said = on_a_terminal(project, pager).decode()
    assert "\\u202e" in said
    assert "grün" in said
    assert not {*"\u202e\u2066\u2069\x07\x9b"} & {*said}
    assert "\x1b]0" not in said
    assert "\x1b[2J" not in said
    assert "\u202e" in shown(project, "SYM-1"), "a patch in a file stays as it is"


def on_a_terminal(project: Project, pager: str) -> bytes:
    project.environment["GIT_PAGER"] = pager
    project.environment["TERM"] = "xterm"
    (project.root / "home").mkdir(exist_ok=True)
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [*SYMPHONY, "diff", "SYM-1"], cwd=project.repo, env=project.env(), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while chunk := _read(ours):
        said += chunk
    assert done.wait(60) == 0
    os.close(ours)
    return said


def _read(terminal: int) -> bytes:
    """What was written to a terminal; nothing once all of its writers are gone."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_what_cannot_be_compared_is_one_line_with_a_hint(project: Project) -> None:
    assert "no issue" in refusal(project, "SYM-9")
    assert "SYM-2 has no branch yet" in refusal(project, "sym-2")
    project.git("merge", "--quiet", "symphony/SYM-1")
    assert "no commit" in refusal(project, "SYM-1")
    assert project.symphony("diff", "SYM-1", "--json", "--stat").returncode == 2
    project.workflow(workspace={"repo": None})
    assert "workspace.repo is not set" in refusal(project, "SYM-1")


@pytest.mark.parametrize("push", ["never", "origin"])
def test_a_branch_that_only_the_mirror_has_is_shown_with_the_command_that_fetches_it(
    project: Project, push: str
) -> None:
    remote = project.root / "origin.git"
    project.git("clone", "--quiet", "--bare", str(project.repo), str(remote))
    for repository in (remote, project.repo):
        project.git("branch", "-D", "symphony/SYM-1", cwd=repository)
    project.git("remote", "add", "origin", str(remote))
    project.issue("SYM-1", WORK)
    project.issue("SYM-2", state="Done")
    project.workflow(workspace={"repo": f"file://{remote}", "push": push})
    assert project.once().returncode == 0
    done = project.symphony("diff", "SYM-1")
    assert (done.returncode, "+a\n" in done.stdout) == (0, True), done.stderr
    command = done.stderr.split("`")[1]
    assert command.startswith("git fetch origin " if push == "origin" else "git fetch ")
    assert push == "origin" or Path(shlex.split(command)[2]).is_relative_to(project.workspaces)
    project.git(*shlex.split(command.removeprefix("git ")))
    found = "symphony/SYM-1" if push == "never" else "FETCH_HEAD"
    assert project.git("log", "-1", "--format=%s", found) == "A"
    document = counted(project, "SYM-1")
    assert (document["base"], document["work"]["commits"]) == ("main", 1)


def test_a_repository_that_lacks_what_was_delivered_last_is_told(project: Project) -> None:
    project.git("branch", "-D", "symphony/SYM-1")
    project.issue("SYM-1", WORK)
    project.issue("SYM-2", state="Done")
    assert project.once().returncode == 0
    assert project.symphony("diff", "SYM-1").stderr == ""
    project.git("checkout", "--quiet", "-B", "symphony/SYM-1", "main")
    project.commit("Of a person")
    assert "lacks the last delivered commits" in project.symphony("diff", "SYM-1").stderr

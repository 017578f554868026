"""Promise: however git is set up on a machine and in a repository, work arrives, or the reason is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.project import Project
from harness.shell import word

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


def findings(project: Project, check: str) -> list[dict[str, str]]:
    checks = json.loads(project.symphony("doctor", "--json").stdout)["checks"]
    return [found for found in checks if found["name"] == check]


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


def test_sessions_commit_under_the_names_that_the_repository_says(project: Project, home: Path) -> None:
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Private\n\temail = private@example.org\n"
        f'[includeIf "gitdir:{project.repo}/"]\n\tpath = work\n'
    )
    (home / "work").write_text("[committer]\n\tname = Work\n\temail = work@example.org\n")
    project.workflow()
    project.issue("SYM-1", WORK)

    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()

    assert project.git("log", "-1", "--format=%an %ae %cn %ce", "symphony/SYM-1") == (
        "Tester tester@localhost Work work@example.org"
    )
    (told,) = findings(project, "git_identity")
    assert "Tester <tester@localhost>" in told["message"]
    assert "Work <work@example.org>" in told["message"]


@pytest.mark.parametrize(
    ("ssh", "said", "advised"),
    [
        (
            "echo 'git@h: Permission denied (publickey).' >&2; exit 255",
            "Permission denied (publickey)",
            "key",
        ),
        ("echo 'Host key verification failed.' >&2; exit 255", "Host key verification failed", "known_hosts"),
    ],
)
def test_what_ssh_says_is_told_with_a_hint_that_fits(
    project: Project, home: Path, ssh: str, said: str, advised: str
) -> None:
    (home / "ssh").write_text(f"#!/bin/sh\n{ssh}\n")
    (home / "ssh").chmod(0o755)
    project.environment["GIT_SSH_COMMAND"] = word(home / "ssh")
    project.workflow(workspace={"repo": "git@h:a/b.git"})
    project.issue("SYM-1", WORK)

    done = project.symphony("run", "--once")
    (found,) = findings(project, "repository")

    assert done.returncode != 0
    assert said in done.stderr
    assert advised in done.stderr
    assert said in found["message"]
    assert advised in found["hint"]


@pytest.mark.slow
def test_a_source_that_becomes_shallow_is_told_by_doctor_and_by_the_run(project: Project) -> None:
    upstream = project.root / "upstream"
    project.git("clone", "--quiet", "--bare", ".", str(upstream))
    project.git("remote", "add", "origin", f"file://{upstream}")
    project.workflow()
    project.issue("SYM-1", WORK)
    assert project.symphony("run", "--once").returncode == 0
    assert [found["status"] for found in findings(project, "repository")] == ["ok"]

    project.git("push", "--quiet", "origin", "main")
    other = project.root / "other"
    project.git("clone", "--quiet", str(upstream), str(other))
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for text in ("one", "two"):
        project.git(*identity, "commit", "--quiet", "--allow-empty", "-m", text, cwd=other)
    project.git("push", "--quiet", "origin", "main", cwd=other)
    project.git("fetch", "--quiet", "--depth=1", "origin", "main")
    project.git("reset", "--quiet", "--hard", "FETCH_HEAD")
    project.issue("SYM-2", WORK)

    (found,) = findings(project, "repository")
    done = project.symphony("run", "--once")

    assert found["status"] == "error"
    assert "fetch --unshallow" in found["hint"]
    assert done.returncode != 0
    assert json.dumps(found["hint"])[1:-1] in done.stderr, "it is a line of JSON"
    project.git("fetch", "--quiet", "--unshallow", "origin")
    assert project.symphony("run", "--once").returncode == 0
    assert project.branch_log("SYM-2") == ["A"]


def test_a_filter_that_only_the_repository_has_is_told_before_the_first_run(
    project: Project, home: Path
) -> None:
    project.git("config", "filter.crypt.clean", "tr a-z n-za-m")
    project.git("config", "filter.crypt.smudge", "tr n-za-m a-z")
    project.write(".gitattributes", "*.secret filter=crypt\n")
    project.write("a.secret", "hello\n")
    project.commit("Secrets")
    project.workflow()
    project.issue("SYM-1", WORK)

    problems = json.loads(project.symphony("check", "--json").stdout)["problems"]
    assert "filter_not_set_up" in [problem["code"] for problem in problems]
    assert [found["status"] for found in findings(project, "repository")] == ["ok", "warning"]
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    assert daemon.wait_for("filter_not_set_up", key="SYM-1")["filter"] == "crypt"

    (home / ".gitconfig").write_text('[filter "crypt"]\n\tclean = cat\n\tsmudge = cat\n')
    assert [found["status"] for found in findings(project, "repository")] == ["ok"]


def test_a_filter_whose_program_is_missing_is_an_error_of_doctor(project: Project, home: Path) -> None:
    blob = project.git("hash-object", "-w", "README.md")
    project.write(".gitattributes", "*.bin filter=lfs\n")
    project.git("add", ".gitattributes")
    project.git("update-index", "--add", "--cacheinfo", f"100644,{blob},a.bin")
    project.git("commit", "--quiet", "-m", "A file in Git LFS")
    lines = ("clean", "smudge", "process")
    settings = "".join(f"\t{line} = git-lfs-none {line}\n" for line in lines)
    (home / ".gitconfig").write_text(f'[filter "lfs"]\n{settings}\trequired = true\n')
    project.workflow()

    (found,) = findings(project, "repository")

    assert found["status"] == "error"
    assert "git-lfs-none: not found" in found["message"]
    assert "install git-lfs" in found["hint"]


def test_a_command_in_a_hook_of_git_looks_at_the_repository_of_the_workflow(project: Project) -> None:
    other = project.root / "other"
    project.git("init", "--quiet", "--bare", str(other))
    project.environment |= {"GIT_DIR": str(other), "GIT_WORK_TREE": str(project.root)}
    project.write("tracked.txt", "1")
    project.commit("File")
    project.write("tracked.txt", "2")
    project.workflow()

    problems = json.loads(project.symphony("check", "--json").stdout)["problems"]

    assert "uncommitted_changes" in [problem["code"] for problem in problems]

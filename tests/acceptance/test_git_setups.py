"""Promise: however git is set up on a machine and in a repository, work arrives, or the reason is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.project import Project

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
    checks = json.loads(project.symphony("doctor", "--json").stdout)["checks"]
    (told,) = [check["message"] for check in checks if check["name"] == "git_identity"]
    assert "Tester <tester@localhost>" in told
    assert "Work <work@example.org>" in told


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
    project.environment["GIT_SSH_COMMAND"] = str(home / "ssh")
    project.workflow(workspace={"repo": "git@h:a/b.git"})
    project.issue("SYM-1", WORK)

    done = project.symphony("run", "--once")
    checks = json.loads(project.symphony("doctor", "--json").stdout)["checks"]
    (found,) = [check for check in checks if check["name"] == "repository"]

    assert done.returncode != 0
    assert said in done.stderr
    assert advised in done.stderr
    assert said in found["message"]
    assert advised in found["hint"]

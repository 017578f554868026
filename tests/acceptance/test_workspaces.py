"""Promise: finished work is delivered, unfinished work is never deleted, nothing in `.git` is executed."""

import pytest

from harness.project import Project

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}


def test_finished_work_is_on_a_branch_of_the_repository_and_the_workspace_is_gone(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    assert project.symphony("run", "--once").returncode == 0
    assert project.branch_log("SYM-1") == ["A"]
    assert not (project.workspaces / "SYM-1").exists()


def test_uncommitted_work_is_kept_and_reported_even_when_the_issue_is_over(project: Project) -> None:
    project.workflow()
    project.issue(
        "SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, {"write": "unsaved", "text": "b"}, DONE]
    )
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    kept = daemon.wait_for("workspace_kept", issue_identifier="SYM-1")
    assert "uncommitted" in kept["reason"]
    assert (project.workspaces / "SYM-1" / "unsaved").read_text() == "b"
    assert project.branch_log("SYM-1") == ["A"], "what was committed is delivered all the same"


@pytest.mark.conformance("K-2")
def test_a_new_attempt_continues_where_the_last_one_stopped(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", [{"write": "half", "text": "1"}, {"fail": "not yet"}])
    with project.daemon() as daemon:
        daemon.wait_for("run_retrying", issue_identifier="SYM-1")
        project.issue("SYM-1", [{"run": "test -e half"}, {"commit": "Whole"}, DONE])
        daemon.wait_for("workspace_removed", issue_identifier="SYM-1")
    assert project.branch_log("SYM-1") == ["Whole"]


def test_the_branch_is_pushed_to_origin_when_asked(project: Project) -> None:
    project.git("init", "--quiet", "--bare", str(project.root / "origin.git"), cwd=project.root)
    project.git("remote", "add", "origin", str(project.root / "origin.git"))
    project.git("push", "--quiet", "origin", "main")
    project.workflow(
        workspace={"repo": str(project.root / "origin.git"), "push": "origin", "base_branch": "main"}
    )
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    assert project.symphony("run", "--once").returncode == 0
    log = project.git("log", "--format=%s", "main..symphony/SYM-1", cwd=project.root / "origin.git")
    assert log == "A"


def test_nothing_that_the_agent_wrote_into_its_git_directory_is_executed(project: Project) -> None:
    canary = project.root / "canary"
    trap = f'#!/bin/sh\necho "$0" >> {canary}\n'
    hooks = ["post-checkout", "pre-push", "post-commit", "reference-transaction", "fsmonitor", "pre-auto-gc"]
    project.workflow()
    project.issue(
        "SYM-1",
        [
            {"write": "a.txt", "text": "a"},
            {"commit": "A"},
            *({"write": f".git/hooks/{name}", "text": trap} for name in hooks),
            {"run": "chmod +x .git/hooks/*"},
            {"run": 'git config core.fsmonitor "$PWD/.git/hooks/fsmonitor"'},
            {"run": 'git config core.sshCommand "$PWD/.git/hooks/fsmonitor"'},
            {"run": 'git config filter.trap.clean "$PWD/.git/hooks/fsmonitor"'},
            {"run": 'git config diff.external "$PWD/.git/hooks/fsmonitor"'},
            {"run": 'git config alias.status "!$PWD/.git/hooks/fsmonitor"'},
            {"write": ".gitattributes", "text": "* filter=trap\n"},
            {"run": f"rm -f {canary}"},
            {"tool": "board_move", "arguments": {"state": "Human Review"}},
        ],
    )
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    assert not canary.exists(), canary.read_text()
    assert project.branch_log("SYM-1") == ["A"], "the work is delivered all the same"
    assert daemon.wait_for("workspace_warning", issue_identifier="SYM-1")


def test_hooks_run_around_the_work_and_see_the_issue(project: Project) -> None:
    log = project.root / "hooks.log"
    names = ("after_create", "before_run", "after_run", "before_remove")
    line = f'echo "$0 $SYMPHONY_ISSUE_IDENTIFIER $(basename "$PWD")" >> {log}'
    project.workflow(
        hooks={
            name: line.replace("$0", name)
            for name in ("after_create", "before_run", "after_run", "before_remove")
        }
    )
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    assert project.symphony("run", "--once").returncode == 0
    assert log.read_text().splitlines() == [f"{name} SYM-1 SYM-1" for name in names]

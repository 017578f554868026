"""Promise: finished work is delivered, unfinished work is never deleted, nothing in `.git` is executed."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.project import Ended, Project
from harness.shell import word

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
HAND_OVER = {"tool": "board_move", "arguments": {"state": "Human Review"}}


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
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    kept = daemon.wait_for("workspace_kept", issue_identifier="SYM-1")
    assert "uncommitted" in kept["reason"]
    assert (project.workspaces / "SYM-1" / "unsaved").read_text() == "b"
    assert project.branch_log("SYM-1") == ["A"], "what was committed is delivered all the same"


@pytest.mark.slow
def test_work_in_a_worktree_of_the_agents_own_is_kept_and_named_everywhere(project: Project) -> None:
    (project.repo / ".gitignore").write_text(".claude/worktrees/\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "ignore worktrees")
    project.workflow()
    worktree = "git worktree add -q --detach .claude/worktrees/w && cd .claude/worktrees/w"
    sub = f"{worktree} && echo s > s.txt && git add -A && git commit -qm Sub"
    project.issue("SYM-1", [{"run": sub}, {"write": "b", "text": "b"}, {"commit": "B"}, DONE])
    daemon = run_once(project)

    assert project.branch_log("SYM-1") == ["B"]
    assert (project.workspaces / "SYM-1/.claude/worktrees/w/s.txt").read_text() == "s\n"
    kept = daemon.wait_for("workspace_kept", issue_identifier="SYM-1")
    (shown,) = json.loads(project.symphony("status", "--json").stdout)["kept"]
    explained = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)["kept"]
    cleaned = json.loads(project.symphony("clean", "--dry-run", "--json").stdout)["items"]
    assert shown == explained
    assert (shown["reason"], shown["look"]) == (kept["reason"], kept["look"])
    assert "worktree" in kept["reason"]
    assert "worktree" in next(item["reason"] for item in cleaned if item["name"] == "SYM-1")
    for command in ("status", "explain"):
        words = ("SYM-1",) if command == "explain" else ()
        assert "worktree" in project.symphony(command, *words).stdout


def test_what_was_handed_over_without_a_commit_is_said_on_the_issue(project: Project) -> None:
    project.workflow()
    hook = "mkdir -p .git/hooks; printf '#!/bin/sh\\necho no signing key >&2; exit 1' > .git/hooks/pre-commit"
    fail = f"{hook}; chmod +x .git/hooks/pre-commit; git add -A; git commit -qm Second"
    project.issue(
        "SYM-1",
        [
            {"write": "a", "text": "a"},
            {"commit": "A"},
            {"write": "b", "text": "b"},
            {"run": fail, "may_fail": True},
            HAND_OVER,
        ],
    )
    project.issue("SYM-2", [{"write": "b", "text": "b"}, {"run": fail, "may_fail": True}, HAND_OVER])
    project.issue("SYM-3", [{"write": "c", "text": "c"}, {"commit": "C"}, HAND_OVER])
    daemon = run_once(project)

    for key in ("SYM-1", "SYM-2"):
        daemon.wait_for("work_left", issue_identifier=key)
        (comment,) = project.comments(key, kind="delivery")
        assert f"git -C {word(project.workspaces / key)} status" in comment
        assert "no signing key" in comment
        explained = json.loads(project.symphony("explain", key, "--json").stdout)
        assert "1 uncommitted" in explained["kept"]["reason"]
    (comment,) = project.comments("SYM-3", kind="delivery")
    assert "uncommitted" not in comment
    kept = json.loads(project.symphony("status", "--json").stdout)["kept"]
    assert [each["issue_identifier"] for each in kept] == ["SYM-1", "SYM-2"]


@pytest.mark.conformance("K-2")
def test_a_new_attempt_continues_where_the_last_one_stopped(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", [{"write": "half", "text": "1"}, {"fail": "not yet"}])
    with project.daemon() as daemon:
        daemon.wait_for("run_retrying", issue_identifier="SYM-1")
        project.issue("SYM-1", [{"run": "test -e half"}, {"commit": "Whole"}, DONE])
        daemon.wait_for("workspace_removed", issue_identifier="SYM-1")
    assert project.branch_log("SYM-1") == ["Whole"]


WORK: list[dict[str, Any]] = [{"write": "a", "text": "a"}, {"commit": "A"}, DONE]


@pytest.fixture
def remote(project: Project) -> Path:
    """A bare repository with the project's main branch."""
    path = project.root / "origin.git"
    project.git("clone", "--quiet", "--bare", str(project.repo), str(path), cwd=project.root)
    return path


def pushed(project: Project, remote: Path) -> list[str]:
    return project.git("log", "--format=%s", "main..symphony/SYM-1", cwd=remote).splitlines()


def run_once(project: Project) -> Ended:
    """Work on the board until nothing is left to do, which must end well."""
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    return daemon


def test_the_branch_is_pushed_to_the_address_that_workspaces_are_cloned_from(
    project: Project, remote: Path
) -> None:
    project.workflow(workspace={"repo": f"file://{remote}", "push": "origin", "base_branch": "main"})
    project.issue("SYM-1", WORK)
    assert project.once().returncode == 0
    assert pushed(project, remote) == ["A"]


@pytest.mark.slow
def test_the_branch_of_a_local_repository_is_pushed_to_its_origin(project: Project, remote: Path) -> None:
    project.git("remote", "add", "origin", str(remote))
    project.workflow(workspace={"repo": ".", "push": "origin"})
    project.issue("SYM-1", WORK)
    daemon = run_once(project)
    assert pushed(project, remote) == ["A"]
    assert project.branch_log("SYM-1") == ["A"]
    assert daemon.wait_for("branch_pushed", issue_identifier="SYM-1")["branch"] == "symphony/SYM-1"


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["a remote that refuses", "no remote", "a branch of somebody else"])
def test_a_push_that_fails_loses_no_work_and_says_what_to_do(
    project: Project, remote: Path, trouble: str
) -> None:
    if trouble != "no remote":
        project.git("remote", "add", "origin", str(remote))
    theirs = None
    if trouble == "a remote that refuses":
        hook = remote / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    elif trouble == "a branch of somebody else":
        project.git("checkout", "--quiet", "--orphan", "theirs")
        project.commit("Theirs")
        project.git("push", "--quiet", "origin", "theirs:symphony/SYM-1")
        theirs = project.git("rev-parse", "theirs")
        project.git("checkout", "--quiet", "--force", "main")
    project.workflow(workspace={"repo": ".", "push": "origin"})
    project.issue("SYM-1", WORK)
    daemon = run_once(project)
    told = daemon.wait_for("push_failed", issue_identifier="SYM-1")
    assert told["level"] == "warning"
    assert told["hint"]
    assert project.branch_log("SYM-1") == ["A"]
    assert daemon.wait_for("run_ended", issue_identifier="SYM-1")["outcome"] == "succeeded"
    if theirs is not None:
        assert project.git("rev-parse", "symphony/SYM-1", cwd=remote) == theirs


def test_nothing_that_the_agent_wrote_into_its_git_directory_is_executed(project: Project) -> None:
    canary = project.root / "canary"
    trap = f'#!/bin/sh\necho "$0" >> {word(canary)}\n'
    hooks = ["post-checkout", "pre-push", "post-commit", "reference-transaction", "fsmonitor", "pre-auto-gc"]
    programs = ("core.fsmonitor", "core.sshCommand", "filter.trap.clean", "diff.external")
    program = word(project.workspaces / "SYM-1" / ".git" / "hooks" / "fsmonitor")
    project.workflow()
    project.issue(
        "SYM-1",
        [
            {"write": "a.txt", "text": "a"},
            {"commit": "A"},
            *({"write": f".git/hooks/{name}", "text": trap} for name in hooks),
            {"run": "chmod +x .git/hooks/*"},
            *({"run": f"git config {key} {word(program)}"} for key in programs),
            {"run": f"git config alias.status {word(f'!{program}')}"},
            {"write": ".gitattributes", "text": "* filter=trap\n"},
            {"run": f"rm -f {word(canary)}"},
            {"tool": "board_move", "arguments": {"state": "Human Review"}},
        ],
    )
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    assert not canary.exists(), canary.read_text()
    assert project.branch_log("SYM-1") == ["A"], "the work is delivered all the same"
    assert daemon.wait_for("workspace_warning", issue_identifier="SYM-1")


def test_hooks_run_around_the_work_and_see_the_issue(project: Project) -> None:
    log = project.root / "hooks.log"
    names = ("after_create", "before_run", "after_run", "before_remove")
    line = f'echo "$0 $SYMPHONY_ISSUE_IDENTIFIER $(basename "$PWD")" >> {word(log)}'
    project.workflow(
        hooks={
            name: line.replace("$0", name)
            for name in ("after_create", "before_run", "after_run", "before_remove")
        }
    )
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    assert project.once().returncode == 0
    assert log.read_text().splitlines() == [f"{name} SYM-1 SYM-1" for name in names]


def test_a_workspace_that_is_deleted_in_mid_run_is_made_anew_and_said(project: Project) -> None:
    project.workflow(agent={"budget": {"max_attempts_without_progress": 1}})
    issue = project.issue("SYM-1", [{"write": "b", "text": "b"}, {"commit": "B"}, DONE])
    edited = issue.rename(project.root / "edited.md")
    project.issue(
        "SYM-1",
        [{"write": "a", "text": "a"}, {"commit": "A"}],
        [{"run": f"cp {word(edited)} {word(issue)} && rm -rf {word(project.workspaces)}/SYM-1"}],
    )
    with project.daemon() as daemon:
        ended = daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="failed")
        assert ended["reason"].startswith("workspace_vanished: ")
        assert ended["hint"]
        daemon.wait_for("workspace_made_anew")
        daemon.wait_for("workspace_removed", issue_identifier="SYM-1")
    (retry,) = [line for line in daemon.events() if line["event"] == "run_retrying"]
    assert retry["attempt"] == 1, "it cost no attempt"
    assert project.branch_log("SYM-1")[0] == "B"


@pytest.mark.slow
def test_submodules_are_populated_by_the_hook_that_the_documentation_names(project: Project) -> None:
    library = Project(root=project.root / "library").create()
    allowed = ("-c", "protocol.file.allow=always")
    project.git(*allowed, "submodule", "add", "--quiet", str(library.repo), "lib")
    project.commit("Use a library")
    project.workflow()
    project.issue("SYM-1", [{"run": "test ! -e lib/README.md"}, HAND_OVER])
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    assert daemon.wait_for("submodules_not_populated")["hint"]
    project.workflow(
        hooks={
            "after_create": "git -c protocol.file.allow=always submodule update --init --recursive",
            "before_remove": "git submodule deinit --all",
        }
    )
    project.issue("SYM-2", [{"run": "cp lib/README.md copy.md"}, {"commit": "Copied"}, DONE])
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    daemon.wait_for("workspace_removed", issue_identifier="SYM-2")
    assert project.branch_log("SYM-2") == ["Copied"]


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "<&-"])
def test_a_daemon_without_standard_streams_does_its_work(project: Project, closed: str) -> None:
    project.workflow()
    project.issue("SYM-1", WORK)
    program = shlex.join([sys.executable, "-m", "symphony", "run", "--once"])

    done = subprocess.run(
        ["bash", "-c", f"{program} {closed}"], cwd=project.repo, env=project.env(), check=False
    )

    assert done.returncode == 0
    assert project.branch_log("SYM-1") == ["A"]


@pytest.mark.slow
def test_a_login_profile_does_not_give_agents_an_editor(project: Project) -> None:
    names = ("GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_TERMINAL_PROMPT")
    home = Path(project.env()["HOME"])
    home.mkdir(exist_ok=True)
    (home / ".bash_profile").write_text("".join(f"export {name}=vim\n" for name in names))
    project.workflow()
    project.issue("SYM-1", [{"run": "env > environment.txt"}, {"commit": "A"}, DONE])

    assert project.symphony("run", "--once").returncode == 0

    seen = project.git("show", "symphony/SYM-1:environment.txt").splitlines()
    assert {f"{name}=vim" for name in names}.isdisjoint(seen)
    assert {"GIT_EDITOR=true", "GIT_TERMINAL_PROMPT=0"} <= set(seen)

"""The branch of an issue in the local repository: what keeps it out is told with the way out."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_asyncio

from harness.workspaces import delivered_branch
from symphony.domain import Category, Failure, Issue
from symphony.workspaces import Workspace, WorkspaceManager, taken_names

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]
BRANCH = "symphony/MT-1"


def commit(git: Git, where: Path, name: str) -> str:
    (where / f"{name}.txt").write_text(f"{name}\n")
    git(where, "add", "-A")
    git(where, "commit", "-qm", name)
    return git(where, "rev-parse", "HEAD")


@pytest.fixture
def manager(make_manager: Make, repo: Path) -> WorkspaceManager:
    return make_manager(repo=str(repo))


@pytest_asyncio.fixture
async def made(manager: WorkspaceManager, git: Git, issue: MakeIssue) -> Workspace:
    """A workspace with one commit."""
    workspace = await manager.prepare(issue("MT-1"), None)
    commit(git, workspace.path, "one")
    return workspace


async def kept_out(manager: WorkspaceManager, made: Workspace, *, retryable: bool = True) -> Failure:
    """Why a delivery did not bring the branch; the work is in the mirror all the same."""
    delivery = await manager.deliver(made)
    failure = delivered_branch(delivery).branch_failure
    assert failure is not None
    assert delivery.delivered
    assert (failure.category, failure.retryable) == (Category.BRANCH_NOT_PLACED, retryable)
    assert "\n" not in failure.line
    assert failure.hint
    return failure


def obey(hint: str, git: Git, repo: Path) -> None:
    """Run the command of git that a hint names."""
    words = shlex.split(hint.split("`")[1])
    assert words[0] == "git"
    git(repo, *words[1:])


@pytest.mark.parametrize("taken", ["symphony", "symphony/MT-1/part"])
async def test_a_branch_whose_name_excludes_it_is_renamed_by_the_hint(
    manager: WorkspaceManager, made: Workspace, git: Git, repo: Path, taken: str
) -> None:
    git(repo, "branch", taken)
    listing = ("for-each-ref", "--format=%(refname:lstrip=2) %(worktreepath)", "refs/heads/symphony")
    (seen,) = taken_names(repo, git(repo, *listing))

    failure = await kept_out(manager, made)

    assert f"refs/heads/{taken}' exists" in failure.message
    assert seen.hint == failure.hint
    obey(failure.hint or "", git, repo)
    assert await manager.place(BRANCH) is None
    assert git(repo, "rev-parse", BRANCH) == git(made.path, "rev-parse", "HEAD")


async def test_neighbours_of_the_name_exclude_nothing(
    manager: WorkspaceManager, made: Workspace, git: Git, repo: Path
) -> None:
    for name in ("symphony-2", "symphony/MT-10", "symphony/mt-1", "feature/symphony"):
        git(repo, "branch", name)
    listing = ("for-each-ref", "--format=%(refname:lstrip=2) %(worktreepath)", "refs/heads/symphony")
    assert list(taken_names(repo, git(repo, *listing))) == []
    assert delivered_branch(await manager.deliver(made)).branch_failure is None


async def test_names_that_differ_in_case_only_exclude_each_other_where_the_file_system_ignores_case(
    manager: WorkspaceManager, made: Workspace, git: Git, repo: Path
) -> None:
    git(repo, "branch", "symphony/mt-1")
    git(repo, "config", "core.ignoreCase", "true")
    failure = await kept_out(manager, made)
    obey(failure.hint or "", git, repo)
    assert await manager.place(BRANCH) is None


async def test_a_branch_that_is_checked_out_elsewhere_is_brought_there_by_the_hint(
    manager: WorkspaceManager, made: Workspace, git: Git, repo: Path, tmp_path: Path
) -> None:
    assert delivered_branch(await manager.deliver(made)).branch_failure is None
    elsewhere = tmp_path / "a worktree"
    git(repo, "worktree", "add", "-q", str(elsewhere), BRANCH)
    second = commit(git, made.path, "two")

    failure = await kept_out(manager, made)

    assert str(elsewhere) in failure.message
    obey(failure.hint or "", git, elsewhere)
    assert git(repo, "rev-parse", BRANCH) == second
    assert await manager.place(BRANCH) is None


async def test_a_lock_that_was_left_is_named(manager: WorkspaceManager, made: Workspace, repo: Path) -> None:
    lock = repo / ".git" / "refs" / "heads" / f"{BRANCH}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    failure = await kept_out(manager, made)
    assert str(lock) in (failure.hint or "")
    lock.unlink()
    assert await manager.place(BRANCH) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_repository_that_cannot_be_written_is_told(
    manager: WorkspaceManager, made: Workspace, repo: Path
) -> None:
    heads = repo / ".git" / "refs" / "heads"
    heads.chmod(0o555)
    try:
        failure = await kept_out(manager, made)
    finally:
        heads.chmod(0o755)
    assert str(repo) in (failure.hint or "")
    assert await manager.place(BRANCH) is None


async def test_a_branch_that_a_person_deleted_stays_deleted_until_there_is_new_work(
    manager: WorkspaceManager, made: Workspace, git: Git, repo: Path
) -> None:
    assert delivered_branch(await manager.deliver(made)).branch_failure is None
    git(repo, "branch", "-q", "-D", BRANCH)

    failure = await kept_out(manager, made, retryable=False)

    assert git(repo, "branch", "--list", BRANCH) == ""
    obey(failure.hint or "", git, repo)
    assert await manager.place(BRANCH) is None
    git(repo, "branch", "-q", "-D", BRANCH)
    second = commit(git, made.path, "two")
    assert delivered_branch(await manager.deliver(made)).branch_failure is None
    assert git(repo, "rev-parse", BRANCH) == second


async def test_commits_of_a_person_on_the_branch_stay_and_are_no_failure_if_they_go_on_from_the_work(
    manager: WorkspaceManager, made: Workspace, git: Git, repo: Path
) -> None:
    assert delivered_branch(await manager.deliver(made)).branch_failure is None
    git(repo, "checkout", "-q", BRANCH)
    theirs = commit(git, repo, "theirs")
    git(repo, "checkout", "-q", "main")
    assert delivered_branch(await manager.deliver(made)).branch_failure is None
    commit(git, made.path, "two")

    failure = await kept_out(manager, made)

    assert git(repo, "rev-parse", BRANCH) == theirs
    obey(failure.hint or "", git, repo)
    assert git(repo, "rev-parse", f"{BRANCH}-delivered") == git(made.path, "rev-parse", "HEAD")
    assert await manager.place(BRANCH) is not None
    assert git(repo, "rev-parse", BRANCH) == theirs


async def test_no_hook_of_the_repository_is_run_or_keeps_the_branch_out(
    manager: WorkspaceManager, made: Workspace, repo: Path
) -> None:
    for name in ("reference-transaction", "update", "pre-receive"):
        hook = repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    assert delivered_branch(await manager.deliver(made)).branch_failure is None


@pytest.mark.parametrize("hook", [None, "pre-receive", "update", "reference-transaction"])
async def test_an_origin_that_keeps_the_branch_out_is_told_with_its_reason(
    make_manager: Make, git: Git, repo: Path, tmp_path: Path, issue: MakeIssue, hook: str | None
) -> None:
    origin = tmp_path / "origin.git"
    git(tmp_path, "clone", "-q", "--bare", "--template=", str(repo), str(origin))
    git(repo, "remote", "add", "origin", str(origin))
    if hook is None:
        git(origin, "branch", "symphony", "main")
    else:
        script = origin / "hooks" / hook
        script.parent.mkdir()
        script.write_text("#!/bin/sh\necho not on Mondays >&2\nexit 1\n")
        script.chmod(0o755)
    pushing = make_manager(repo=str(repo), push="origin")
    made = await pushing.prepare(issue("MT-1"), None)
    commit(git, made.path, "one")
    assert delivered_branch(await pushing.deliver(made)).branch_failure is None
    seen = await pushing.check_push()
    assert (seen is not None) == (hook is None), "a dry run of git runs no hook of the remote"

    failure = await pushing.push(BRANCH)

    assert failure is not None
    assert failure.category is Category.PUSH_FAILED
    told = f"{failure.message} {failure.hint}"
    reasons = {None: "the branch symphony on origin", "reference-transaction": "aborted by hook"}
    assert reasons.get(hook, "not on Mondays") in told
    assert failure.hint
    assert "git push --dry-run" not in failure.hint

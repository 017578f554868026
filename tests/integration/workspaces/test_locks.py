"""Lock files that a killed git leaves: a start that is alone at the root clears them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.domain import Issue
from symphony.workspaces import RootLease, WorkspaceManager

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
MakeIssue = Callable[[str], Issue]
Git = Callable[..., str]


def _mirror(root: Path) -> Path:
    return next((root / ".symphony" / "mirrors").glob("*.git"))


def _left(*names: Path) -> None:
    for name in names:
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_bytes(b"")


async def test_what_a_killed_git_left_in_mirror_and_repository_is_cleared_by_the_next_start(
    make_manager: Make, git: Git, repo: Path, root: Path, issue: MakeIssue
) -> None:
    first = make_manager(repo=str(repo))
    await first.check_root()
    made = await first.prepare(issue("MT-1"), None)
    git(made.path, "commit", "-q", "--allow-empty", "-m", "work")
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    ours = [
        _mirror(root) / "refs" / "remotes" / "origin" / "main.lock",
        repo / ".git" / "refs" / "heads" / "symphony" / "MT-1.lock",
    ]
    theirs = [repo / ".git" / "index.lock", repo / ".git" / "refs" / "heads" / "main.lock"]
    _left(*ours, *theirs)
    del first

    restarted = make_manager(repo=str(repo))
    await restarted.check_root()

    assert [lock.exists() for lock in (*ours, *theirs)] == [False, False, True, True]
    assert (await restarted.prepare(issue("MT-2"), None)).created_now
    assert (await restarted.deliver(made)).warnings == ()
    assert git(repo, "log", "-1", "--format=%s", "symphony/MT-1") == "work"


async def test_what_another_daemon_may_be_using_goes_only_when_it_is_old(
    make_manager: Make, git: Git, repo: Path, root: Path, issue: MakeIssue
) -> None:
    other = make_manager(repo=str(repo))
    await other.check_root()
    await other.prepare(issue("MT-1"), None)
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    lock = _mirror(root) / "refs" / "heads" / "symphony" / "MT-1.lock"
    branch = repo / ".git" / "refs" / "heads" / "symphony" / "MT-1.lock"
    _left(lock, branch)

    ours = make_manager(repo=str(repo))
    await ours.check_root()
    assert (lock.exists(), branch.exists()) == (True, True)
    os.utime(lock, (1, 1))
    await make_manager(repo=str(repo)).check_root()
    assert (lock.exists(), branch.exists()) == (False, True)


async def test_what_an_ended_fetch_left_does_not_hold_up_the_next_one(
    make_manager: Make, git: Git, repo: Path, root: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    await manager.check_root()
    await manager.prepare(issue("MT-1"), None)
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    _left(_mirror(root) / "refs" / "remotes" / "origin" / "main.lock")

    made = await manager.prepare(issue("MT-2"), None)

    assert git(made.path, "log", "-1", "--format=%s") == "second"


async def test_what_an_agent_left_that_was_ended_in_the_middle_does_not_hold_the_next_one_up(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    (made.path / "half.txt").write_text("half\n")
    git_dir = made.path / ".git"
    _left(
        git_dir / "index.lock", git_dir / "HEAD.lock", git_dir / "refs" / "heads" / "symphony" / "MT-1.lock"
    )

    again = await manager.prepare(issue("MT-1"), 1)

    assert not again.created_now
    git(made.path, "add", "--all")
    git(made.path, "commit", "-q", "-m", "whole")
    assert (made.path / "half.txt").read_text() == "half\n"


async def test_nothing_is_cleared_where_a_workspace_only_points_to(
    make_manager: Make, repo: Path, tmp_path: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    _left(tmp_path / "elsewhere" / "index.lock", tmp_path / "elsewhere" / "refs" / "a.lock")
    refs = made.path / ".git" / "refs"
    refs.rename(tmp_path / "refs")
    refs.symlink_to(tmp_path / "elsewhere" / "refs")

    await manager.prepare(issue("MT-1"), 1)
    assert (tmp_path / "elsewhere" / "refs" / "a.lock").exists()

    (made.path / ".git").rename(tmp_path / "git")
    (made.path / ".git").symlink_to(tmp_path / "elsewhere")
    await manager.prepare(issue("MT-1"), 2)
    assert (tmp_path / "elsewhere" / "index.lock").exists()


async def test_who_comes_to_a_root_waits_until_the_one_who_is_alone_there_is_done(tmp_path: Path) -> None:
    path = tmp_path / "tenants"
    first, second = RootLease.at(path), RootLease.at(path)
    assert first is not None
    assert second is not None
    assert (first.alone, second.alone) == (True, False)
    first.share()
    second.share()
    del first
    third = RootLease.at(path)
    assert third is not None
    assert not third.alone
    del second, third
    fourth = RootLease.at(path)
    assert fourth is not None
    assert fourth.alone


async def test_where_there_can_be_no_file_nobody_is_told_and_nobody_is_alone(tmp_path: Path) -> None:
    assert RootLease.at(tmp_path) is None


async def test_a_record_that_was_half_written_goes_with_the_next_start(
    make_manager: Make, root: Path
) -> None:
    first = make_manager()
    await first.check_root()
    draft = root / ".symphony" / "records" / ".symphony-0123456789abcdef.tmp"
    _left(draft)
    await make_manager().check_root()
    assert draft.exists(), "another daemon may be writing it"
    del first
    await make_manager().check_root()
    assert not draft.exists()

"""Which lock files of git are removed, and who holds the lock of a root."""

import os
from pathlib import Path

import pytest

from symphony.workspaces import GitError, RootLease
from symphony.workspaces.locks import (
    clear_abandoned_locks,
    clear_branch_locks,
    clear_fetch_locks,
    clear_stale_locks,
    locked,
)

BRANCH = "refs/heads/symphony/SYM-1"
OLD, YOUNG, NO_LOCK = f"{BRANCH}.lock", "refs/heads/main.lock", "refs/heads/symphony/unlock"


@pytest.fixture
def git_dir(tmp_path: Path) -> Path:
    """A git directory with an old lock, a young one, one of the index, one of an object, and another file."""
    for name in (OLD, YOUNG, NO_LOCK, "index.lock", "objects/a.lock"):
        path = tmp_path / ".git" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in (OLD, NO_LOCK):
        os.utime(tmp_path / ".git" / name, (1, 1))
    return tmp_path / ".git"


def left(git_dir: Path) -> set[str]:
    return {str(path.relative_to(git_dir)) for path in git_dir.rglob("*") if path.is_file()}


def test_a_stale_lock_is_one_that_is_old(git_dir: Path) -> None:
    clear_stale_locks(git_dir)
    assert left(git_dir) == {YOUNG, NO_LOCK, "index.lock", "objects/a.lock"}


def test_where_no_process_is_all_locks_of_refs_and_index_go(git_dir: Path) -> None:
    clear_abandoned_locks(git_dir)
    assert left(git_dir) == {NO_LOCK, "objects/a.lock"}


def test_of_a_mirror_only_refs_that_a_fetch_writes_are_cleared(git_dir: Path) -> None:
    before = left(git_dir)
    fetched = {"refs/remotes/origin/symphony/a.lock", "refs/symphony/origin-head.lock"}
    kept = {"refs/symphony/pushed/symphony/a.lock", "refs/remotes/origin/main"}
    for name in fetched | kept:
        (git_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (git_dir / name).touch()
    clear_fetch_locks(git_dir)
    assert left(git_dir) == before | kept


def test_of_the_operators_repository_only_branches_of_issues_are_cleared(git_dir: Path) -> None:
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
    clear_branch_locks(git_dir.parent)
    assert left(git_dir) == {YOUNG, NO_LOCK, "HEAD", "index.lock", "objects/a.lock"}


def test_nothing_is_cleared_in_a_directory_behind_a_link(git_dir: Path, tmp_path: Path) -> None:
    (git_dir / "refs").rename(tmp_path / "refs")
    (git_dir / "refs").symlink_to(tmp_path / "refs")
    clear_abandoned_locks(git_dir)
    assert (tmp_path / "refs/heads/main.lock").exists()


@pytest.mark.asyncio
async def test_a_lock_is_waited_for_for_a_bounded_time(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "mirror"
    async with locked(path, 1):
        with pytest.raises(GitError, match=r"0\.01 s"):
            async with locked(path, 0.01):
                pytest.fail("two hold it")
    async with locked(path, 1):
        assert path.stat().st_mode & 0o777 == 0o600


def test_one_daemon_is_alone_at_a_root_until_it_shares(tmp_path: Path) -> None:
    first, second = RootLease.at(tmp_path / "tenants"), RootLease.at(tmp_path / "tenants")
    assert first is not None
    assert second is not None
    assert (first.alone, second.alone) == (True, False)
    first.share()
    second.share()
    assert RootLease.at(tmp_path) is None, "a directory can be no lock"

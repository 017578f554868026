"""What Git LFS keeps beside the commits is brought along, and nothing that is called otherwise."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.real import require_program
from symphony.domain import Issue
from symphony.workspaces import WorkspaceManager, WorkspaceRecord, copy_lfs_objects

GitCommand = Callable[..., str]


def put(git_dir: Path, content: bytes, *, name: str | None = None) -> Path:
    name = name or hashlib.sha256(content).hexdigest()
    path = git_dir / "lfs/objects" / name[:2] / name[2:4] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def held(git_dir: Path) -> set[bytes]:
    return {path.read_bytes() for path in (git_dir / "lfs/objects").rglob("*") if path.is_file()}


def test_objects_are_copied_once_and_are_what_they_are_called(tmp_path: Path) -> None:
    own, store = tmp_path / "own", tmp_path / "store"
    assert copy_lfs_objects(own, store) is None
    assert not store.exists(), "where nothing is kept in LFS nothing is made"
    one = put(own, b"one")
    put(own, b"two")
    assert copy_lfs_objects(own, store) is None
    assert held(store) == {b"one", b"two"}
    one.write_bytes(b"changed afterwards")
    assert copy_lfs_objects(own, store) is None, "it is there already"
    assert held(store) == {b"one", b"two"}


def test_what_is_not_what_it_is_called_stays_behind_and_is_told(tmp_path: Path) -> None:
    own, store = tmp_path / "own", tmp_path / "store"
    put(own, b"something else", name="a" * 64)
    put(own, b"fine")
    put(own, b"no object", name="README")
    left = copy_lfs_objects(own, store)
    assert left is not None
    assert held(store) == {b"fine"}


@pytest.mark.parametrize("link", ["lfs", "lfs/objects", "lfs/objects/aa", "file"])
def test_no_link_is_followed(tmp_path: Path, link: str) -> None:
    own, outside, store = tmp_path / "own", tmp_path / "outside", tmp_path / "store"
    secret = put(outside, b"secret")
    own.mkdir()
    if link == "file":
        target = put(own, b"x", name=secret.name)
        target.unlink()
        target.symlink_to(secret)
    else:
        place = own / link.replace("aa", secret.name[:2])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(outside / link.replace("aa", secret.name[:2]))
    copy_lfs_objects(own, store)
    assert not store.exists()


@pytest.mark.asyncio
async def test_workspaces_have_the_files_and_work_in_lfs_outlives_them(
    repo: Path,
    git: GitCommand,
    make_manager: Callable[..., WorkspaceManager],
    issue: Callable[[str], Issue],
) -> None:
    require_program("git-lfs", "Debian: git-lfs")
    git(repo, "lfs", "install", "--skip-repo")
    git(repo, "lfs", "track", "*.bin")
    (repo / "old.bin").write_bytes(b"old")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "large files")
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("SYM-1"), None)
    assert (made.path / "old.bin").read_bytes() == b"old"
    (made.path / "new.bin").write_bytes(b"new")
    git(made.path, "add", "-A")
    git(made.path, "commit", "-qm", "more")
    assert (await manager.deliver(made)).delivered
    assert held(repo / ".git") == {b"old", b"new"}
    record = WorkspaceRecord(issue_id="1", identifier="SYM-1", key=made.key, path=made.path)
    assert (await manager.remove(record)).removed
    again = await manager.prepare(issue("SYM-1"), None)
    assert (again.path / "new.bin").read_bytes() == b"new"
    (again.path / "old.bin").write_bytes(b"odd")
    assert "1 uncommitted" in str((await manager.remove(record)).kept_reason)


@pytest.mark.asyncio
async def test_a_workspace_stays_whose_objects_cannot_be_copied(
    repo: Path,
    git: GitCommand,
    make_manager: Callable[..., WorkspaceManager],
    issue: Callable[[str], Issue],
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("SYM-1"), None)
    put(made.path / ".git", b"large")
    (repo / ".git/lfs").write_text("in the way")
    git(made.path, "commit", "-q", "--allow-empty", "-m", "more")
    delivery = await manager.deliver(made)
    assert delivery.delivered
    assert any("Git LFS" in warning for warning in delivery.warnings)
    record = WorkspaceRecord(issue_id="1", identifier="SYM-1", key=made.key, path=made.path)
    kept = await manager.remove(record)
    assert (kept.removed, "Git LFS" in str(kept.kept_reason)) == (False, True)

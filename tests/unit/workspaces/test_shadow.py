import hashlib
import os
from pathlib import Path

import pytest

from symphony.workspaces import changed_files, hash_watched_files
from symphony.workspaces.shadow import copy_lfs_objects, is_content_of, read_ref_snapshot
from unit.workspaces.conftest import RunGit


class TestWatchedFiles:
    def test_an_untouched_directory_is_unchanged(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("[core]\n")

        assert changed_files(tmp_path, hash_watched_files(tmp_path)) == ()

    def test_changed_added_and_removed_files_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("[core]\n")
        (tmp_path / "info").mkdir()
        (tmp_path / "info" / "attributes").write_text("")
        (tmp_path / "hooks").mkdir()
        (tmp_path / "hooks" / "pre-push.sample").write_text("")
        sealed = hash_watched_files(tmp_path)

        (tmp_path / "config").write_text("[core]\n\tfsmonitor = evil\n")
        (tmp_path / "info" / "attributes").unlink()
        (tmp_path / "hooks" / "pre-commit").write_text("")
        (tmp_path / "hooks" / "other.sample").write_text("")
        os.mkfifo(tmp_path / "commondir")

        assert changed_files(tmp_path, sealed) == (
            "commondir",
            "config",
            "hooks/pre-commit",
            "info/attributes",
        )

    def test_a_hooks_directory_behind_a_link_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "hooks").symlink_to(tmp_path)

        assert changed_files(tmp_path, {}) == ("hooks",)


class TestRefs:
    def test_branches_stash_and_head_are_read(self, repo: Path, git: RunGit) -> None:
        first = git(repo, "rev-parse", "HEAD")
        (repo / "README.md").write_text("changed")
        git(repo, "stash", "-q")
        seen = read_ref_snapshot(repo)
        assert (seen.problem, seen.head, seen.head_branch, seen.changed) == (None, first, "main", ())
        assert seen.tips == {"refs/heads/main": first, "refs/stash": git(repo, "rev-parse", "stash")}
        git(repo, "checkout", "-q", "--detach")
        assert (read_ref_snapshot(repo).head, read_ref_snapshot(repo).head_branch) == (first, None)

    @pytest.mark.parametrize("part", [".git", ".git/objects"])
    def test_a_repository_behind_a_link_is_none(self, repo: Path, tmp_path: Path, part: str) -> None:
        (repo / part).rename(tmp_path / "elsewhere")
        (repo / part).symlink_to(tmp_path / "elsewhere")
        assert read_ref_snapshot(repo).problem is not None


class TestLfs:
    DATA = b"large"
    NAME = hashlib.sha256(DATA).hexdigest()

    def _object(self, git_dir: Path, data: bytes) -> Path:
        path = git_dir / "lfs" / "objects" / self.NAME[:2] / self.NAME[2:4] / self.NAME
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        return path

    def test_an_object_is_copied(self, tmp_path: Path) -> None:
        self._object(tmp_path / "own", self.DATA)
        assert copy_lfs_objects(tmp_path / "own", tmp_path / "mirror") is None
        (copy,) = (path for path in (tmp_path / "mirror").rglob("*") if path.is_file())
        assert (copy.name, copy.read_bytes()) == (self.NAME, self.DATA)

    def test_an_object_with_another_content_than_its_name_says_is_not(self, tmp_path: Path) -> None:
        self._object(tmp_path / "own", b"other")
        assert copy_lfs_objects(tmp_path / "own", tmp_path / "mirror") is not None
        assert [path for path in (tmp_path / "mirror").rglob("*") if path.is_file()] == []

    def test_one_that_is_there_stays(self, tmp_path: Path) -> None:
        self._object(tmp_path / "own", b"other")
        there = self._object(tmp_path / "mirror", self.DATA)
        assert copy_lfs_objects(tmp_path / "own", tmp_path / "mirror") is None
        assert there.read_bytes() == self.DATA

    @pytest.mark.parametrize(
        ("size", "name", "same"), [(5, NAME, True), (6, NAME, False), (5, "0" * 64, False)]
    )
    def test_a_file_is_the_content_of_its_pointer_by_size_and_hash(
        self, tmp_path: Path, size: int, name: str, *, same: bool
    ) -> None:
        (tmp_path / "file").write_bytes(self.DATA)
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {size}\n"
        assert is_content_of(pointer.encode(), tmp_path / "file") is same
        assert not is_content_of(b"text", tmp_path / "file")

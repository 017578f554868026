import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.workspaces import files


@pytest.mark.parametrize("kind", ["missing", "directory", "link", "pipe"])
def test_anything_else_is_not_copied(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thing"
    match kind:
        case "directory":
            path.mkdir()
        case "link":
            (tmp_path / "target").write_text("x")
            path.symlink_to(tmp_path / "target")
        case "pipe":
            os.mkfifo(path)
        case _:
            pass

    assert not files.copy_regular(path, tmp_path / "copy", 100)


def test_a_copy_keeps_the_modification_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    os.utime(tmp_path / "file", ns=(1, 1_234_567_890_123_456_789))

    assert files.copy_regular(tmp_path / "file", tmp_path / "copy", 100)
    assert (tmp_path / "copy").stat().st_mtime_ns == 1_234_567_890_123_456_789


def test_a_walk_goes_on_where_a_directory_is_removed_meanwhile(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    seen: list[str] = []
    for _, path in files.entries_below(tmp_path):
        seen.append(path)
        if path in {"a", "b"}:  # the first one that is found is gone before it is entered
            (tmp_path / path / "file").unlink()
            (tmp_path / path).rmdir()
    assert sorted(seen) == ["a", "b"]


def test_a_link_to_a_directory_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)

    assert files.is_directory(tmp_path)
    assert not files.is_directory(tmp_path / "link")
    assert not files.is_directory(tmp_path / "missing")


def test_deleting_never_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "precious")

    files.delete_tree(tmp_path / "tree")

    assert (tmp_path / "precious" / "file").exists()
    assert not (tmp_path / "tree").exists()


def test_of_a_link_only_the_link_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (tmp_path / "precious").chmod(0o555)
    (tmp_path / "link").symlink_to(tmp_path / "precious")

    files.delete_tree(tmp_path / "link")

    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert (tmp_path / "precious").stat().st_mode & 0o777 == 0o555
    assert (tmp_path / "precious" / "file").exists()


def test_emptying_spares_what_is_young_and_survives_what_cannot_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old-file", "young-file"):
        (tmp_path / name).write_text("x")
    for name in ("old-tree", "stuck-tree"):
        (tmp_path / name).mkdir()
    for name in ("old-file", "old-tree", "stuck-tree"):
        os.utime(tmp_path / name, (1, 1))
    real = files.delete_tree

    def stuck(path: Path) -> None:
        if path.name == "stuck-tree":
            raise OSError(16, "busy")
        real(path)

    monkeypatch.setattr(files, "delete_tree", stuck)
    files.delete_old_entries(tmp_path, older_than_s=60)
    files.delete_old_entries(tmp_path / "missing", older_than_s=0)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["stuck-tree", "young-file"]


class TestFingerprint:
    def test_it_is_the_same_for_the_same_tree(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "file").write_text("x")

        assert self.of(tmp_path) == self.of(tmp_path)

    def test_it_changes_with_names_sizes_times_and_kinds(self, tmp_path: Path) -> None:
        seen = {self.of(tmp_path)}
        (tmp_path / "file").write_text("x")
        seen.add(self.of(tmp_path))
        (tmp_path / "file").write_text("xy")
        seen.add(self.of(tmp_path))
        os.utime(tmp_path / "file", (1, 1))
        seen.add(self.of(tmp_path))
        (tmp_path / "file").rename(tmp_path / "renamed")
        seen.add(self.of(tmp_path))
        (tmp_path / "renamed").unlink()
        (tmp_path / "renamed").symlink_to("nowhere")
        seen.add(self.of(tmp_path))

        assert len(seen) == 6

    def test_git_directories_do_not_count(self, tmp_path: Path) -> None:
        before = self.of(tmp_path)
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "index").write_text("x")

        assert self.of(tmp_path) == before

    def test_it_is_bounded(self, tmp_path: Path) -> None:
        for number in range(5):
            (tmp_path / str(number)).write_text("x")
        bounded = files.fingerprint(tmp_path, max_entries=4)
        (tmp_path / "4").write_text("changed beyond the bound")

        assert files.fingerprint(tmp_path, max_entries=4) == bounded

    def test_what_vanishes_meanwhile_is_told_as_gone(self, tmp_path: Path) -> None:
        assert files.stat_line(tmp_path / "missing", b"missing") == b"missing\0gone\n"

    def of(self, path: Path) -> str:
        return files.fingerprint(path, max_entries=1_000)


def test_time_is_what_the_age_is_measured_by(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.utime(tmp_path / "file", (time.time() - 100, time.time() - 100))

    files.delete_old_entries(tmp_path, older_than_s=200)
    assert (tmp_path / "file").exists()
    files.delete_old_entries(tmp_path, older_than_s=50)
    assert not (tmp_path / "file").exists()


@pytest.fixture
def nested(tmp_path: Path) -> Iterator[Path]:
    """Directories in directories, far deeper than one path can name or than Python recurses."""
    root = tmp_path / "trees" / "nested"
    root.mkdir(parents=True)
    inner = os.open(root, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("deep", dir_fd=inner)
        outer, inner = inner, os.open("deep", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)
    yield root
    subprocess.run(["rm", "-rf", "--", root], check=True)  # pytest's own clean-up would recurse


class TestTreesNestedWithoutEnd:
    def test_one_is_deleted(self, nested: Path) -> None:
        (nested / "file").write_text("x")

        files.delete_tree(nested)

        assert not nested.exists()

    def test_one_in_the_trash_does_not_keep_the_daemon_from_starting(self, nested: Path) -> None:
        files.delete_old_entries(nested.parent, older_than_s=0)

        assert not nested.exists()

    def test_one_has_a_fingerprint(self, nested: Path) -> None:
        before = files.fingerprint(nested, max_entries=5_000)
        (nested / "file").write_text("x")

        assert files.fingerprint(nested, max_entries=5_000) != before


def test_a_read_only_tree_is_deleted(tmp_path: Path) -> None:
    inner = tmp_path / "tree" / "cache" / "module"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for directory in (inner, inner.parent, inner.parent.parent):
        directory.chmod(0o500)

    files.delete_tree(tmp_path / "tree")

    assert not list(tmp_path.iterdir())

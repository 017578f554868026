import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.small_files import files_of_at_most
from symphony import files


@pytest.fixture(params=[0o022, 0o077, 0o002], ids=["022", "077", "002"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    mask: int = request.param
    before = os.umask(mask)
    try:
        yield mask
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_regular_file_within_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")

    assert files.read_regular(tmp_path / "file", 4) == b"1234"
    assert files.read_regular(tmp_path / "file", 3) is None


def test_what_has_to_be_there_and_is_not_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")

    assert files.read_present(tmp_path / "file", 4) == b"1234"
    assert files.read_present(tmp_path / "file", 3) is None
    with pytest.raises(FileNotFoundError):
        files.read_present(tmp_path / "missing", 4)


def test_an_atomic_write_replaces_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a long old content")

    files.write_atomic(tmp_path / "file", b"new")

    assert (tmp_path / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_atomic_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")

    with files_of_at_most(2), pytest.raises(OSError, match="File too large"):
        files.write_atomic(tmp_path / "file", b"new")

    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["missing", "directory", "link", "pipe"])
def test_anything_else_reads_as_none_at_once(tmp_path: Path, kind: str) -> None:
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
    assert files.read_regular(path, 100) is None
    if kind in {"missing", "link"}:
        assert files.read_if_there(path, 100) is None
        with pytest.raises(OSError, match=r"No such file|symbolic links"):
            files.open_regular(path)
    else:
        assert files.open_regular(path) is None


def test_a_file_is_read_relative_to_an_open_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"1")
    directory = os.open(tmp_path / "real", os.O_PATH)
    (tmp_path / "real").rename(tmp_path / "moved")
    try:
        file = files.open_regular("file", directory)
        assert file is not None
        with file:
            assert file.read() == b"1"
    finally:
        os.close(directory)


@pytest.mark.parametrize("durable", [False, True])
def test_a_link_is_replaced_and_not_followed(tmp_path: Path, *, durable: bool) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / "file").symlink_to(tmp_path / "target")
    files.write_atomic(tmp_path / "file", b"new", durable=durable)
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "target").read_text() == "kept"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
def test_the_umask_limits_the_mode_unless_it_is_exact(tmp_path: Path, umask: int, mode: int) -> None:
    files.write_atomic(tmp_path / "limited", b"x", mode=mode)
    with files.draft(tmp_path / "exact", b"x", mode=mode, exactly=True) as made:
        made.rename(tmp_path / "exact")
    files.write_new(tmp_path / "new", b"x", mode)
    assert mode_of(tmp_path / "limited") == mode_of(tmp_path / "new") == mode & ~umask
    assert mode_of(tmp_path / "exact") == mode


@pytest.mark.parametrize("content", ["file", "link", "broken link"])
def test_a_new_file_keeps_what_has_its_name(tmp_path: Path, content: str) -> None:
    path, target = tmp_path / "file", tmp_path / "target"
    if content == "file":
        path.write_text("old")
    else:
        path.symlink_to(target)
    if content == "link":
        target.write_text("old")
    with pytest.raises(FileExistsError):
        files.write_atomic(path, b"x", new=True)
    with pytest.raises(FileExistsError):
        files.write_new(path, b"x", 0o600)
    assert path.is_symlink() is (content != "file")
    assert target.exists() is (content == "link")
    assert not [one.name for one in tmp_path.iterdir() if files.is_draft(one.name)]


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
@pytest.mark.parametrize("taken", [False, True])
def test_a_new_file_needs_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, *, taken: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = tmp_path / "file"
    if taken:
        path.write_text("old")
        with pytest.raises(FileExistsError):
            files.write_atomic(path, b"new", new=True)
    else:
        files.write_atomic(path, b"new", new=True)
    assert path.read_text() == ("old" if taken else "new")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_failed_new_file_leaves_nothing(tmp_path: Path) -> None:
    with files_of_at_most(2), pytest.raises(OSError, match="File too large"):
        files.write_new(tmp_path / "file", b"123", 0o600)
    with files_of_at_most(2), pytest.raises(OSError, match="File too large"):
        files.write_atomic(tmp_path / "file", b"123", new=True, durable=True)
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_replaced_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        files.write_atomic(tmp_path / "file", b"x")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_draft_is_recognised_by_its_name(tmp_path: Path) -> None:
    with files.draft(tmp_path / "file", b"x") as made:
        assert made.parent == tmp_path
        assert files.is_draft(made.name)
        assert made.name.startswith(files.DRAFT_PREFIX)
    assert not files.is_draft(".symphony-mine.tmp")
    assert list(tmp_path.iterdir()) == []


def test_one_descriptor_at_a_time_holds_a_lock(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    try:
        assert files.try_lock(first)
        assert not files.try_lock(second)
    finally:
        os.close(first)
    assert files.try_lock(second)
    os.close(second)

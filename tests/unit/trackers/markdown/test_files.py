import errno
import fcntl
import os
from pathlib import Path

import pytest

from harness.small_files import files_of_at_most
from symphony.trackers.markdown import files


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"x\r\n\0")
    assert files.read(tmp_path / "a.md", root=tmp_path) == b"x\r\n\0"


def test_exactly_one_megabyte_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"x" * files.MAX_FILE_BYTES)
    assert len(files.read(path, root=tmp_path)) == files.MAX_FILE_BYTES
    path.write_bytes(b"x" * (files.MAX_FILE_BYTES + 1))
    with pytest.raises(files.RefusedFileError, match="1 MB"):
        files.read(path, root=tmp_path)


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fstat = tmp_path / "a.md", os.fstat
    path.write_bytes(b"one")

    def growing(descriptor: int) -> os.stat_result:
        seen = fstat(descriptor)
        path.write_bytes(b"one, two and three")
        return seen

    monkeypatch.setattr(os, "fstat", growing)
    assert files.read(path, root=tmp_path) == b"one, two and three"


def test_a_file_system_that_reads_and_writes_piece_by_piece_is_served_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.read, os.write
    monkeypatch.setattr(os, "read", lambda descriptor, size: read(descriptor, min(size, 2)))
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:2]))
    assert files.create(tmp_path / "a.md", b"seven..")
    assert files.replace(tmp_path / "a.md", b"eleven.....", expected=b"seven..", root=tmp_path)
    assert files.read(tmp_path / "a.md", root=tmp_path) == b"eleven....."


def test_a_link_within_the_folder_is_followed_and_one_that_leaves_it_is_not(tmp_path: Path) -> None:
    board = tmp_path / "board"
    board.mkdir()
    (board / "a.md").write_text("in", encoding="utf-8")
    (tmp_path / "secret").write_text("out", encoding="utf-8")
    (board / "b.md").symlink_to("a.md")
    (board / "c.md").symlink_to("../secret")
    assert files.read(board / "b.md", root=board) == b"in"
    with pytest.raises(files.RefusedFileError, match="leaves the folder"):
        files.read(board / "c.md", root=board)


def test_a_pipe_does_not_block_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.md")
    with pytest.raises(files.RefusedFileError, match="regular"):
        files.read(tmp_path / "a.md", root=tmp_path)


def test_a_new_file_appears_whole_and_never_over_another(tmp_path: Path) -> None:
    assert files.create(tmp_path / "a.md", b"one")
    assert not files.create(tmp_path / "a.md", b"two")
    assert (tmp_path / "a.md").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["a.md"]  # noqa: PTH208 - names, dot files included


def test_a_file_system_without_hard_links_is_served_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path, __: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    assert files.create(tmp_path / "a.md", b"one")
    assert not files.create(tmp_path / "a.md", b"two")
    assert (tmp_path / "a.md").read_bytes() == b"one"


def test_another_link_error_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path, __: Path) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(OSError, match="broken disk"):
        files.create(tmp_path / "a.md", b"one")
    assert list(tmp_path.iterdir()) == []


def test_a_replacement_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"one")
    path.chmod(0o640)
    assert files.replace(path, b"two", expected=b"one", root=tmp_path)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_changed_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"other")
    assert not files.replace(path, b"two", expected=b"one", root=tmp_path)
    assert path.read_bytes() == b"other"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"one")
    (tmp_path / "b.md").symlink_to("a.md")
    with pytest.raises(files.RefusedFileError, match="link"):
        files.replace(tmp_path / "b.md", b"two", expected=b"one", root=tmp_path)


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with files_of_at_most(2), pytest.raises(OSError, match="File too large"):
        files.create(tmp_path / "a.md", b"one")
    assert list(tmp_path.iterdir()) == []


def test_only_old_temporary_files_are_swept(tmp_path: Path) -> None:
    old, young = tmp_path / f".symphony-{'0' * 16}.tmp", tmp_path / f".symphony-{'1' * 16}.tmp"
    other = tmp_path / ".symphony-mine.tmp"
    for path in (old, young, other):
        path.touch()
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    files.sweep(tmp_path)
    assert set(tmp_path.iterdir()) == {young, other}


def test_the_folder_lock_excludes_others_and_leaves_nothing_behind(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with files.locked(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_keeps_the_lock_does_not_stop_us(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with files.locked(tmp_path, wait_s=0.02):
            assert files.create(tmp_path / "a.md", b"one")
    finally:
        os.close(other)


def test_a_file_system_without_locks_is_served_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, __: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with files.locked(tmp_path):
        assert files.create(tmp_path / "a.md", b"one")

"""Files that checks leave: what of a hostile checkout is kept, and under which names."""

import os
from pathlib import Path
from urllib.parse import unquote

import pytest

from symphony.daemon.runs import artifacts
from symphony.daemon.runs.artifacts import find_artifacts, keep_artifact, read_artifact
from symphony.domain import KeptFile, Redaction

SECRET = "correct-horse-battery"


def found(tree: Path, end: str = "") -> dict[str, bytes | None]:
    redaction = Redaction([SECRET])
    return {
        file.name: data for file, data in find_artifacts(tree, lambda path: path.endswith(end), redaction)
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    (path / "reports").mkdir(parents=True)
    (path / "reports/junit.xml").write_text("<testsuite/>")
    return path


def test_only_regular_files_that_fit_are_found_and_none_elsewhere(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.xml"
    outside.write_text("private")
    (tree / "link.xml").symlink_to(outside)
    (tree / "away").symlink_to(tmp_path)
    os.link(outside, tree / "hard.xml")
    os.mkfifo(tree / "fifo.xml")
    (tree / "directory.xml").mkdir()
    (tree / ".git").mkdir()
    (tree / ".git/index.xml").write_text("git's own")
    (tree / "notes.txt").write_text("does not fit")
    assert found(tree, ".xml") == {"reports/junit.xml": b"<testsuite/>"}


def test_secrets_are_masked_and_every_other_byte_is_kept(tree: Path) -> None:
    every = bytes(range(256))
    (tree / "a.bin").write_bytes(every + SECRET.encode() + every)
    (tree / f"{SECRET}.bin").write_bytes(b"")
    kept = found(tree, ".bin")
    assert kept["a.bin"] == every + b"***" + every
    assert SECRET not in str(kept.keys())


def test_much_and_large_is_bounded(tree: Path) -> None:
    with (tree / "huge.log").open("wb") as file:
        file.truncate(1024**3)
    assert found(tree, ".log") == {"huge.log": None}
    for number in range(artifacts.MAX_FILES + 5):
        (tree / f"{number}.txt").write_text("x")
    assert len(found(tree, ".txt")) == artifacts.MAX_FILES
    for number in range(9):
        (tree / f"{number}.dat").write_bytes(b"x" * artifacts.MAX_FILE_BYTES)
    sizes = [data and len(data) for data in found(tree, ".dat").values()]
    assert sizes == [artifacts.MAX_FILE_BYTES] * 8 + [None], "all together have a limit too"


def test_files_below_very_many_directories_are_left_out(tree: Path) -> None:
    deep = tree.joinpath(*["d"] * 100)
    deep.mkdir(parents=True)
    (deep / "a.xml").write_text("deep")
    (tree / "d" / "d" / "b.xml").write_text("not so deep")
    assert list(found(tree)) == ["d/d/b.xml", "reports/junit.xml"]


@pytest.mark.parametrize(
    "name",
    [bytes([byte]) for byte in range(1, 256) if byte not in b"./"]
    + [b"..x", b"%2F", b"a%2e%2e", b"x" * 255, "ü".encode() * 120, b"-rf", b"<img src=x>", "\u202e".encode()],
)
def test_a_name_of_any_bytes_is_kept_as_one_plain_file(tree: Path, tmp_path: Path, name: bytes) -> None:
    (tree / os.fsdecode(name)).write_bytes(b"content")
    ((kept, data),) = find_artifacts(tree, lambda path: "junit" not in path, Redaction())
    assert data == b"content"
    place = tmp_path / "kept"
    keep_artifact(place, kept.name, data)
    (file_name,) = (path.name for path in place.iterdir())
    assert file_name == kept.file
    assert file_name.isascii()
    assert not {*"/\\<>&\"' \n"} & {*file_name}
    assert read_artifact(place, kept.file) == b"content"


@pytest.mark.parametrize("file", ["..", ".", "", "../secret", "%2e./../secret/x", "a/b", "a\0", "x" * 300])
def test_nothing_but_a_kept_file_is_read(tmp_path: Path, file: str) -> None:
    place = tmp_path / "kept"
    keep_artifact(place, "../../etc/passwd", b"x")
    (tmp_path / "secret").write_text("private")
    assert read_artifact(place, file) is None
    assert [path.name for path in tmp_path.rglob("*passwd*")] == ["%2E.%2F..%2Fetc%2Fpasswd"]
    assert unquote("%2E.%2F..%2Fetc%2Fpasswd") == "../../etc/passwd"


def test_a_kept_file_that_became_a_link_is_not_read(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    place.mkdir()
    (place / KeptFile(name="a.txt").file).symlink_to("/etc/passwd")
    assert read_artifact(place, "a.txt") is None

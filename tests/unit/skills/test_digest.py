import hashlib
import os
from pathlib import Path

import pytest

from symphony.skills import file_digests
from symphony.skills.digest import MAX_FILE_BYTES, MAX_TOTAL_BYTES

NAME = ".symphony/skills/greet/SKILL.md"


def put(workspace: Path, data: bytes, name: str = NAME) -> Path:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_the_digest_is_of_the_whole_file_and_not_of_its_beginning(tmp_path: Path) -> None:
    data = b"---\nname: greet\n---\n" + b"x" * 200_000
    put(tmp_path, data)
    assert file_digests(tmp_path, [NAME, NAME]) == {NAME: hashlib.sha256(data).hexdigest()}


def test_an_empty_file_has_a_digest_and_a_missing_one_has_none(tmp_path: Path) -> None:
    put(tmp_path, b"")
    found = file_digests(tmp_path, [NAME, "nowhere/SKILL.md"])
    assert found == {NAME: hashlib.sha256(b"").hexdigest()}


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "a/../../outside", "", ".", "a\0b"])
def test_nothing_outside_of_the_workspace_is_opened(tmp_path: Path, path: str) -> None:
    workspace = tmp_path / "workspace"
    put(workspace, b"inside")
    put(tmp_path, b"secret", "outside")
    assert file_digests(workspace, [path]) == {}


def test_a_link_is_followed_within_the_workspace_and_not_out_of_it(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    put(tmp_path, b"secret", "outside")
    put(workspace, b"inside", "real.md")
    (workspace / "out.md").symlink_to(tmp_path / "outside")
    (workspace / "in.md").symlink_to("real.md")
    assert file_digests(workspace, ["out.md", "in.md"]) == {"in.md": hashlib.sha256(b"inside").hexdigest()}


def test_directories_and_pipes_have_no_digest_and_block_nobody(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert file_digests(tmp_path, ["directory", "pipe"]) == {}


def test_a_large_file_has_no_digest(tmp_path: Path) -> None:
    put(tmp_path, bytes(MAX_FILE_BYTES + 1))
    put(tmp_path, bytes(MAX_FILE_BYTES), "small.md")
    assert list(file_digests(tmp_path, [NAME, "small.md"])) == ["small.md"]


def test_many_files_share_one_limit(tmp_path: Path) -> None:
    names = [f"{number}.bin" for number in range(MAX_TOTAL_BYTES // MAX_FILE_BYTES + 2)]
    for name in names:
        put(tmp_path, bytes(MAX_FILE_BYTES - 1), name)
    assert list(file_digests(tmp_path, names)) == names[:-2]


def test_a_file_that_grows_while_it_is_read_has_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = put(tmp_path, b"x" * 5, "growing"), os.read

    def growing(descriptor: int, size: int) -> bytes:
        with path.open("ab") as file:
            file.write(bytes(MAX_FILE_BYTES // 3))
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", growing)
    assert file_digests(tmp_path, ["growing"]) == {}

"""Git LFS objects as a tar file: packed from several stores, and checked before they are taken over."""

import hashlib
import io
import tarfile
from pathlib import Path

from symphony.workspaces import (
    LFS_OBJECTS,
    lfs_object_name,
    pack_lfs_objects,
    present_lfs_objects,
    unpack_lfs_objects,
)


def put(store: Path, content: bytes) -> str:
    oid = hashlib.sha256(content).hexdigest()
    path = store / LFS_OBJECTS / lfs_object_name(oid)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return oid


def test_objects_travel_in_a_file(tmp_path: Path) -> None:
    first, second, target = (tmp_path / name for name in ("first", "second", "target"))
    oids = {put(first, b"one"), put(second, b"two")}
    assert (
        present_lfs_objects([first], oids) < present_lfs_objects([first, second], [*oids, "f" * 64]) == oids
    )
    pack_lfs_objects([first, second], oids, tmp_path / "objects.tar")
    assert unpack_lfs_objects(tmp_path / "objects.tar", tmp_path / "staging", target) is None
    assert present_lfs_objects([target], oids) == oids


def test_nothing_else_is_taken_from_a_host(tmp_path: Path) -> None:
    good = hashlib.sha256(b"good").hexdigest()
    with tarfile.open(tmp_path / "objects.tar", "w") as archive:
        for name, content in (
            (lfs_object_name(good), b"good"),
            (lfs_object_name("a" * 64), b"something else"),
            ("../../outside", b"x"),
            (str(tmp_path / "absolute"), b"x"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(lfs_object_name("b" * 64))
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert unpack_lfs_objects(tmp_path / "objects.tar", tmp_path / "staging", tmp_path / "target") is not None
    found = [path.read_bytes() for path in (tmp_path / "target").rglob("*") if path.is_file()]
    assert found == [b"good"]
    assert {path.name for path in tmp_path.iterdir()} == {"objects.tar", "staging", "target"}

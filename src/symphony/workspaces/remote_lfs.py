"""Git LFS objects on their way to a host and back: which ones, as a tar file, and checked."""

import re
import tarfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from symphony.workspaces.git import Git, GitError
from symphony.workspaces.shadow import copy_lfs_objects

LFS_OBJECTS: Final = "lfs/objects"
"""Where objects are in a git directory, each as `ab/cd/abcd...`, by the SHA-256 of its content."""

_ATTRIBUTES: Final = (".gitattributes", ":(glob)**/.gitattributes")
_POINTER_LINE: Final = "^oid sha256:[0-9a-f]{64}$"
_NAME: Final = re.compile(r"([0-9a-f]{2})/([0-9a-f]{2})/\1\2[0-9a-f]{60}")
_CHUNK_BYTES: Final = 1024 * 1024


def lfs_object_name(oid: str) -> str:
    """The path of an object below `LFS_OBJECTS`."""
    return f"{oid[:2]}/{oid[2:4]}/{oid}"


async def objects_of(git: Git, git_dir: Path, commit: str) -> frozenset[str]:
    """The objects that files of a commit stand for; none if no attributes of it name Git LFS."""
    grep = ("-C", git_dir, "grep", "-h", "-I", "--no-color", "-E")
    try:
        await git.isolated(*grep, "filter=lfs", commit, "--", *_ATTRIBUTES)
        lines = await git.isolated(*grep, _POINTER_LINE, commit)
    except GitError:  # this is how git says that there is none
        return frozenset()
    return frozenset(line.rpartition(":")[2] for line in lines.decode("ascii", "replace").splitlines())


def present_lfs_objects(stores: Sequence[Path], oids: Collection[str]) -> frozenset[str]:
    """Those of the objects that one of the git directories has; blocking."""
    names = {oid: f"{LFS_OBJECTS}/{lfs_object_name(oid)}" for oid in oids}
    return frozenset(oid for oid, name in names.items() if any((store / name).is_file() for store in stores))


def pack_lfs_objects(stores: Sequence[Path], oids: Collection[str], file: Path) -> None:
    """Write objects of the git directories into a tar file; blocking. Raises `OSError`."""
    with tarfile.open(file, "w") as archive:
        for oid in sorted(oids):
            name = lfs_object_name(oid)
            found = next(store for store in stores if (store / LFS_OBJECTS / name).is_file())
            archive.add(found / LFS_OBJECTS / name, arcname=name, recursive=False)


def unpack_lfs_objects(file: Path, staging: Path, target: Path) -> str | None:
    """Take the objects of a tar file over into a git directory, each after a check of its content; blocking.

    Returns:
        as `copy_lfs_objects`.

    Raises:
        OSError, tarfile.TarError: it cannot be read, or there is no room.
    """
    with tarfile.open(file) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() and _NAME.fullmatch(member.name) else None
            if stream is None:
                continue
            path = staging / LFS_OBJECTS / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as out:
                while data := stream.read(_CHUNK_BYTES):
                    out.write(data)
    return copy_lfs_objects(staging, target)

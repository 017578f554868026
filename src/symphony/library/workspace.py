"""Writes, refreshes and removes the library's skills in a workspace. Everything blocks.

A record outside the workspace has the written files by digest. A file that is not in the record, or that git
tracks, belongs to the repository and is never touched. No link is followed.
"""

import os
import stat
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
from msgspec import Struct

from symphony.files import write_atomic
from symphony.library.model import LibraryError
from symphony.skills import FILE_NAME

LEGACY_DIRECTORY: Final = ".opencode/skills"
"""A second directory in which some agents write skills."""
_MAX_OTHERS: Final = 2_000
_MAX_EXCLUDE_BYTES: Final = 1024 * 1024
_BEGIN: Final = b"# symphony: skills of the library\n"
_END: Final = b"# symphony: end\n"


class WrittenSkill(Struct, frozen=True, kw_only=True):
    """A written skill: its version, and the SHA-256 of the file."""

    version: int
    sha256: str


class WrittenSkills(Struct, frozen=True, kw_only=True):
    """The record of a workspace.

    Attributes:
        directory: the directory of skills, relative to the workspace.
        skills: the written skills by name.
        others: skill files that were there before the first one, relative to the workspace.
    """

    directory: str
    skills: dict[str, WrittenSkill]
    others: tuple[str, ...] = ()


def read_written(record: Path) -> WrittenSkills | None:
    """The record; `None` if there is no readable one."""
    try:
        return msgspec.json.decode(record.read_bytes(), type=WrittenSkills)
    except (OSError, msgspec.MsgspecError):
        return None


def contained(workspace: Path, directory: str) -> Path | None:
    """A directory of a workspace; `None` if it is missing or a link is on the way."""
    path = workspace / PurePosixPath(directory)
    return path if path.is_dir() and Path(os.path.realpath(path)) == path else None


def write_skills(
    workspace: Path,
    record: Path,
    directory: str,
    skills: Mapping[str, tuple[int, bytes]],
    *,
    tracked: Collection[str] = (),
) -> tuple[str, ...]:
    """Write exactly these skills, and remove other skills that an earlier call wrote.

    Args:
        workspace: the resolved path.
        record: the record of this workspace, which is updated.
        directory: the directory of skills, relative to the workspace.
        skills: version and file, by name.
        tracked: files of the directory that git tracks, relative to the workspace.

    Returns:
        the names that were not written, because something else is in their place.

    Raises:
        LibraryError: the directory cannot be used.
        OSError: the file system failed.
    """
    earlier = read_written(record)
    before = earlier or WrittenSkills(directory=directory, skills={})
    mine = dict(before.skills)
    old = contained(workspace, before.directory)
    for name in mine if before.directory != directory else mine.keys() - skills.keys():
        if old is not None and f"{before.directory}/{name}/{FILE_NAME}" not in tracked:
            _remove(old / name)
    root = _make(workspace, directory) if skills else workspace
    known = mine if before.directory == directory else {}
    taken = tuple(
        name
        for name in skills
        if os.path.lexists(workspace / directory / name)
        and (
            name not in known
            or f"{directory}/{name}/{FILE_NAME}" in tracked
            or (workspace / directory / name).is_symlink()
        )
    )
    written = {
        name: WrittenSkill(version=version, sha256=sha256(data).hexdigest())
        for name, (version, data) in skills.items()
        if name not in taken
    }
    if earlier is None or earlier.directory != directory:
        there = _skill_paths(workspace, directory)
        others = tuple(path for path in there if _owner(path, directory) not in written)
    else:  # later files belong to the agent
        others = earlier.others
    # The record is written first: after a crash the next attempt may still replace and remove the files.
    record.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(
        record,
        msgspec.json.encode(WrittenSkills(directory=directory, skills=written, others=others)),
        mode=0o644,
    )
    _exclude(workspace / ".git" / "info", directory, written)
    for name in written:
        (root / name).mkdir(exist_ok=True)
        write_atomic(root / name / FILE_NAME, skills[name][1], mode=0o644)
    return taken


def _make(workspace: Path, directory: str) -> Path:
    path = workspace
    for part in PurePosixPath(directory).parts:
        path /= part
        path.mkdir(exist_ok=True)
        if path.is_symlink():
            raise LibraryError(
                f"{directory} of the workspace is behind a link",
                hint="set agent.library.directory to another",
            )
    return path


def _remove(directory: Path) -> None:
    """Remove the file of a skill, and its directory if nothing else is in it."""
    if directory.is_symlink() or not directory.is_dir():
        return
    (directory / FILE_NAME).unlink(missing_ok=True)
    if not any(directory.iterdir()):
        directory.rmdir()


def _owner(path: str, directory: str) -> str | None:
    """The name of the skill at this path; `None` if the path is not in the directory."""
    parts = PurePosixPath(path).parts
    inside = PurePosixPath(path).is_relative_to(directory) and parts[-1] == FILE_NAME
    return parts[-2] if inside else None


def _skill_paths(workspace: Path, directory: str) -> tuple[str, ...]:
    """Possible skill files in the two directories, relative to the workspace."""
    found: list[str] = []
    for one in (directory, LEGACY_DIRECTORY):
        if (root := contained(workspace, one)) is None:
            continue
        with os.scandir(root) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if os.path.lexists(f"{entry.path}/{FILE_NAME}"):
                        found.append(f"{one}/{entry.name}/{FILE_NAME}")
                elif entry.name.endswith(".md"):
                    found.append(f"{one}/{entry.name}")
    return tuple(sorted(found)[:_MAX_OTHERS])


def _exclude(info: Path, directory: str, names: Collection[str]) -> None:
    """Keep the files out of commits; do nothing if the workspace is not a clone made by Symphony."""
    if info.parent.is_symlink() or not info.parent.is_dir():
        return
    info.mkdir(exist_ok=True)
    file = info / "exclude"
    if info.is_symlink() or (os.path.lexists(file) and not stat.S_ISREG(file.lstat().st_mode)):
        raise LibraryError(
            f"{file} is not a regular file", hint="remove the workspace; the next run makes a new one"
        )
    text = b""
    if file.exists():
        with file.open("rb") as stream:
            text = stream.read(_MAX_EXCLUDE_BYTES)
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    lines = "".join(f"/{directory}/{name}/\n" for name in sorted(names)).encode()
    block = _BEGIN + lines + _END if lines else b""
    if before and not before.endswith(b"\n"):
        before += b"\n"
    if (new := before + block + after) != text:
        write_atomic(file, new, mode=0o644)

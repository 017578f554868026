"""Reads one skill's folder whole, in order to copy it: bounded, and nothing from outside of its anchor."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from symphony.skills import beneath
from symphony.skills.model import FILE_NAME
from symphony.skills.text import clean

__all__ = ["Bundle", "BundleError", "BundledFile", "read_bundle", "read_file"]

MAX_FILES: Final = 500
MAX_BYTES: Final = 32 * 1024 * 1024
_MAX_DEPTH: Final = 8
_CHUNK: Final = 65_536
_LEFT_OUT: Final = frozenset({".git", ".DS_Store", "__pycache__"})


class BundleError(Exception):
    """The folder cannot be copied; the text is one sentence without anything of a file's content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledFile:
    """One file: its bytes, and whether its owner may run it."""

    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The files of one skill by their paths below its folder, with `/`; one of them is SKILL.md."""

    files: Mapping[str, BundledFile]


def read_bundle(anchor: Path, parts: tuple[str, ...]) -> Bundle:
    """The folder that `parts` lead to below the anchor, at most 500 files and 32 MiB.

    Links are followed where they stay below the anchor; what they lead to is copied. `.git`, `.DS_Store` and
    `__pycache__` are left out.

    Raises:
        BundleError: it is too large, cannot be read, or holds a link that leads out or something that is
            neither file nor folder.
    """
    reader = _Reader(anchor.absolute())
    try:
        descriptor = beneath.open_directory(reader.anchor, parts)
        try:
            reader.walk(descriptor, parts, "")
        finally:
            os.close(descriptor)
    except (OSError, beneath.OutsideWorkspaceError) as error:
        raise BundleError(_reason(error, "the folder")) from None
    if FILE_NAME not in reader.files:
        raise BundleError(f"there is no {FILE_NAME}")
    return Bundle(files=reader.files)


def read_file(anchor: Path, parts: tuple[str, ...]) -> BundledFile:
    """One file of at most 32 MiB. Raises `BundleError`, as `read_bundle`."""
    reader = _Reader(anchor.absolute())
    try:
        directory = beneath.open_directory(reader.anchor, parts[:-1])
        try:
            reader.take(directory, parts, parts[-1])
        finally:
            os.close(directory)
    except (OSError, beneath.OutsideWorkspaceError) as error:
        raise BundleError(_reason(error, parts[-1])) from None
    if parts[-1] not in reader.files:
        raise BundleError(f"{clean(parts[-1])} is not a file")
    return reader.files[parts[-1]]


class _Reader:
    """Takes files in until there are too many."""

    __slots__ = ("_entries", "_room", "anchor", "files")

    def __init__(self, anchor: Path) -> None:
        self.anchor = anchor
        self.files: dict[str, BundledFile] = {}
        self._entries = 0
        self._room = MAX_BYTES

    def walk(self, directory: int, parts: tuple[str, ...], above: str) -> None:
        for name in sorted(os.listdir(directory)):
            if name not in _LEFT_OUT:
                self.take(directory, (*parts, name), f"{above}{name}")

    def take(self, directory: int, parts: tuple[str, ...], path: str) -> None:
        """A file, or all that is below a folder."""
        self._entries += 1
        if self._entries > MAX_FILES or path.count("/") > _MAX_DEPTH:
            raise BundleError(f"it holds more than {MAX_FILES} files, or folders more than {_MAX_DEPTH} deep")
        try:
            descriptor = beneath.open_file(self.anchor, directory, parts)
        except (OSError, beneath.OutsideWorkspaceError) as error:
            raise BundleError(_reason(error, path)) from None
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                self.walk(descriptor, parts, f"{path}/")
            elif stat.S_ISREG(mode):
                data = self._read(descriptor)
                self.files[path] = BundledFile(data=data, executable=bool(mode & stat.S_IXUSR))
            else:
                raise BundleError(f"{clean(path)} is neither a file nor a folder")
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> bytes:
        data = bytearray()
        while chunk := os.read(descriptor, _CHUNK):
            data += chunk
            self._room -= len(chunk)
            if self._room < 0:
                raise BundleError(f"it is larger than {MAX_BYTES // 1024**2} MiB")
        return bytes(data)


def _reason(error: Exception, path: str) -> str:
    if isinstance(error, OSError):
        return f"{clean(path)} cannot be read: {error.strerror}"
    return f"{clean(path)} is a link that leads out of the source"

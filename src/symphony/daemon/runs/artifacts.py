"""Finds files that checks leave in a checkout, such as reports, and stores them with the run.

The agent controls the checkout, so nothing in it is trusted: no link is followed, only regular files with one
name are read, and everything is limited. A stored file is in the directory of its run, named by its
percent-encoded path in the checkout.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from symphony.domain import KeptFile, Redaction
from symphony.files import open_regular, read_regular, write_atomic

MAX_FILES: Final = 50
"""How many files of one verification are stored at most."""
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_BYTES: Final = 32 * 1024 * 1024
"""The limit of all files of one verification together."""
MAX_NAME_CHARS: Final = 200
_MAX_ENTRIES: Final = 200_000
_MAX_DEPTH: Final = 50
_FILE: Final = re.compile(r"[A-Za-z0-9_~%-][A-Za-z0-9_.~%-]{0,254}")


def find_artifacts(
    tree: Path, fits: Callable[[str], bool], redaction: Redaction
) -> Iterator[tuple[KeptFile, bytes | None]]:
    """The matching files of a checkout with their content; paths and content are masked. Blocking.

    A file that is too large, or over the total limit, has no content.
    """
    room, names = MAX_BYTES, set[str]()
    for path, name, directory in _walk(tree):
        if len(names) >= MAX_FILES:
            return
        if not fits(path) or (read := _read(name, directory, min(MAX_FILE_BYTES, room))) is None:
            continue
        data = redaction.verbatim(read[0].decode("utf-8", "surrogateescape")) if read[1] else None
        text = path.encode("utf-8", "backslashreplace").decode()
        shown = redaction.line(text, MAX_NAME_CHARS) or "unnamed"  # only control characters
        while shown in names:  # control characters look alike
            shown += "~"
        names.add(shown)
        kept = None if data is None else data.encode("utf-8", "surrogateescape")
        room -= len(kept or b"")
        yield KeptFile(name=shown, size=None if kept is None else len(kept)), kept


def _walk(tree: Path) -> Iterator[tuple[str, str, int]]:
    """The files below a directory: path, name, and the open directory that has it. `.git` is left out."""
    entries = 0
    for place, folders, files, directory in os.fwalk(tree, follow_symlinks=False):
        below = os.path.relpath(place, tree)
        entries += len(folders) + len(files)
        if entries > _MAX_ENTRIES:
            return
        deep = below.count("/") >= _MAX_DEPTH
        folders[:] = [] if deep else sorted(name for name in folders if name != ".git")
        for name in sorted(files):
            yield name if below == "." else f"{below}/{name}", name, directory


def _read(name: str, directory: int, limit: int) -> tuple[bytes, bool] | None:
    """The content of a regular file, and whether that is all of it; `None` for anything else.

    A file with several names may belong to another place.
    """
    try:
        facts = os.lstat(name, dir_fd=directory)
        file = open_regular(name, directory) if stat.S_ISREG(facts.st_mode) else None
        if file is None:
            return None
        with file:
            if os.fstat(file.fileno()).st_nlink != 1:
                return None
            data = file.read(limit + 1)
    except OSError:
        return None
    return data, len(data) <= limit


# --- kept ------------------------------------------------------------------------------------------------


def keep_artifact(place: Path, name: str, data: bytes) -> None:
    """Store an artifact in the directory of its run. Blocking; raises `OSError`."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(place / KeptFile(name=name).file, data, mode=0o600)


def read_artifact(place: Path, file: str) -> bytes | None:
    """The content of a stored file, by the `file` of a `KeptFile`; `None` if it is missing. Blocking."""
    return read_regular(place / file, MAX_FILE_BYTES) if _FILE.fullmatch(file) else None

"""What changed between two commits, file by file, as `git diff --numstat` tells it."""

from dataclasses import dataclass
from typing import Final

__all__ = ["NUMSTAT", "Changes", "FileChange", "parse_numstat"]

NUMSTAT: Final = ("--no-ext-diff", "--no-textconv", "--numstat", "-z")
"""Options of `git diff` for `parse_numstat`; nothing that a repository names is run for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file; `path` is its new name. A binary file has 0 lines."""

    path: str
    insertions: int
    deletions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changed files, in git's order."""

    files: tuple[FileChange, ...] = ()

    @property
    def insertions(self) -> int:
        """Lines added in all files."""
        return sum(file.insertions for file in self.files)

    @property
    def deletions(self) -> int:
        """Lines removed in all files."""
        return sum(file.deletions for file in self.files)


def parse_numstat(output: bytes) -> Changes:
    """What `git diff --numstat -z` printed.

    A file is `added TAB removed TAB path NUL`; a renamed one is `added TAB removed TAB NUL old NUL new NUL`.
    What follows a record that is cut off is not counted.
    """
    records = iter(output.decode("utf-8", "backslashreplace").split("\0"))
    files = []
    for record in records:
        added, separator, rest = record.partition("\t")
        removed, tab, path = rest.partition("\t")
        if not separator or not tab:
            break
        if not path:
            _, path = next(records, ""), next(records, "")
        files.append(FileChange(path=path, insertions=_lines(added), deletions=_lines(removed)))
    return Changes(files=tuple(files))


def _lines(count: str) -> int:
    """The number that git printed, which is `-` for a binary file."""
    return 0 if count == "-" else int(count)

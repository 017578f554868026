"""Which numbers were given to issues of a board, so that none is given again, also when its file is deleted.

The highest one is written down in a small file: one for each prefix, in a folder that outlasts the board's.
What else carries an identifier (branches, workspaces, the journal) is told by whoever knows it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from symphony.trackers.markdown import files
from symphony.trackers.markdown.names import next_number

__all__ = ["Numbers"]

_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The numbers of one board.

    Attributes:
        folder: where the highest number is written down, in `<prefix>.number`.
        names: other names of issues that there are or were.
    """

    folder: Path
    names: frozenset[str] = frozenset()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from giving out a number meanwhile. Raises `OSError`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with files.locked(self.folder):
            yield

    def next(self, prefix: str, names: frozenset[str]) -> int:
        """The next number; `names` are those in the board's folder."""
        return max(next_number(prefix, self.names | names), self._noted(prefix) + 1)

    def note(self, prefix: str, number: int) -> None:
        """Write down that a number was given out; best effort, as it is not the only trace of it."""
        if number > self._noted(prefix):
            with suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
                self._file(prefix).write_text(f"{number:0{_MAX_DIGITS}}\n", encoding="ascii")

    def _noted(self, prefix: str) -> int:
        try:
            text = files.read(self._file(prefix), root=self.folder).strip()
        except (OSError, files.RefusedFileError):
            return 0
        return int(text) if text.isdigit() and len(text) <= _MAX_DIGITS else 0

    def _file(self, prefix: str) -> Path:
        return self.folder / f".{prefix.casefold()}.number"

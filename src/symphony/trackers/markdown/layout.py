"""How issues lie in the board's folder: which file is which issue, and what a file says.

The board's own layout is one file per id. `backlog` has the layout of another program.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from symphony.trackers.markdown.document import Fields, parse_issue
from symphony.trackers.markdown.names import case_twins, is_issue_file

__all__ = ["OWN", "Layout"]


class Layout:
    """`SYM-12.md` is the issue `SYM-12`."""

    state_key = "state"
    """The key whose value is the state."""

    can_create = True
    """Whether new issues are made here, and not by the program whose board it is."""

    def files(self, names: Iterable[str]) -> dict[str, str]:
        """The file of each issue by id; asked at every poll."""
        return {name[:-3]: name for name in names if name.endswith(".md") and is_issue_file(name)}

    def twins(self, files: Mapping[str, str]) -> Mapping[str, str]:
        """For each id that cannot be told from another one: the file of that other."""
        return {issue_id: files[other] for issue_id, other in case_twins(files).items()}

    def finished(self, folder: Path) -> frozenset[str]:
        """Ids (case folded) that are over and lie elsewhere; they block nobody. Raises `OSError`."""
        del folder
        return frozenset()

    def parse(self, data: bytes, issue_id: str) -> Fields:
        """What a file says. Raises `MalformedError`."""
        del issue_id
        return parse_issue(data)


OWN = Layout()
"""The board's own."""

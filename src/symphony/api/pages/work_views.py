"""The page of the changes in a workspace so far, made from a patch; pure."""

from typing import Final

from msgspec import Struct

from symphony.api.interface import WorkingDiff

_KINDS: Final = {"+": "added", "-": "removed", "@": "hunk"}


class WorkFile(Struct, frozen=True, kw_only=True):
    """A changed file: its path, or both paths if it is renamed, and its lines.

    A line is a kind, which is `head`, `hunk`, `added`, `removed` or `same`, and a text.
    """

    name: str
    lines: tuple[tuple[str, str], ...]


class WorkView(Struct, frozen=True, kw_only=True):
    """The page; `cut` means that it is incomplete."""

    issue_identifier: str
    files: tuple[WorkFile, ...]
    cut: bool


def work_view(identifier: str, diff: WorkingDiff) -> WorkView:
    """The page of the changes in the workspace of an issue so far."""
    # No line of a file begins like this, because a patch puts a sign before each.
    parts = f"\n{diff.text}".split("\ndiff --git ")[1:]
    return WorkView(issue_identifier=identifier, files=tuple(map(_file, parts)), cut=diff.cut)


def _file(part: str) -> WorkFile:
    header, *rest = part.split("\n")
    path = header[: len(header) // 2]
    hunks = next((at for at, line in enumerate(rest) if line.startswith("@@")), len(rest))
    return WorkFile(
        name=path if header == f"{path} {path}" else header,
        lines=tuple(
            ("head" if at < hunks else _KINDS.get(line[:1], "same"), line) for at, line in enumerate(rest)
        ),
    )

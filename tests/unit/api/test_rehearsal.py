"""The sentences of a rehearsal: what a person reads of conflicts, files and lines."""

from collections.abc import Mapping

import pytest

from symphony.api.history import utc_now
from symphony.api.models import Rehearsal as Document
from symphony.api.rehearsal import rehearsal_document
from symphony.domain import Issue
from symphony.workspaces import (
    BranchRehearsal,
    Conflict,
    ConflictKind,
    Fate,
    FileConflict,
    LineSpan,
    Rehearsal,
)

ISSUES: Mapping[str, Issue] = {
    f"id-{name}": Issue(id=f"id-{name}", identifier=name, title="", state="Done", dispatchable=False)
    for name in ("SYM-1", "SYM-2", "SYM-3")
}


def document(*branches: BranchRehearsal) -> Document:
    found = Rehearsal(base="main", base_commit="a" * 40, tree="b" * 40, branches=branches)
    issues = dict(list(ISSUES.items())[: len(branches)])
    return rehearsal_document(found, issues, now=utc_now())


def branch(fate: Fate, *conflicts: Conflict) -> BranchRehearsal:
    return BranchRehearsal(branch="symphony/x", head="c" * 40, fate=fate, conflicts=conflicts)


def message(path: str, kind: ConflictKind, *lines: LineSpan, others: tuple[str, ...] = ("id-SYM-1",)) -> str:
    files = (FileConflict(path=path, kind=kind, lines=lines),)
    conflict = Conflict(others=others, files=files)
    return document(branch(Fate.MERGES), branch(Fate.CONFLICTS, conflict)).branches[1].message


def test_a_conflict_names_issue_file_and_lines() -> None:
    lines = (LineSpan(first=3, last=3), LineSpan(first=8, last=10))
    assert message("src/a.py", ConflictKind.CONTENT, *lines) == (
        "conflicts with SYM-1 in src/a.py (lines 3, 8-10)"
    )
    assert message("src/a.py", ConflictKind.CONTENT, lines[0]) == "conflicts with SYM-1 in src/a.py (line 3)"
    assert message("logo.png", ConflictKind.BINARY) == "conflicts with SYM-1 in logo.png (a binary file)"
    assert message("f", ConflictKind.CONTENT, others=()) == "conflicts with main in f"
    assert message("f", ConflictKind.CONTENT, others=("id-SYM-1", "id-SYM-2")) == (
        "conflicts with SYM-1 and SYM-2 in f"
    )


@pytest.mark.parametrize("kind", ConflictKind)
def test_each_kind_of_conflict_has_words(kind: ConflictKind) -> None:
    assert ("(" in message("f", kind)) is (kind is not ConflictKind.CONTENT)


@pytest.mark.parametrize("fate", Fate)
def test_each_fate_has_words(fate: Fate) -> None:
    found = document(branch(fate)).branches[0]
    assert found.outcome == fate.value
    assert bool(found.message) is (fate is not Fate.CONFLICTS)  # its conflicts are the words


@pytest.mark.parametrize(
    ("path", "shown"), [("a\nb", "a\\nb"), ("\u202etxt", "\\u202etxt"), ("\x1b[31m", "\\x1b[31m")]
)
def test_no_path_hides_a_word_of_the_sentence(path: str, shown: str) -> None:
    assert message(path, ConflictKind.CONTENT) == f"conflicts with SYM-1 in {shown}"


def test_files_that_are_not_named_are_counted() -> None:
    files = tuple(FileConflict(path=f"f{number}", kind=ConflictKind.CONTENT) for number in range(20))
    conflict = Conflict(others=(), files=files, files_left_out=980)
    found = document(branch(Fate.CONFLICTS, conflict)).branches[0]
    assert found.message == "conflicts with main in f0; f1; f2; 997 more"


def test_branches_that_merge_are_counted() -> None:
    found = document(branch(Fate.MERGES), branch(Fate.MERGES), branch(Fate.GONE))
    assert (found.merging, found.conflicting) == (2, 0)
    assert found.branches[0].message == "merges with main and 1 other"

"""The documents and sentences of a rehearsal of merges."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import structs

from symphony.api import models
from symphony.api.documents import check_documents
from symphony.api.models import utc_text
from symphony.characters import visible
from symphony.domain import Issue, Verification, one_line, plural
from symphony.workspaces import Conflict, ConflictKind, Fate, FileConflict, Rehearsal

_SHOWN_FILES: Final = 3
_MAX_PATH_CHARS: Final = 200
_KINDS: Final = {
    ConflictKind.CONTENT: None,
    ConflictKind.ADDED: "added by both",
    ConflictKind.BINARY: "a binary file",
    ConflictKind.DELETED: "deleted by one and changed by the other",
    ConflictKind.RENAMED: "renamed in different ways",
    ConflictKind.DIRECTORY: "a directory in the way, or moved",
    ConflictKind.MODE: "of different types or modes",
    ConflictKind.SUBMODULE: "a submodule",
    ConflictKind.OTHER: "cannot be merged",
}
_FATES: Final = {
    Fate.MERGED: "is merged already",
    Fate.GONE: "its branch is gone",
    Fate.UNRELATED: "has no commit in common with the base",
    Fate.UNCHECKED: "was not looked at: there are too many branches",
}


def rehearsal_document(found: Rehearsal, issues: Mapping[str, Issue], *, now: datetime) -> models.Rehearsal:
    """The document of a rehearsal of the branches of these issues, by issue id."""
    fates = [branch.fate for branch in found.branches]
    merging = fates.count(Fate.MERGES)
    rows = []
    for issue, branch in zip(issues.values(), found.branches, strict=True):
        conflicts = tuple(
            _conflict(one, found.base, [issues[other].identifier for other in one.others])
            for one in branch.conflicts
        )
        message = _FATES.get(branch.fate) or "; ".join(one.message for one in conflicts)
        if branch.fate is Fate.MERGES and not conflicts:
            others = "" if merging == 1 else f" and {plural(merging - 1, 'other')}"
            message = f"merges with {found.base or 'HEAD'}{others}"
        rows.append(
            models.RehearsedBranch(
                issue_id=issue.id,
                issue_identifier=issue.identifier,
                branch=branch.branch,
                head=branch.head,
                outcome=branch.fate.value,
                conflicts=conflicts,
                message=message,
            )
        )
    return models.Rehearsal(
        generated_at=utc_text(now),
        base=found.base,
        base_commit=found.base_commit,
        tree=found.tree,
        moved=found.moved,
        merging=merging,
        conflicting=fates.count(Fate.CONFLICTS),
        branches=tuple(rows),
        pairs_left_out=found.pairs_left_out,
    )


def with_verification(
    found: models.Rehearsal,
    verification: Verification | None,
    *,
    breaks: int | None,
    timed_out_ms: int | None,
) -> models.Rehearsal:
    """A rehearsal with the results of `verify.commands` on the branches that merge.

    Args:
        found: the rehearsal.
        verification: the verification of these branches together; `None` if it did not finish.
        breaks: the position, from 1, of the branch that makes the commands fail, if it was found.
        timed_out_ms: the limit, if it was reached.
    """
    merging = [one for one in found.branches if one.outcome == Fate.MERGES]
    broken = None if breaks is None else merging[breaks - 1]
    late = None if timed_out_ms is None else f"within {timed_out_ms:,} ms"
    if verification is None:
        status, message = "not_done", f"the commands did not end {late}"
    else:
        status, message = verification.status.value, verification.line
        if late is not None:
            message += f"; which branch breaks it was not found {late}"
    if broken is not None and breaks is not None:
        others = f" and {plural(breaks - 1, 'other')}" if breaks > 1 else ""
        with_others = f"with {found.base or 'HEAD'}{others}"
        why = one_line(f"{with_others}: {message}")
        broken = structs.replace(broken, outcome="breaks", message=f"fails verify {why}")
        message = f"{broken.issue_identifier} fails {why}"
    return structs.replace(
        found,
        merging=found.merging - (broken is not None),
        branches=tuple(
            broken if broken is not None and one.issue_id == broken.issue_id else one
            for one in found.branches
        ),
        verified=models.VerifiedMerge(
            status=status,
            breaks=None if broken is None else broken.issue_identifier,
            message=one_line(message),
            checks=() if verification is None else check_documents(verification.checks),
        ),
    )


def _conflict(conflict: Conflict, base: str | None, others: Iterable[str]) -> models.MergeConflict:
    identifiers = tuple(others)
    partner = " and ".join(identifiers) if identifiers else base or "HEAD"
    shown = [_file(file) for file in conflict.files[:_SHOWN_FILES]]
    more = len(conflict.files) - len(shown) + conflict.files_left_out
    files = "; ".join([*shown, *([f"{more:,} more"] if more else [])])
    return models.MergeConflict(
        issue_identifiers=identifiers,
        files=tuple(
            models.ConflictingFile(
                path=file.path,
                kind=file.kind.value,
                lines=tuple(models.LineRange(first=one.first, last=one.last) for one in file.lines),
            )
            for file in conflict.files
        ),
        files_left_out=conflict.files_left_out,
        message=f"conflicts with {partner} in {files}",
    )


def _file(file: FileConflict) -> str:
    """The file in a sentence: `src/a.py (lines 3-5)`."""
    path = visible(file.path).replace("\n", "\\n").replace("\t", "\\t")
    lines = ", ".join(
        f"{one.first}" if one.first == one.last else f"{one.first}-{one.last}" for one in file.lines
    )
    is_one = len(file.lines) == 1 and file.lines[0].first == file.lines[0].last
    where = f"line {lines}" if is_one else f"lines {lines}" if lines else None
    facts = ", ".join(filter(None, (_KINDS[file.kind], where)))
    return one_line(path, _MAX_PATH_CHARS) + (f" ({facts})" if facts else "")


def with_rehearsal(
    rows: Iterable[models.ReadyRow], rehearsal: models.Rehearsal | None
) -> tuple[models.ReadyRow, ...]:
    """Ready rows with the outcomes of their branches in the rehearsal."""
    known = {} if rehearsal is None else {one.issue_id: one for one in rehearsal.branches}
    return tuple(structs.replace(row, rehearsal=known.get(row.issue_id)) for row in rows)

"""The library of skills as documents, to read, check and change. The functions block.

They return masked texts: a secret in a skill is shown as a mask, and an edit of the masked text removes the
secret.
"""

from collections.abc import Callable, Sequence
from difflib import unified_diff
from typing import Final, TypeVar, assert_never

from msgspec import UNSET, Struct, structs

from symphony.api import models
from symphony.api.interface import ConflictError, LibraryInUse, UnknownError
from symphony.api.routes import Edit
from symphony.library import model
from symphony.library.evaluation import Evaluation, sums, verdict
from symphony.library.gate import admit, gate
from symphony.observability.redaction import masked
from symphony.problem import Finding
from symphony.skills import FILE_NAME, ParseOptions, parse_bytes

PAGE_ROWS: Final = 50
"""How many rows a page of skills or proposals has."""
MAX_ASSIGNED: Final = 500
"""How many skills one assignment names."""
MAX_PAGES: Final = 100_000
AUTHOR: Final = "operator"
"""The author of changes through the API or a page, because callers have no names."""
LEARNED: Final = model.Origin.LEARNED.value
PROPOSAL_STATES: Final = tuple(state.value for state in model.ProposalState)
_MAX_DIFF_LINES: Final = 4_000
_Row = TypeVar("_Row")
_Document = TypeVar("_Document", bound=models.Document)


# --- reading ---------------------------------------------------------------------------------------------


def skills(
    library: LibraryInUse, query: str = "", page: int | None = 1, *, learned: bool = False
) -> models.LibrarySkills:
    """A page of the skills that match all words of the query; with `learned`, only learned ones."""
    heads = library.store.skills(query=query, origin=model.Origin.LEARNED if learned else None)
    shown = tuple(map(_skill, _page(heads, page)))
    return _masked(library, models.LibrarySkills(total=len(heads), page=page or 1, skills=shown))


class Overview(Struct, frozen=True, kw_only=True):
    """The matching skills of the library, of which a page shows some.

    Attributes:
        heads: all of them, unmasked.
        open_proposals: how many proposals wait for a person.
        document: makes a masked document from a head.
    """

    heads: tuple[model.SkillHead, ...]
    open_proposals: int
    document: Callable[[model.SkillHead], models.LibrarySkill]


def overview(library: LibraryInUse, query: str) -> Overview:
    """The skills with all words of the query."""
    return Overview(
        heads=library.store.skills(query=query),
        open_proposals=library.store.open_proposals(),
        document=lambda head: _masked(library, _skill(head)),
    )


def skill(library: LibraryInUse, name: str, version: int | None = None) -> models.LibrarySkillPage:
    """One skill in its newest version, or in an earlier one.

    Raises:
        UnknownError: there is no such skill or version.
    """
    try:
        found = library.store.skill(name)
        shown = found.text if version is None else library.store.version(name, version).text
        history = library.store.history(name)
    except model.NotInLibraryError as error:
        raise _unknown(error) from error
    document = models.LibrarySkillPage(
        skill=_skill(found),
        shown=version or found.version,
        file=shown.file().decode(),
        versions=tuple(
            models.LibraryVersion(
                version=each.version,
                author=each.change.author,
                reason=each.change.reason,
                run_id=each.change.run_id,
                at=models.wall_text(each.at_ms),
            )
            for each in history
        ),
        assignments=tuple(
            _assignment(each) for each in library.store.assignments() if found.name in each.names
        ),
    )
    return _masked(library, document)


def diff(library: LibraryInUse, name: str, old: int, new: int) -> models.LibraryDiff:
    """The difference between two versions of a skill.

    Raises:
        UnknownError: there is no such skill or version.
    """
    try:
        before, after = (library.store.version(name, number).text for number in (old, new))
    except model.NotInLibraryError as error:
        raise _unknown(error) from error
    return _masked(library, models.LibraryDiff(name=name, old=old, new=new, diff=_diff(before, after)))


def assignments(library: LibraryInUse) -> models.LibraryAssignments:
    """All assignments."""
    found = tuple(map(_assignment, library.store.assignments()))
    return _masked(library, models.LibraryAssignments(assignments=found))


def proposals(
    library: LibraryInUse, state: str = model.ProposalState.OPEN, page: int | None = 1
) -> models.LibraryProposals:
    """A page of the proposals in this state, or of all."""
    found = library.store.proposals(state=model.ProposalState(state))
    shown = tuple(map(_proposal, _page(found, page)))
    return _masked(library, models.LibraryProposals(total=len(found), page=page or 1, proposals=shown))


def proposal(library: LibraryInUse, number: int) -> models.LibraryProposalPage:
    """One proposal with its changes.

    Raises:
        UnknownError: there is no such proposal.
    """
    try:
        found = library.store.proposal(number)
    except model.NotInLibraryError as error:
        raise _unknown(error) from error
    file = found.text.file().decode()
    try:
        skill = library.store.skill(found.text.name)
    except model.NotInLibraryError:
        present = None
    else:  # a skill added after the removal of the proposal's skill is a different one
        present = skill.version if found.skill_id in {None, skill.id} else None
    document = models.LibraryProposalPage(
        proposal=_proposal(found),
        file=file,
        diff=_diff(found.before, found.text),
        present_version=present,
        findings=(
            *gate(found.before, found.text, library.mask),
            *_lint(models.LibraryDraft(file=file, name=found.text.name))[1],
        ),
        evaluation=None if found.evaluation is None else evaluation_document(found.evaluation),
    )
    return _masked(library, document)


def evaluation_document(found: Evaluation) -> models.LibraryEvaluation:
    """The table of an evaluation, not masked."""
    return models.LibraryEvaluation(
        recommended=found.recommended,
        check=found.check,
        base_version=found.base_version,
        comparisons=tuple(
            models.LibraryComparison(**structs.asdict(one), verdict=verdict(one).value)
            for one in found.comparisons
        ),
        without=sums(one.without for one in found.comparisons),
        changed=sums(one.changed for one in found.comparisons),
        at=models.wall_text(found.at_ms),
    )


def check(library: LibraryInUse, draft: models.LibraryDraft) -> models.LibraryCheck:
    """What is wrong with a SKILL.md, and whether the library can store it."""
    return checked(library, draft)[0]


def checked(library: LibraryInUse, draft: models.LibraryDraft) -> tuple[models.LibraryCheck, str]:
    """What is wrong with a SKILL.md, and its Markdown; empty if the library cannot store it."""
    text, findings = _lint(draft)
    if text is not None:
        try:
            findings = (*admitted(library, text), *findings)
        except model.LibraryError as error:
            text, findings = None, (_error(error), *findings)
    if text is None:
        return models.LibraryCheck(ok=False, name=None, findings=findings), ""
    return models.LibraryCheck(ok=True, name=text.name, findings=findings), text.content


def admitted(library: LibraryInUse, text: model.SkillText) -> tuple[Finding, ...]:
    """Findings in a text that a person saves as a version, which should be read carefully; unmasked.

    Raises:
        LibraryError: it contains a secret or hidden characters.
    """
    try:
        before = library.store.skill(text.name).text
    except model.NotInLibraryError:
        before = None
    return admit(before, text, library.mask)


def _lint(draft: models.LibraryDraft) -> tuple[model.SkillText | None, tuple[Finding, ...]]:
    """The text of a SKILL.md, if it can be stored, and the problems of its form."""
    data = draft.file.encode(errors="replace")
    parsed = parse_bytes(data, draft.name or "", FILE_NAME, ParseOptions(name_fallback=True))
    findings = tuple(
        Finding(
            severity=each.severity.value, code=each.code, line=each.line, message=each.message, hint=each.hint
        )
        for each in parsed.problems
        if draft.name or each.code != "name_dir_mismatch"  # a new skill has no directory yet
    )
    try:
        return _text(draft), findings
    except model.LibraryError as error:
        told = any(each.severity == "error" for each in findings)
        return None, findings if told else (_error(error), *findings)


def _error(error: model.LibraryError) -> Finding:
    failure = error.failure
    return Finding(
        severity="error",
        code=failure.category.value,
        line=None,
        message=failure.message,
        hint=failure.hint,
    )


# --- changing --------------------------------------------------------------------------------------------


def change(library: LibraryInUse, edit: Edit, author: str = AUTHOR, name: str = "") -> models.LibraryChanged:
    """Change the library; an edit of the skill `name` must keep that name.

    Raises:
        ConflictError: `stale_version`: the edit is not based on the newest version.
        UnknownError: there is no such skill, version or proposal.
        LibraryError: the library refuses it, or cannot be used.
    """
    try:
        return _masked(library, _changed(library, edit, author, name))
    except model.StaleVersionError as error:
        raise ConflictError("stale_version", error.failure.message, hint=error.failure.hint) from error
    except model.NotInLibraryError as error:
        raise _unknown(error) from error


def _changed(library: LibraryInUse, edit: Edit, author: str, name: str) -> models.LibraryChanged:
    store, findings = library.store, tuple[Finding, ...]()
    match edit:
        case models.LibrarySave(file=file, base_version=base, reason=reason):
            text, by = (
                _text(models.LibraryDraft(file=file, name=name or UNSET)),
                model.Authorship(author=author, reason=reason or ""),
            )
            findings = admitted(library, text)
            kept = store.add(text, by) if base == 0 else store.edit(text, by, base_version=base)
            verb, message = "save", f"{kept.name} is at version {kept.version}"
        case models.LibraryRemove(name=gone, reason=reason):
            removed = store.remove(gone, model.Authorship(author=author, reason=reason or ""))
            return models.LibraryChanged(
                verb="remove", message=f"{removed.name} is removed", name=removed.name, version=None
            )
        case models.LibraryRevert(name=back, version=version, reason=reason):
            by = model.Authorship(author=author, reason=reason or f"back to version {version}")
            findings = admitted(library, store.version(back, version).text)
            kept = store.revert(back, version, by)
            verb, message = (
                "revert",
                f"{kept.name} is at version {kept.version}, with the text of version {version}",
            )
        case models.LibraryAccept(id=number):
            admitted(library, store.proposal(number).text)  # the other findings are shown with it
            kept = store.accept(number, author)
            verb, message = "accept", f"{kept.name} is at version {kept.version}"
        case models.LibraryReject(id=number, reason=reason):
            rejected = store.reject(number, author, reason or "")
            return models.LibraryChanged(
                verb="reject", message=f"proposal {number} is rejected", name=rejected.text.name, version=None
            )
        case models.LibraryAssign():
            return models.LibraryChanged(
                verb="assign", message=_assign(library, edit), name=None, version=None
            )
        case _:
            assert_never(edit)
    return models.LibraryChanged(
        verb=verb, message=message, name=kept.name, version=kept.version, findings=findings
    )


def _assign(library: LibraryInUse, edit: models.LibraryAssign) -> str:
    kind, target = model.TargetKind(edit.kind), edit.target
    whose = target if kind is model.TargetKind.ISSUE else f"the agent {target}"
    if edit.skills is None:
        dropped = library.store.unassign(kind, target)
        return f"{whose} has no assignment now" if dropped else f"{whose} had no assignment"
    names = library.store.assign(kind, target, edit.skills).names
    return f"{whose} gets {', '.join(names)}" if names else f"{whose} gets no skill from the library"


# --- parts -----------------------------------------------------------------------------------------------


def _text(draft: models.LibraryDraft) -> model.SkillText:
    """The text of the file.

    Raises:
        LibraryError: the library cannot store it, or it belongs to another skill.
    """
    text = model.SkillText.of_file(draft.file.encode(errors="replace"), draft.name or "")
    if draft.name and text.name != draft.name:
        raise model.LibraryError(
            f"the name is {text.name}, and this skill is {draft.name}",
            hint="keep the name; another name is another skill",
        )
    return text


def _skill(head: model.SkillHead) -> models.LibrarySkill:
    return models.LibrarySkill.of(
        head, created_at=models.wall_text(head.created_at_ms), updated_at=models.wall_text(head.updated_at_ms)
    )


def _assignment(found: model.Assignment) -> models.LibraryAssignment:
    return models.LibraryAssignment.of(found, skills=found.names, at=models.wall_text(found.at_ms))


def _proposal(found: model.Proposal) -> models.LibraryProposal:
    evidence = found.evidence
    return models.LibraryProposal(
        id=found.id,
        name=found.text.name,
        description=found.text.description,
        base_version=found.base_version,
        state=found.state.value,
        run_id=evidence.run_id,
        issue_identifier=evidence.issue_identifier,
        transcript_seq=evidence.transcript_seq,
        created_at=models.wall_text(found.created_at_ms),
        decided_at=None if found.decided_at_ms is None else models.wall_text(found.decided_at_ms),
        decided_by=found.decided_by,
        reason=found.reason,
        recommended=None if found.evaluation is None else found.evaluation.recommended,
    )


def _diff(before: model.SkillText | None, after: model.SkillText) -> str:
    old, new = ("" if text is None else text.file().decode() for text in (before, after))
    return unified(old, new)


def unified(before: str, after: str) -> str:
    """A unified diff of the first lines of both texts, because comparing many lines takes long."""
    old, new = (text.split("\n")[:_MAX_DIFF_LINES] if text else [] for text in (before, after))
    return "\n".join(list(unified_diff(old, new, lineterm=""))[2:])  # without the names of files


def _page(rows: Sequence[_Row], page: int | None) -> Sequence[_Row]:
    return rows if page is None else rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]


def _unknown(error: model.NotInLibraryError) -> UnknownError:
    failure = error.failure
    return UnknownError(
        "not_in_library", failure.message, hint=failure.hint or "`symphony library list` names the skills"
    )


def _masked(library: LibraryInUse, document: _Document) -> _Document:
    public: _Document = masked(document, library.mask)
    return public

"""The views of the pages about skills, made from the documents of the API. All functions are pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct, structs

from symphony.api import models
from symphony.api.conditions import Condition
from symphony.api.library import PAGE_ROWS, Overview
from symphony.domain import natural_order
from symphony.library.model import Origin, SkillHead

SCOPES: Final = ("", "repository", "library", "shadowed", "learned")
"""The filters of the list of skills; all skills first."""
MAX_CHOICES: Final = 50
"""How many skills a picker lists besides the chosen ones."""
_MAX_TARGETS: Final = 200
_LINE_KINDS: Final = {"+": "added", "-": "removed", "@": "hunk"}


class DiffLine(Struct, frozen=True, kw_only=True):
    """A line of a diff; `kind` is `hunk`, `added`, `removed` or `same`."""

    kind: str
    text: str


class PageLink(Struct, frozen=True, kw_only=True):
    """A link to another page or filter; `count` is the number of its rows, or `None`."""

    text: str
    href: str
    selected: bool
    count: int | None = None


class Pager(Struct, frozen=True, kw_only=True):
    """Which rows of a long list are shown, and the pages before and after."""

    first: int
    last: int
    total: int
    earlier: str | None
    later: str | None


class SkillRow(Struct, frozen=True, kw_only=True):
    """A skill of the repository or the library.

    Attributes:
        name: the name of its folder.
        text: when to use it, else its description.
        scope: `project`, `user` and `extra` for the repository, else `library`.
        path: the path of a skill of the repository; `None` for the library.
        phases: the phases of the work; empty for all.
        href: the page of a skill of the library; `None` for others.
        version: the version of a skill of the library.
        learned: whether an agent wrote it.
        shadowed: whether a skill of the repository has the same name, so that no session gets this one.
        updated_at: the time of the newest version.
    """

    name: str
    text: str
    scope: str
    path: str | None = None
    phases: tuple[str, ...] = ()
    href: str | None = None
    version: int | None = None
    learned: bool = False
    shadowed: bool = False
    updated_at: str | None = None


class UseRow(Struct, frozen=True, kw_only=True):
    """The use of a skill; `succeeded` and `otherwise` count the runs that listed it."""

    use: models.SkillUses
    succeeded: int
    otherwise: str


class OutcomesView(Struct, frozen=True, kw_only=True):
    """The outcomes of the runs that listed skills; `left_out` is the number of versions without a row."""

    versions: tuple[models.SkillVersionFigures, ...]
    left_out: int


def outcomes_view(
    outcomes: models.SkillOutcomes, *, search: str = "", name: str | None = None
) -> OutcomesView:
    """The outcomes of the skill with this name, or of all skills whose names match the search."""

    def wanted(one: models.SkillVersionFigures) -> bool:
        return one.name == name if name else all(word in one.name for word in search.lower().split())

    versions = tuple(filter(wanted, outcomes.versions))
    return OutcomesView(
        versions=versions[:PAGE_ROWS],
        left_out=max(len(versions) - PAGE_ROWS, 0),
    )


class SkillList(Struct, frozen=True, kw_only=True):
    """The skills of the repository and the library that a person selects.

    Attributes:
        counts: how many match, by scope.
        total: how many match in the selected scope.
        rows: the rows of the page.
        library_size: how many skills of the library match.
        proposals: how many wait for a person.
    """

    counts: tuple[int, ...]
    total: int
    rows: tuple[SkillRow, ...]
    library_size: int
    proposals: int


class SkillsView(Struct, frozen=True, kw_only=True):
    """The page of skills; `notices` say why sessions see other skills."""

    skills: models.SkillsOverview
    notices: tuple[Condition, ...]
    search: str
    scope: str
    scopes: tuple[PageLink, ...]
    rows: tuple[SkillRow, ...]
    pager: Pager
    library_is_empty: bool
    proposals: int
    uses: tuple[UseRow, ...]
    outcomes: OutcomesView


def skills_view(
    skills: models.SkillsOverview,
    found: SkillList,
    *,
    search: str,
    scope: str,
    page: int,
    problem: Condition | None = None,
) -> SkillsView:
    """The page of skills; `problem` says why the library is missing."""
    notices = [problem] if problem else []
    if not skills.enabled:
        notices.append(Condition(tone="warn", text="agent.skills.enabled is false: sessions list no skills."))
    elif skills.source == "base_branch":
        text = "agent.skills.source is base_branch: sessions read its commit, and this is the folder."
        notices.append(Condition(tone="warn", text=text))
    if skills.enabled and not skills.complete:
        notices.append(Condition(tone="warn", text="Not all files could be read in time."))
    kept = {"q": search} if search else {}
    return SkillsView(
        skills=structs.replace(skills, generated_at="", since=skills.since[:10]),
        notices=tuple(notices),
        search=search,
        scope=scope,
        scopes=tuple(
            PageLink(
                text=each or "all",
                href=_address("/skills", kept | ({"scope": each} if each else {})),
                selected=each == scope,
                count=count,
            )
            for each, count in zip(SCOPES, found.counts, strict=True)
        ),
        rows=found.rows,
        pager=_pager("/skills", kept | ({"scope": scope} if scope else {}), page, found.total),
        library_is_empty=problem is None and not found.library_size and not search,
        proposals=found.proposals,
        uses=tuple(
            UseRow(
                use=use,
                succeeded=use.outcomes.get("succeeded", 0),
                otherwise=", ".join(
                    f"{count} {outcome.replace('_', ' ')}"
                    for outcome, count in use.outcomes.items()
                    if outcome != "succeeded"
                ),
            )
            for use in sorted(skills.uses, key=lambda use: (-use.listed, use.name))
        ),
        outcomes=outcomes_view(skills.outcomes, search=search),
    )


def skill_list(
    skills: models.SkillsOverview,
    overview: Overview | None,
    *,
    search: str,
    scope: str,
    page: int,
) -> SkillList:
    """The matching skills of the repository, and of the library if it can be read."""
    library = overview.heads if overview else ()
    words, shadowing = search.lower().split(), {skill.name for skill in skills.skills}
    repository = [
        SkillRow(name=each.name, text=each.text, scope=each.scope, path=each.path, phases=each.phases)
        for each in skills.skills
        if all(word in f"{each.name} {each.text}".lower() for word in words)
    ]
    shadowed = [each for each in library if each.name in shadowing]
    learned = [each for each in library if each.origin is Origin.LEARNED]
    counts = tuple(map(len, (repository, library, shadowed, learned)))
    first, last = (page - 1) * PAGE_ROWS, page * PAGE_ROWS
    own: Sequence[SkillHead] = {"repository": (), "shadowed": shadowed, "learned": learned}.get(
        scope, library
    )
    beside = repository if scope in {"", "repository"} else []
    rows = beside[first:last]
    if overview:
        rows += [
            SkillRow(
                name=each.name,
                text=each.when_to_use or each.description,
                scope="library",
                href=f"/skills/library/{each.name}",
                version=each.version,
                learned=each.origin == Origin.LEARNED.value,
                shadowed=each.name in shadowing,
                updated_at=each.updated_at,
            )
            for each in map(overview.document, own[max(first - len(beside), 0) : max(last - len(beside), 0)])
        ]
    return SkillList(
        counts=(counts[0] + counts[1], *counts),
        total=len(beside) + len(own),
        rows=tuple(rows),
        library_size=len(library),
        proposals=overview.open_proposals if overview else 0,
    )


class SkillView(Struct, frozen=True, kw_only=True):
    """The page of a skill of the library.

    Attributes:
        page: the document.
        content: the Markdown of the shown version.
        is_newest: whether the newest version is shown.
        shadowed_by: the path of the repository's skill with that name, or `None`.
        outcomes: the outcomes of the runs that listed it; `None` if they cannot be read.
    """

    page: models.LibrarySkillPage
    content: str
    is_newest: bool
    shadowed_by: str | None
    outcomes: OutcomesView | None


def skill_view(page: models.LibrarySkillPage, skills: models.SkillsOverview | None) -> SkillView:
    """The page of a skill; `skills` are the skills of the repository, if they can be read."""
    same = [each.path for each in (skills.skills if skills else ()) if each.name == page.skill.name]
    return SkillView(
        page=page,
        content=page.file.partition("\n---\n")[2],
        is_newest=page.shown == page.skill.version,
        shadowed_by=same[0] if same else None,
        outcomes=outcomes_view(skills.outcomes, name=page.skill.name) if skills else None,
    )


class VersionsView(Struct, frozen=True, kw_only=True):
    """The difference between two versions of a skill; `versions` are all versions, newest first."""

    name: str
    old: int
    new: int
    versions: tuple[int, ...]
    lines: tuple[DiffLine, ...]


def versions_view(diff: models.LibraryDiff, newest: int) -> VersionsView:
    """The page of a difference between versions."""
    return VersionsView(
        name=diff.name,
        old=diff.old,
        new=diff.new,
        versions=tuple(range(newest, 0, -1)),
        lines=diff_lines(diff.diff),
    )


def diff_lines(diff: str) -> tuple[DiffLine, ...]:
    """The lines of a unified diff without names of files."""
    return tuple(
        DiffLine(kind=_LINE_KINDS.get(line[:1], "same"), text=line) for line in diff.split("\n") if line
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorView:
    """The editor.

    Attributes:
        name: the name of the changed skill; empty for a new one.
        file: the SKILL.md in the editor.
        base_version: the version that the next save replaces; 0 for a new skill.
        reason: why, for the history.
        check: what is wrong with the file.
        content: the Markdown, if the file can be stored.
        theirs: the newest version, if another person saved it since the edit began.
        lines: the diff from that version to the file in the editor.
    """

    name: str
    file: str
    base_version: int
    reason: str
    check: models.LibraryCheck
    content: str
    theirs: models.LibrarySkillPage | None = None
    lines: tuple[DiffLine, ...] = ()


class PickerSkill(Struct, frozen=True, kw_only=True):
    """A skill in a picker."""

    name: str
    text: str
    selected: bool


class AssignmentsView(Struct, frozen=True, kw_only=True):
    """The assignments of skills, and the picker for one issue or agent.

    Attributes:
        assignments: all assignments.
        kind, target: the issue or agent in the picker; the target is empty at first.
        assigned: whether the target has an assignment now.
        search: the filter of the picker.
        choices: the skills in the picker, chosen ones first.
        left_out: how many matching skills are not listed.
        agents, issues: those that the daemon knows.
    """

    assignments: tuple[models.LibraryAssignment, ...]
    kind: str
    target: str
    assigned: bool
    search: str
    choices: tuple[PickerSkill, ...]
    left_out: int
    agents: tuple[str, ...]
    issues: tuple[str, ...]


def assignments_view(
    found: models.LibraryAssignments,
    overview: Overview,
    state: models.State,
    *,
    kind: str,
    target: str,
    search: str,
    chosen: frozenset[str] | None,
) -> AssignmentsView:
    """The page of assignments; `chosen` are names in the address, which override the assigned ones."""
    present = next((each for each in found.assignments if (each.kind, each.target) == (kind, target)), None)
    picked = chosen if chosen is not None else frozenset(present.skills if present else ())
    rest = [each for each in overview.heads if each.name not in picked]
    shown = map(
        overview.document, [each for each in overview.heads if each.name in picked] + rest[:MAX_CHOICES]
    )
    texts = {each.name: each.when_to_use or each.description for each in shown}
    issues = {
        row.issue_identifier
        for rows in (state.running, state.blocked, state.retrying, state.waiting, state.ready)
        for row in rows
    }
    return AssignmentsView(
        assignments=found.assignments,
        kind=kind,
        target=target,
        assigned=present is not None,
        search=search,
        choices=(
            *(PickerSkill(name=name, text=texts.get(name, ""), selected=True) for name in sorted(picked)),
            *(
                PickerSkill(name=name, text=texts[name], selected=False)
                for name in texts
                if name not in picked
            ),
        ),
        left_out=max(len(rest) - MAX_CHOICES, 0),
        agents=tuple(agent.name for agent in state.agents),
        issues=tuple(sorted(issues, key=natural_order)[:_MAX_TARGETS]),
    )


class ProposalsView(Struct, frozen=True, kw_only=True):
    """Proposals in one state."""

    found: models.LibraryProposals
    state: str
    states: tuple[PageLink, ...]
    pager: Pager


def proposals_view(found: models.LibraryProposals, state: str, states: Sequence[str]) -> ProposalsView:
    """The page of proposals."""
    return ProposalsView(
        found=found,
        state=state,
        states=tuple(
            PageLink(text=each, href=_address("/skills/proposals", {"state": each}), selected=each == state)
            for each in states
        ),
        pager=_pager("/skills/proposals", {"state": state}, found.page, found.total),
    )


class ProposalView(Struct, frozen=True, kw_only=True):
    """A proposal; `evidence` is its place in the transcript, `dangers` are the findings in it."""

    page: models.LibraryProposalPage
    lines: tuple[DiffLine, ...]
    dangers: tuple[str, ...]
    stale: bool
    evidence: str | None


def proposal_view(page: models.LibraryProposalPage) -> ProposalView:
    """The page of a proposal."""
    proposal, evidence = page.proposal, None
    if proposal.issue_identifier and proposal.run_id:
        place = {"run": proposal.run_id}
        if proposal.transcript_seq:
            place["after"] = str(max(proposal.transcript_seq - 1, 0))
        evidence = f"?{urlencode(place)}"
    return ProposalView(
        page=page,
        lines=diff_lines(page.diff),
        dangers=tuple(
            dict.fromkeys(each.code.replace("_", " ") for each in page.findings if each.severity == "danger")
        ),
        stale=(page.present_version or 0) != proposal.base_version,
        evidence=evidence,
    )


def _pager(path: str, kept: dict[str, str], page: int, total: int) -> Pager:
    def at(number: int) -> str:
        return _address(path, kept | ({"page": str(number)} if number > 1 else {}))

    first = (page - 1) * PAGE_ROWS
    return Pager(
        first=min(first + 1, total),
        last=min(first + PAGE_ROWS, total),
        total=total,
        earlier=at(page - 1) if page > 1 else None,
        later=at(page + 1) if first + PAGE_ROWS < total else None,
    )


def _address(path: str, query: dict[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path

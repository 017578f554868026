"""The library of skills as people read it; texts of skills are untrusted."""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import Final

import click
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from symphony.api import models
from symphony.api.formatting import parse_time
from symphony.characters import visible
from symphony.cli.formatting import aligned, cell, console_for, print_blocks, table
from symphony.cli.options import use_colour
from symphony.domain import one_line, plural
from symphony.library.evaluation import Sums, Trial
from symphony.library.gate import Finding

_MAX_DESCRIPTION: Final = 100
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def moment(at: str) -> str:
    """A time of a document in local time."""
    parsed = parse_time(at)
    return at if parsed is None else parsed.astimezone().strftime("%Y-%m-%d %H:%M")


def print_skills(found: models.LibrarySkills) -> None:
    """A row for each skill."""
    rows = (
        (one.name, str(one.version), one.origin, moment(one.updated_at), one.description)
        for one in found.skills
    )
    _print_rows(("NAME", "VERSION", "ORIGIN", "CHANGED", "DESCRIPTION"), rows)


def _print_rows(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """A line for each row, on a terminal cut at its width."""
    lines = [names, *(tuple(one_line(text, _MAX_DESCRIPTION) for text in row) for row in rows)]
    if len(lines) == 1:
        return
    shown = aligned(lines)
    console = console_for()
    if console.is_terminal:
        shown = [set_cell_size(line, min(cell_len(line), console.width)) for line in shown]
        shown[0] = click.style(shown[0], bold=True)
    click.echo("\n".join(shown))


def skill_lines(page: models.LibrarySkillPage) -> Iterator[str]:
    """What is known of a skill, then its file."""
    skill = page.skill
    shown = "" if page.shown == skill.version else f", shown: {page.shown}"
    yield f"name: {skill.name}"
    yield f"version: {skill.version}{shown}"
    yield f"origin: {skill.origin}"
    yield f"changed: {moment(skill.updated_at)} by {one_line(page.versions[0].author)}"
    yield f"assigned to: {_targets(skill, page.assignments)}"
    yield ""
    yield from map(visible, page.file.removesuffix("\n").split("\n"))


def _targets(skill: models.LibrarySkill, assignments: tuple[models.LibraryAssignment, ...]) -> str:
    named = ", ".join(f"{one.kind} {one_line(one.target)}" for one in assignments)
    return named or f"no issue or agent by name; those without an assignment get {skill.name}"


def print_versions(versions: tuple[models.LibraryVersion, ...]) -> None:
    """A row for each version."""
    rows = table("VERSION", "WHEN", "AUTHOR", "RUN", "REASON", fold={"REASON"})
    for one in versions:
        rows.add_row(*map(cell, (one.version, moment(one.at), one.author, one.run_id or "", one.reason)))
    print_blocks(console_for(), rows)


def print_diff(text: str, *, err: bool = False) -> None:
    """A unified diff; on a terminal in colours."""
    stream = sys.stderr if err else sys.stdout
    coloured = stream.isatty() and not os.environ.get("NO_COLOR")
    for line in text.split("\n") if text else ():
        style = _DIFF_STYLES.get(line[:1]) if coloured else None
        click.echo(click.style(visible(line), fg=style) if style else visible(line), err=err)


def print_assignments(found: models.LibraryAssignments) -> None:
    """A row for each assignment."""
    rows = table("KIND", "WHO", "SINCE", "SKILLS", fold={"SKILLS"})
    for one in found.assignments:
        rows.add_row(*map(cell, (one.kind, one.target, moment(one.at), ", ".join(one.skills) or "none")))
    if found.assignments:
        print_blocks(console_for(), rows)


def print_proposals(found: models.LibraryProposals) -> None:
    """A row for each proposal."""
    rows = []
    for one in found.proposals:
        changes = f"version {one.base_version}" if one.base_version else "new"
        if one.recommended is not None:
            changes += ", recommended" if one.recommended else ", not recommended"
        issue, at = one.issue_identifier or "", moment(one.created_at)
        rows.append((str(one.id), one.name, changes, issue, at, one.description))
    _print_rows(("ID", "SKILL", "CHANGES", "ISSUE", "PROPOSED", "DESCRIPTION"), rows)


def print_proposal(page: models.LibraryProposalPage) -> None:
    """The changes of a proposal, its origin, and its dangers."""
    proposal = page.proposal
    based = f"version {proposal.base_version}" if proposal.base_version else "nothing: it is a new skill"
    click.echo(f"proposal {proposal.id}: {proposal.name}, {proposal.state}")
    click.echo(f"description: {one_line(proposal.description)}")
    click.echo(f"changes: {based}")
    for line in _evidence(proposal):
        click.echo(line)
    if proposal.decided_at is not None:
        reason = f": {one_line(proposal.reason)}" if proposal.reason else ""
        by = one_line(proposal.decided_by or "nobody")
        click.echo(f"{proposal.state}: {moment(proposal.decided_at)} by {by}{reason}")
    for finding in page.findings:
        click.echo(finding_line(finding, coloured=use_colour()))
    click.echo()
    print_diff(page.diff)
    if page.evaluation is not None:
        click.echo()
        print_evaluation(page.evaluation)


def print_evaluation(found: models.LibraryEvaluation) -> None:
    """What past issues say about a proposal."""
    rows = table("ISSUE", "VERDICT", "WITHOUT THE CHANGE", "WITH THE CHANGE", fold={"WITH THE CHANGE"})
    for one in found.comparisons:
        rows.add_row(cell(one.issue_identifier), cell(one.verdict), _trial(one.without), _trial(one.changed))
    count = len(found.comparisons)
    rows.add_row(cell("sum"), cell(""), _sums(found.without, count), _sums(found.changed, count))
    print_blocks(console_for(), rows)
    for one in found.comparisons:
        for arm, trial in (("without", one.without), ("with", one.changed)):
            if trial.problem is not None:
                click.echo(one_line(f"{one.issue_identifier} {arm} the change: {trial.problem}", 1_000))
    click.echo("recommended" if found.recommended else "not recommended")


def _trial(trial: Trial) -> Text:
    spent = _spent(trial.seconds, trial.turns, trial.tokens)
    return cell(f"{'passed' if trial.passed else 'failed'}, {spent}")


def _sums(sums: Sums, count: int) -> Text:
    return cell(f"{sums.passed} of {count}, {_spent(sums.seconds, sums.turns, sums.tokens)}")


def _spent(seconds: float, turns: int, tokens: int) -> str:
    return f"{seconds:g} s, {plural(turns, 'turn')}, {tokens:,} tokens"


def finding_line(finding: Finding, *, coloured: bool) -> str:
    """A finding on one line; dangers and errors are red."""
    place = "" if finding.line is None else f" line {finding.line}:"
    hint = f" {finding.hint}" if finding.hint else ""
    line = one_line(f"{finding.severity}:{place} {finding.message}{hint} ({finding.code})", 1_000)
    return click.style(line, fg="red") if coloured and finding.severity in {"danger", "error"} else line


def _evidence(proposal: models.LibraryProposal) -> Iterator[str]:
    if proposal.issue_identifier is None:
        return
    issue = one_line(proposal.issue_identifier)
    run = f" --run {shlex.quote(one_line(proposal.run_id))}" if proposal.run_id else ""
    place = "" if proposal.transcript_seq is None else f", from entry {proposal.transcript_seq} on"
    yield f"because of: {issue}, {moment(proposal.created_at)}"
    yield f"evidence: symphony transcript {shlex.quote(issue)}{run}{place}"


def tell_count(count: int, noun: str) -> None:
    """The count on stderr."""
    click.echo(plural(count, noun), err=True)

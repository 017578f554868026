"""What became of skills that were copied: one shape and one way to print it, for both directions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from symphony.cli.documents import MovedSkill, SkillsExported
from symphony.cli.failures import ExitCode
from symphony.cli.skills_documents import problem_documents
from symphony.domain.plain import one_line
from symphony.skills import Problem
from symphony.skills.exchange import Outcome

__all__ = ["Moved", "exported", "outcome_code", "print_moves"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One skill and what became of it.

    Attributes:
        source: its folder or file, as the source names it.
        path: where it is now, or would be.
        reason: why it was skipped; null else.
        problems: what the loader says about it.
    """

    name: str
    source: str
    path: str
    outcome: Outcome
    reason: str | None = None
    problems: tuple[Problem, ...] = ()


def exported(moves: Sequence[Moved], target: Path, *, dry_run: bool) -> SkillsExported:
    """What became of the skills, each outcome in the order of the source."""

    def those(outcome: Outcome) -> tuple[MovedSkill, ...]:
        return tuple(
            MovedSkill(
                name=one.name,
                source=one.source,
                path=one.path,
                reason=one.reason,
                problems=problem_documents(one.problems),
            )
            for one in moves
            if one.outcome is outcome
        )

    return SkillsExported(
        target=str(target),
        dry_run=dry_run,
        created=those(Outcome.CREATED),
        updated=those(Outcome.UPDATED),
        unchanged=those(Outcome.UNCHANGED),
        skipped=those(Outcome.SKIPPED),
    )


def print_moves(moves: Sequence[Moved], *, dry_run: bool) -> None:
    """A line per skill, warnings below it; the counts on stderr."""
    for one in moves:
        for line in _lines(one):
            click.echo(line)
    counts = [(sum(one.outcome is outcome for one in moves), outcome) for outcome in Outcome]
    told = ", ".join(f"{count} {outcome.value}" for count, outcome in counts)
    click.echo(f"{told} (nothing was written)" if dry_run else told, err=True)


def _lines(moved: Moved) -> Iterator[str]:
    """Names and paths are untrusted text."""
    head = f"{moved.outcome.value:9} {one_line(moved.name)}"
    if moved.reason is not None:
        yield f"{head}  {one_line(f'{moved.source}: {moved.reason}')}"
        return
    yield f"{head}  {one_line(moved.path)}"
    for problem in moved.problems:
        yield f"  {problem.severity.value}: {one_line(f'{problem.message} {problem.hint}')}"


def outcome_code(moves: Iterable[Moved]) -> ExitCode:
    """A failure where something was left behind, so that a script notices."""
    skipped = any(one.outcome is Outcome.SKIPPED for one in moves)
    return ExitCode.FAILURE if skipped else ExitCode.OK

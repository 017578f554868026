"""Judges claims and results by the matrix: the state of each id, and all that is wrong."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from conformance.choices import CHOICES, Choice
from conformance.matrix import ROWS, Row
from conformance.recorder import Claims, Outcome, Result
from conformance.skips import objection


class Status(StrEnum):
    """What is known about an id."""

    GREEN = "green"
    RED = "red"
    SKIPPED = "skipped"
    PENDING = "pending"
    MISSING = "missing"
    UNKNOWN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One id of the matrix or of the choices, with its tests and what became of them."""

    id: str
    title: str
    status: Status
    tests: tuple[str, ...]
    pending: str | None = None


def verdicts(
    claims: Claims,
    results: Iterable[Result],
    *,
    rows: Iterable[Row] = ROWS,
    choices: Iterable[Choice] = CHOICES,
) -> tuple[Verdict, ...]:
    """The state of every id, in the order of the report."""
    endings = endings_of(results)
    claimed = claims.claimed
    titles = [(row.id, row.rule, row.pending) for row in rows]
    titles += [(choice.id, choice.question, None) for choice in choices]
    return tuple(
        Verdict(
            id=row_id,
            title=title,
            status=_status(claimed.get(row_id, ()), endings, pending=pending is not None),
            tests=claimed.get(row_id, ()),
            pending=pending,
        )
        for row_id, title, pending in titles
    )


def endings_of(results: Iterable[Result]) -> dict[str, Outcome]:
    """How each test ended over all its parameters: failed if any did, skipped if all were."""
    order = (Outcome.SKIPPED, Outcome.PASSED, Outcome.FAILED)
    endings: dict[str, Outcome] = {}
    for result in results:
        before = endings.get(result.test, result.outcome)
        endings[result.test] = max(before, result.outcome, key=order.index)
    return endings


def _status(tests: tuple[str, ...], endings: Mapping[str, Outcome], *, pending: bool) -> Status:
    found = {endings.get(test) for test in tests}
    if pending and not tests:
        return Status.PENDING
    if not tests:
        return Status.MISSING
    if Outcome.FAILED in found:
        return Status.RED
    if None in found:
        return Status.UNKNOWN
    return Status.GREEN if Outcome.PASSED in found else Status.SKIPPED


def faults_of_claims(
    claims: Claims, root: Path, *, rows: Iterable[Row] = ROWS, choices: Iterable[Choice] = CHOICES
) -> Iterator[str]:
    """What is wrong before any test has run, one line each."""
    rows, choices = tuple(rows), tuple(choices)
    for error in claims.errors:
        yield f"{error} (it may hide tests)"
    known = {row.id for row in rows} | {choice.id for choice in choices}
    claimed = claims.claimed
    for claimed_id in claimed.keys() - known:
        yield f"{claimed_id}: there is no such id, but {claimed[claimed_id][0]} claims it"
    for row in rows:
        if row.pending and row.id in claimed:
            yield f"{row.id}: pending ({row.pending}), but {claimed[row.id][0]} shows it; take `pending` away"
        elif not row.pending and row.id not in claimed:
            yield f"{row.id}: no test shows it"
    for choice in choices:
        yield from _faults_of(choice, claims, root)


def _faults_of(choice: Choice, claims: Claims, root: Path) -> Iterator[str]:
    if not choice.tests:
        yield f"{choice.id}: the choice names no test"
    for test in choice.tests:
        if test not in claims.tests:
            yield f"{choice.id}: the choice names {test}, which is not there"
    for place in choice.places:
        if not (root / place).is_file():
            yield f"{choice.id}: the choice names {place}, which is not there"


def faults_of_results(claims: Claims, results: Iterable[Result], *, require_real: bool) -> Iterator[str]:
    """What is wrong with how the tests ended, one line each."""
    results = sorted(results)
    for result in results:
        if result.outcome is Outcome.FAILED:
            yield f"{result.test}: failed"
        elif result.outcome is Outcome.SKIPPED:
            why = objection(result.reason, require_real=require_real)
            if why is not None:
                yield f"{result.test}: skipped ({result.reason}): {why}"
    ran = {result.test for result in results}
    for test in sorted({test for tests in claims.claimed.values() for test in tests} - ran):
        yield f"{test}: did not run"

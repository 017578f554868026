"""What the comparison of sessions on past issues says of a proposal."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from symphony.library.evaluation import (
    Comparison,
    Evaluation,
    Sums,
    Trial,
    Verdict,
    sums,
    verdict,
)
from symphony.library.model import Evidence, NotInLibraryError, SkillText
from symphony.library.store import Library

GOOD = Trial(passed=True, seconds=1.0, turns=1, tokens=100, problem=None)
BAD = structs.replace(GOOD, passed=False, problem="the check ended with status 1")


def compared(without: Trial, changed: Trial) -> Comparison:
    return Comparison(
        issue_identifier="SYM-1", base_commit="c0ffee", agent="codex", without=without, changed=changed
    )


def evaluation(*verdicts: Verdict) -> Evaluation:
    pairs = {Verdict.BETTER: (BAD, GOOD), Verdict.WORSE: (GOOD, BAD), Verdict.SAME: (GOOD, GOOD)}
    comparisons = tuple(compared(*pairs[each]) for each in verdicts)
    return Evaluation(check="make test", base_version=1, comparisons=comparisons, at_ms=7)


@pytest.mark.parametrize(
    ("without", "changed", "expected"),
    [
        (BAD, GOOD, Verdict.BETTER),
        (GOOD, BAD, Verdict.WORSE),
        (BAD, structs.replace(BAD, tokens=1), Verdict.SAME),
        (GOOD, structs.replace(GOOD, tokens=80), Verdict.BETTER),
        (GOOD, structs.replace(GOOD, tokens=81), Verdict.SAME),
        (GOOD, structs.replace(GOOD, tokens=124), Verdict.SAME),
        (GOOD, structs.replace(GOOD, tokens=125), Verdict.WORSE),
        (GOOD, structs.replace(GOOD, turns=3), Verdict.SAME),
        (structs.replace(GOOD, tokens=0), structs.replace(GOOD, turns=2), Verdict.WORSE),
        (structs.replace(GOOD, turns=2), structs.replace(GOOD, tokens=0), Verdict.BETTER),
    ],
)
def test_the_check_decides_then_tokens_and_turns_where_there_are_none(
    without: Trial, changed: Trial, expected: Verdict
) -> None:
    assert verdict(compared(without, changed)) is expected


@pytest.mark.parametrize(
    ("verdicts", "recommended"),
    [
        ((), False),
        ((Verdict.SAME, Verdict.SAME), False),
        ((Verdict.BETTER, Verdict.SAME), True),
        ((Verdict.BETTER, Verdict.BETTER, Verdict.WORSE), False),
    ],
)
def test_a_change_is_recommended_if_one_issue_got_better_and_none_worse(
    verdicts: tuple[Verdict, ...], *, recommended: bool
) -> None:
    assert evaluation(*verdicts).recommended is recommended


def test_sums_count_those_that_passed() -> None:
    assert sums([GOOD, BAD]) == Sums(passed=1, seconds=2.0, turns=2, tokens=200)


def test_an_evaluation_is_kept_with_its_proposal_and_a_later_one_replaces_it(tmp_path: Path) -> None:
    library = Library(tmp_path / "library.db")
    text = SkillText(name="style", description="Style.", when_to_use="", content="Be brief.\n")
    proposal = library.propose(text, Evidence(), base_version=0)
    assert proposal is not None
    assert proposal.evaluation is None
    first, second = evaluation(Verdict.WORSE), evaluation(Verdict.BETTER, Verdict.SAME)
    assert library.record_evaluation(proposal.id, first).evaluation == first
    assert library.record_evaluation(proposal.id, second).evaluation == second
    assert library.proposal(proposal.id).evaluation == second
    assert library.proposals()[0].evaluation == second
    with pytest.raises(NotInLibraryError):
        library.record_evaluation(99, first)


def test_a_library_of_a_version_without_evaluations_gets_them_and_keeps_its_proposals(tmp_path: Path) -> None:
    library = Library(tmp_path / "library.db")
    text = SkillText(name="style", description="Style.", when_to_use="", content="Be brief.\n")
    proposal = library.propose(text, Evidence(), base_version=0)
    assert proposal is not None
    with closing(sqlite3.connect(library.path)) as connection:
        connection.executescript("DROP TABLE evaluations; PRAGMA user_version = 2;")
    assert library.proposals() == (proposal,)
    assert library.record_evaluation(proposal.id, evaluation(Verdict.BETTER)).evaluation is not None

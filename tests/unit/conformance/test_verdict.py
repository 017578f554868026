from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.choices import Choice, Group
from conformance.matrix import ROWS, Row
from conformance.recorder import Claims, Outcome, Result
from conformance.skips import PERMITTED, Skip, objection
from conformance.verdict import Status, endings_of, faults_of_claims, faults_of_results, verdicts

RULE = Row(id="W-1", rule="A rule.", covers="WF1", kinds="U")
WAITING = Row(id="X-1", rule="Another.", covers="SW3", kinds="U", pending="what is to come")
CHOICE = Choice(
    id="colour",
    group=Group.OPEN,
    question="Which one?",
    ours="Green.",
    places=("README.md",),
    tests=("tests/test_a.py::test_b",),
)
PASSED, SKIPPED, FAILED = Outcome.PASSED, Outcome.SKIPPED, Outcome.FAILED


class Item:
    """Just enough of a pytest item."""

    def __init__(self, nodeid: str, *ids: str) -> None:
        self.nodeid = nodeid
        self.marks = [pytest.mark.conformance(*ids).mark] if ids else []

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        assert name == "conformance"
        return self.marks

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def claims_of(*items: Item) -> Claims:
    claims = Claims((CHOICE,))
    claims.pytest_collection_modifyitems(list(items))  # type: ignore[arg-type]  # stand-ins
    return claims


def faults(claims: Claims, root: Path) -> list[str]:
    return list(faults_of_claims(claims, root, rows=(RULE, WAITING), choices=(CHOICE,)))


def statuses(claims: Claims, results: Iterable[Result]) -> dict[str, Status]:
    judged = verdicts(claims, results, rows=(RULE, WAITING), choices=(CHOICE,))
    return {verdict.id: verdict.status for verdict in judged}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "README.md").touch()
    return tmp_path


GOOD = (Item("tests/test_a.py::test_a[1]", "W-1"), Item("tests/test_a.py::test_a[2]", "W-1"))
CHOSEN = Item("tests/test_a.py::test_b")


# --- claims ---


def test_a_whole_suite_has_no_fault_and_its_parameters_are_folded(root: Path) -> None:
    claims = claims_of(*GOOD, CHOSEN)
    assert claims.claimed == {"W-1": ("tests/test_a.py::test_a",), "colour": ("tests/test_a.py::test_b",)}
    assert faults(claims, root) == []


def test_a_rule_without_a_test_is_a_fault(root: Path) -> None:
    assert faults(claims_of(CHOSEN), root) == ["W-1: no test shows it"]


def test_an_id_that_does_not_exist_is_a_fault(root: Path) -> None:
    (fault,) = faults(claims_of(*GOOD, CHOSEN, Item("tests/test_a.py::test_c", "W-99")), root)
    assert fault.startswith("W-99: there is no such id")
    assert "test_c" in fault


def test_a_pending_rule_that_a_test_shows_is_a_fault(root: Path) -> None:
    claims = claims_of(*GOOD, CHOSEN, Item("tests/test_a.py::test_c", "X-1"))
    (fault,) = faults(claims, root)
    assert fault.startswith("X-1: pending (what is to come), but tests/test_a.py::test_c")
    assert statuses(claims, ())["X-1"] is Status.UNKNOWN


def test_a_choice_whose_test_or_place_is_gone_is_a_fault(tmp_path: Path) -> None:
    assert faults(claims_of(*GOOD), tmp_path) == [
        "colour: the choice names tests/test_a.py::test_b, which is not there",
        "colour: the choice names README.md, which is not there",
    ]


def test_a_choice_without_a_test_is_a_fault(root: Path) -> None:
    bare = replace(CHOICE, tests=())
    found = list(faults_of_claims(claims_of(*GOOD), root, rows=(RULE,), choices=(bare,)))
    assert "colour: the choice names no test" in found


def test_what_cannot_be_imported_is_a_fault_because_it_may_hide_tests(root: Path) -> None:
    claims = claims_of(*GOOD, CHOSEN)
    claims.errors.append("tests/test_z.py: SyntaxError")
    assert faults(claims, root) == ["tests/test_z.py: SyntaxError (it may hide tests)"]


def test_the_test_of_a_choice_is_marked_so_that_it_runs_with_the_others() -> None:
    chosen = Item("tests/test_a.py::test_b")
    claims_of(chosen)
    assert [mark.args for mark in chosen.marks] == [("colour",)]


# --- results ---


def result(test: str, outcome: Outcome, reason: str = "") -> Result:
    return Result(test=f"tests/test_a.py::{test}", outcome=outcome, reason=reason)


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ((PASSED,), Status.GREEN),
        ((PASSED, SKIPPED), Status.GREEN),
        ((SKIPPED,), Status.SKIPPED),
        ((PASSED, FAILED, SKIPPED), Status.RED),
        ((), Status.UNKNOWN),
    ],
)
def test_a_rule_is_as_good_as_its_worst_test(outcomes: tuple[Outcome, ...], status: Status) -> None:
    assert statuses(claims_of(*GOOD), [result("test_a", outcome) for outcome in outcomes]) == {
        "W-1": status,
        "X-1": Status.PENDING,
        "colour": Status.MISSING,
    }


def test_a_failing_tear_down_makes_a_passed_test_fail() -> None:
    assert endings_of([result("test_a", PASSED), result("test_a", FAILED)]) == {
        "tests/test_a.py::test_a": FAILED
    }


def test_a_red_test_is_a_fault() -> None:
    assert list(faults_of_results(claims_of(*GOOD), [result("test_a", FAILED)], require_real=False)) == [
        "tests/test_a.py::test_a: failed"
    ]


def test_a_test_that_did_not_run_is_a_fault() -> None:
    assert list(faults_of_results(claims_of(*GOOD), [], require_real=False)) == [
        "tests/test_a.py::test_a: did not run"
    ]


@pytest.mark.conformance("R-2")
def test_a_skip_that_is_not_listed_is_a_fault() -> None:
    (fault,) = faults_of_results(
        claims_of(*GOOD), [result("test_a", SKIPPED, "no wish to")], require_real=False
    )
    assert fault.startswith("tests/test_a.py::test_a: skipped (no wish to): no such skip is permitted")


@pytest.mark.conformance("R-2")
@pytest.mark.parametrize("skip", PERMITTED, ids=lambda skip: skip.reason)
def test_a_listed_skip_is_permitted_unless_the_real_thing_is_required(skip: Skip) -> None:
    assert objection(skip.reason, require_real=False) is None
    assert (objection(skip.reason, require_real=True) is not None) is skip.required


# --- the matrix itself ---


def test_the_rules_that_wait_are_exactly_the_ones_agreed() -> None:
    assert {row.id for row in ROWS if row.pending} == {"R-1"}


def test_every_rule_has_an_id_of_its_own() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)

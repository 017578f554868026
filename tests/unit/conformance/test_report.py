from conformance.choices import CHOICES, Choice, Group
from conformance.matrix import Row
from conformance.report import render

ROW = Row(id="W-1", rule="A rule.", covers="WF1", kinds="U+P", environment="git")
WAITING = Row(id="X-1", rule="Another.", covers="SW3", kinds="U", pending="what is to come")
CHOICE = Choice(
    id="colour",
    group=Group.OPEN,
    question="Which one?",
    ours="Green.",
    places=("README.md",),
    tests=("t.py::b",),
)


def test_the_page_names_rule_tests_and_environment_and_never_a_result() -> None:
    claimed = {"W-1": ["tests/b.py::test_z", "tests/a.py::Test::test_y", "tests/b.py::test_a"]}
    page = render(claimed, rows=[ROW, WAITING], choices=[CHOICE])
    assert "### W-1\n\nA rule.\n\n*WF1; U+P; environment: git*\n" in page
    assert "- [tests/a.py](../tests/a.py): `Test::test_y`\n" in page
    assert "- [tests/b.py](../tests/b.py): `test_a`, `test_z`\n" in page
    assert "pending: what is to come" in page
    assert "Which one? **Green.**" in page
    assert not any(word in page for word in ("passed", "green\n", "failed"))


def test_the_page_is_the_same_whatever_the_order_of_collection() -> None:
    one = {"W-1": ["t.py::a", "t.py::b"]}
    other = {"W-1": ["t.py::b", "t.py::a"]}
    assert render(one, rows=[ROW]) == render(other, rows=[ROW])


def test_a_rule_without_a_test_is_named_at_the_top() -> None:
    assert "Without a test: W-1." in render({}, rows=[ROW], choices=[])


def test_every_choice_has_an_id_a_place_and_an_answer() -> None:
    assert len({choice.id for choice in CHOICES}) == len(CHOICES)
    for choice in CHOICES:
        assert choice.question.endswith("?")
        assert choice.ours.endswith(".")
        assert choice.places

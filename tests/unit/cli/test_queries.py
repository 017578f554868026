"""An issue as a person names it."""

import pytest

from symphony.cli.failures import CommandError
from symphony.cli.queries import resolve_issue, unknown_issue


def test_a_number_means_the_only_issue_that_has_it() -> None:
    answers = {"GH-7": "seven", "GH-17": "seventeen", "A-9": "a", "B-9": "b", "10": "ten", "X-10": "x"}
    ask, known = answers.get, lambda: tuple(answers)
    for name in ("7", "#7", "gh-7", " #7 "):
        assert resolve_issue(name, ask, known) == "seven"
    assert resolve_issue("#17", ask, known) == "seventeen"
    assert resolve_issue("10", ask, known) == "ten", "the exact name goes before the number"
    for name in ("9", "#9", "#", "07", "-7", "H-7", "¹7", "70"):
        with pytest.raises(CommandError) as caught:
            resolve_issue(name, ask, known)
        assert ("may be A-9, B-9:" in str(caught.value.failure.hint)) == (name in {"9", "#9"})


def test_a_name_means_the_exact_issue_or_the_only_one_that_differs_by_case() -> None:
    told = {"SYM-1": "one", "SYM-2": "two", "sym-2": "small", "SYM-4": None}
    ask, known = told.get, lambda: list(told)
    assert resolve_issue("SYM-2", ask, known) == "two"
    assert resolve_issue("sym-2", ask, known) == "small"
    assert resolve_issue("sym-1", ask, known) == "one"
    for name in ("Sym-2", "sym-4", "sym-9"):
        with pytest.raises(CommandError, match=f"there is no issue '{name}'"):
            resolve_issue(name, ask, known)


@pytest.mark.parametrize(
    ("identifier", "known", "hint"),
    [
        ("sym-12", ["SYM-12", "SYM-1", "OPS-9"], "did you mean SYM-12? Identifiers are compared exactly"),
        ("SYM-13", ["SYM-12", "SYM-1", "OPS-9"], "did you mean SYM-1, SYM-12?"),
        ("nothing", ["SYM-2", "SYM-1"], "the tracker lists SYM-1, SYM-2"),
        (
            "nothing",
            [f"SYM-{n}" for n in range(9)],
            "the tracker lists SYM-0, SYM-1, SYM-2, SYM-3, SYM-4 and 4 more",
        ),
        (
            "nothing",
            [],
            "the tracker lists no issue in an active state; `symphony status` shows the known ones",
        ),
    ],
)
def test_an_unknown_issue_is_told_with_what_may_be_meant(
    identifier: str, known: list[str], hint: str
) -> None:
    assert unknown_issue(identifier, known).failure.hint == hint

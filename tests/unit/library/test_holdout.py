"""The draw of the holdout: the right share, stable, and one skill of the library at most."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.library.holdout import withheld_skill

NAMES = st.sets(st.from_regex(r"[a-z]{1,8}", fullmatch=True), max_size=8)
SHARES = st.floats(0, 0.5)


@given(st.text(), NAMES, SHARES, SHARES)
def test_a_draw_is_stable_and_takes_one_eligible_skill(
    issue_id: str, names: set[str], share: float, other_share: float
) -> None:
    drawn = withheld_skill(issue_id, names, share)
    assert drawn is None or drawn in names
    assert withheld_skill(issue_id, sorted(names, reverse=True), share) == drawn
    if drawn is not None and other_share >= share:
        assert withheld_skill(issue_id, names, other_share) == drawn
    assert withheld_skill(issue_id, names, 0) is None


@given(st.text(), NAMES, st.from_regex(r"[a-z]{1,8}", fullmatch=True))
def test_another_skill_changes_the_choice_only_by_being_chosen(
    issue_id: str, names: set[str], new: str
) -> None:
    if names:
        assert withheld_skill(issue_id, names | {new}, 0.5) in {new, withheld_skill(issue_id, names, 0.5)}


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_the_share_of_drawn_issues_is_that_of_the_setting(share: float) -> None:
    names = ["alpha", "beta", "gamma", "delta"]
    drawn = Counter(withheld_skill(f"issue-{number}", names, share) for number in range(20_000))
    rate = 1 - drawn.pop(None) / 20_000
    assert rate == pytest.approx(share, abs=0.012)
    for name in names:  # each is withheld as often as the others
        assert drawn[name] / 20_000 == pytest.approx(share / 4, abs=0.012)


def test_the_draw_is_the_same_on_every_machine_and_in_every_version() -> None:
    found = [withheld_skill(f"id-{number}", ["a", "b", "c"], 0.3) for number in range(12)]
    assert found == [None] * 6 + ["b"] + [None] * 4 + ["b"]

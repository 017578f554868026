"""A short storm with a seed that is always the same; `make chaos` rages longer, and with others."""

import sys
from pathlib import Path

import pytest

from chaos.agent import MANNERS, ODD_ATTEMPTS, manner
from chaos.storm import Storm
from harness.nightly import NIGHTLY

pytestmark = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nothing_is_lost_and_nothing_happens_twice_in_a_storm(tmp_path: Path) -> None:
    storm = Storm(root=tmp_path, seed="4711", say=sys.stderr.write).rage(60 if NIGHTLY else 20)
    assert storm.problems == [], f"again: make chaos SEED={storm.seed}"
    assert storm.tally["issues"] >= 6
    assert storm.tally["daemon: SIGKILL"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thirty_kills_on_a_board_of_forty_issues_leave_no_double_and_no_orphan(tmp_path: Path) -> None:
    storm = Storm(root=tmp_path, seed="30", say=sys.stderr.write, at_once=40, kills=30).rage(300)
    assert storm.problems == [], f"again: make chaos SEED={storm.seed}"
    assert storm.tally["issues"] == 40
    killed = ("daemon", "supervisor", "subreaper", "agent")
    assert all(storm.tally[f"{each}: SIGKILL"] for each in killed), storm.tally
    assert sum(storm.tally[f"{each}: SIGKILL"] for each in killed) >= 30


def test_the_dice_choose_every_manner_and_the_same_again() -> None:
    chosen = {manner("seed", f"SYM-{number}", number % ODD_ATTEMPTS) for number in range(300)}
    assert chosen == {*MANNERS}
    assert manner("seed", "SYM-1", 0) == manner("seed", "SYM-1", 0)
    assert "--silent-after" not in {word for n in range(99) for word in manner("s", f"SYM-{n}", ODD_ATTEMPTS)}

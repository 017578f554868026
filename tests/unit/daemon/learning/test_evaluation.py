"""Which past issues are worked on again."""

from dataclasses import replace

from harness.journalling import run
from symphony.daemon.learning.evaluation import past_work


def test_the_newest_delivery_of_each_issue_counts() -> None:
    work = replace(run(1), issue_id="1", branch="symphony/SYM-1", commits=2, delivered=True)
    older = replace(work, commits=1)
    other = replace(work, issue_id="2", issue_identifier="SYM-2")
    idle = replace(work, issue_id="3", delivered=False)
    empty = replace(work, issue_id="4", commits=0)
    no_branch = replace(work, issue_id="5", branch=None)
    runs = [idle, work, empty, other, no_branch, older]
    assert past_work(runs) == (work, other)
    assert past_work(runs, learned_from="1") == (other, work), "it says little about other issues"

"""Which past issues are worked on again."""

from harness.journalling import run
from kit.facts import changed
from symphony.daemon.learning.evaluation import past_work


def test_the_newest_delivery_of_each_issue_counts() -> None:
    work = changed(run(1), issue_id="1", branch="symphony/SYM-1", commits=2, delivered=True)
    older = changed(work, commits=1)
    other = changed(work, issue_id="2", issue_identifier="SYM-2")
    idle = changed(work, issue_id="3", delivered=False)
    empty = changed(work, issue_id="4", commits=0)
    no_branch = changed(work, issue_id="5", branch=None)
    runs = [idle, work, empty, other, no_branch, older]
    assert past_work(runs) == (work, other)
    assert past_work(runs, learned_from="1") == (other, work), "it says little about other issues"

"""Delivered work: its size, and what is said of it."""

from msgspec import structs

from symphony.domain import (
    Blame,
    Category,
    DeliveredBranch,
    Failure,
    FileChange,
    Redaction,
    WorkSize,
)

SECRET = "tok-0123456789abcdef"
FILES = (
    FileChange(path="app.py", insertions=3, deletions=1),
    FileChange(path="logo.png", insertions=0, deletions=0),
)


def test_the_size_of_work_is_that_of_all_its_files() -> None:
    size = WorkSize.of(1, FILES)
    assert size == WorkSize(commits=1, files_changed=2, insertions=3, deletions=1)
    assert size.line == "1 commit, 2 files (+3 -1)"


def test_failures_of_a_branch_are_masked_and_what_is_delivered_stays() -> None:
    failure = Failure(category=Category.DELIVERY_FAILED, blame=Blame.HOST, message=f"no {SECRET}")
    branch = DeliveredBranch(branch="symphony/SYM-1", head="a" * 40, push_failure=failure)
    masked = branch.masked(Redaction([SECRET]))
    assert [SECRET in one.message for one in masked.failures] == [False]
    assert masked.branch_failure is None
    assert structs.replace(masked, push_failure=failure) == branch
    assert branch.is_pending

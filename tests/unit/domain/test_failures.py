import errno

import pytest

from symphony.domain import (
    Blame,
    Category,
    Failure,
    ServiceError,
    SymphonyError,
    disk_full_hint,
    is_disk_full,
    without_codes,
)


def test_a_failure_is_one_line_that_says_where_and_what() -> None:
    failure = Failure(
        category=Category.WORKFLOW_PARSE_ERROR, blame=Blame.CONFIG, message="bad YAML", where="WORKFLOW.md:3"
    )
    assert failure.line == "WORKFLOW.md:3: workflow_parse_error: bad YAML"


def test_a_failure_without_a_place_starts_with_its_category() -> None:
    failure = Failure(category=Category.STALLED, blame=Blame.AGENT, message="silence")
    assert failure.line == "stalled: silence"


def test_an_error_carries_its_failure_and_reads_like_it() -> None:
    failure = Failure(category=Category.PORT_EXIT, blame=Blame.AGENT, message="exit 1")
    error = SymphonyError(failure)
    assert error.failure is failure
    assert str(error) == "port_exit: exit 1"


def test_an_error_of_a_service_knows_what_caused_it() -> None:
    failure = Failure(
        category=Category.TRACKER_RESPONSE, blame=Blame.TRACKER, message="a record is malformed"
    )
    assert ServiceError(failure, culprits=frozenset({"7"})).culprits == {"7"}
    assert ServiceError(failure).culprits == frozenset()


def test_category_names_are_stable_codes() -> None:
    assert all(category.value == category.name.lower() for category in Category)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError("no number: No space left on device"),
        ValueError("fatal: write error: No space left on device"),
        "mkdir: cannot create directory: Disk quota exceeded",
    ],
)
def test_a_full_disk_is_recognised_by_errno_or_text(error: Exception | str) -> None:
    assert is_disk_full(error)


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "no space left on device"), "fatal: not a git repository"]
)
def test_other_errors_are_not_a_full_disk(error: Exception | str) -> None:
    assert not is_disk_full(error)


def test_the_hint_names_the_path() -> None:
    assert disk_full_hint("/srv/work").startswith("make room on the filesystem of /srv/work")


def test_people_read_a_failure_without_its_category() -> None:
    assert without_codes("it ended: turn_failed: exit 1") == "it ended: exit 1"
    assert without_codes("stalled: silence") == "silence"
    assert without_codes("nothing: here") == "nothing: here"

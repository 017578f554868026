import errno

import pytest

from symphony.domain import disk_full_hint, is_disk_full


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
def test_a_full_disk_is_known_by_its_number_or_its_words(error: Exception | str) -> None:
    assert is_disk_full(error)


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "no space left on device"), "fatal: not a git repository"]
)
def test_other_errors_are_none(error: Exception | str) -> None:
    assert not is_disk_full(error)


def test_the_hint_names_the_place() -> None:
    assert disk_full_hint("/srv/work").startswith("make room on the filesystem of /srv/work")

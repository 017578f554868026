"""The failures of the board. Every `TrackerError` of this adapter is made here."""

from pathlib import Path
from typing import Any

from symphony.domain import Blame, Category, Failure, disk_full_hint, is_disk_full
from symphony.trackers.base import ConfigProblem, TrackerError


def printable(text: object) -> str:
    """The text on one line: control, bidirectional and undecodable characters become escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in str(text)
    )


def malformed(
    path: Path, line: int, message: str, *, issue_id: str | None = None, hint: str | None = None
) -> TrackerError:
    """The failure for a malformed file."""
    return _error(
        Category.TRACKER_RESPONSE,
        message,
        hint=hint or "correct the file; it is read again at the next poll",
        where=f"{printable(path)}:{line}",
        culprits=frozenset(() if issue_id is None else (issue_id,)),
    )


def missing(message: str) -> TrackerError:
    """The failure for a name that is not on the board."""
    hint = "`symphony issue list` shows the issues"
    return _error(Category.TRACKER_STATUS, message, retryable=False, hint=hint)


def refused(message: str, *, hint: str | None = None) -> TrackerError:
    """The failure for a refused request."""
    return _error(Category.TRACKER_STATUS, message, retryable=False, hint=hint)


def busy(path: Path, attempts: int) -> TrackerError:
    """The failure for a file that changed each time before it could be replaced. Nothing was written."""
    return _error(
        Category.TRACKER_REQUEST,
        f"the file was changed by another program {attempts} times in a row; nothing was written",
        hint="try again",
        where=f"{printable(path)}:1",
    )


def unreachable(path: Path, error: OSError) -> TrackerError:
    """The failure for an error of the file system."""
    if isinstance(error, FileNotFoundError):
        hint = "`symphony init` makes a board; `tracker.provider.path` is its folder"
    elif is_disk_full(error):
        hint = disk_full_hint(printable(path))
    else:
        hint = "check the path and its permissions"
    message = f"{path}: {error.strerror or type(error).__name__}"
    return _error(Category.TRACKER_REQUEST, message, hint=hint)


def config_problem(key: str, message: str, *, hint: str | None = None) -> ConfigProblem:
    """A setting that the board cannot use; `key` is its dotted name."""
    return ConfigProblem(
        location=tuple(key.split(".")),
        failure=Failure(
            category=Category.INVALID_TRACKER_CONFIG,
            blame=Blame.CONFIG,
            message=printable(f"{key} {message}"),
            retryable=False,
            hint=hint or "docs/trackers/markdown.md describes the settings of the board",
        ),
    )


def _error(
    category: Category, message: str, *, culprits: frozenset[str] = frozenset(), **details: Any
) -> TrackerError:
    failure = Failure(category=category, blame=Blame.TRACKER, message=printable(message), **details)
    return TrackerError(failure, culprits=culprits)

"""The words in which the board refuses: every `TrackerError` of this adapter is made here (TR3, TR7)."""

from pathlib import Path

from symphony.domain.disk import is_full, make_room
from symphony.domain.failures import Blame, Category, Failure
from symphony.trackers.base import ConfigProblem, TrackerError

__all__ = ["busy", "invalid_config", "malformed", "missing", "printable", "refused", "unreachable"]


def printable(text: object) -> str:
    """`text` on one line: control, bidi and undecodable characters become escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in str(text)
    )


def malformed(
    path: Path, line: int, message: str, *, issue_id: str | None = None, hint: str | None = None
) -> TrackerError:
    """A file that cannot be read as what it should be (TR4); `where` is `path:line`."""
    failure = Failure(
        category=Category.TRACKER_RESPONSE,
        blame=Blame.TRACKER,
        message=printable(message),
        retryable=True,
        hint=hint or "correct the file; it is read again at the next poll",
        where=f"{printable(path)}:{line}",
    )
    return TrackerError(failure, culprits=frozenset(() if issue_id is None else (issue_id,)))


def missing(what: str, *, hint: str | None = None) -> TrackerError:
    """Something asked for by name is not on the board."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_STATUS,
            blame=Blame.TRACKER,
            message=printable(what),
            retryable=False,
            hint=hint or "`symphony issue list` shows what is there",
        )
    )


def refused(message: str, *, hint: str | None = None) -> TrackerError:
    """A request that the board will not carry out."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_STATUS,
            blame=Blame.TRACKER,
            message=printable(message),
            retryable=False,
            hint=hint,
        )
    )


def busy(path: Path, attempts: int) -> TrackerError:
    """A file that changed under us each time we were about to replace it; nothing was written."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"the file was changed by somebody else {attempts} times in a row; nothing was written",
            hint="try again",
            where=f"{printable(path)}:1",
        )
    )


def unreachable(path: Path, error: OSError) -> TrackerError:
    """The file system did not do what was asked."""
    if isinstance(error, FileNotFoundError):
        hint = "`symphony init` makes a board; `tracker.provider.path` says where it is"
    elif is_full(error):
        hint = make_room(printable(path))
    else:
        hint = "check the path and its permissions"
    return TrackerError(
        Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"{printable(path)}: {error.strerror or type(error).__name__}",
            hint=hint,
        )
    )


def invalid_config(key: str, message: str, *, hint: str | None = None) -> ConfigProblem:
    """A setting of `tracker` that this adapter cannot work with; `key` is its dotted name."""
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

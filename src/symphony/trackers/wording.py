"""Refusals that are ours and the same for every service: what was named is not there, or was not done."""

from collections.abc import Sequence

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.plain import one_line
from symphony.trackers.base import TrackerError

__all__ = ["no_such_state", "no_way", "not_found", "not_moved"]

_NAME = 80


def not_found(service: str, what: str, *, hint: str | None = None, status: int = 404) -> TrackerError:
    """Something asked for by name is not there, or may not be seen."""
    return _refusal(f"{service}: there is no {one_line(what, 200)}", hint, status=status)


def no_such_state(service: str, state: str, known: Sequence[str]) -> TrackerError:
    """A state to move to that the tracker does not have."""
    hint = f"states: {', '.join(known)}" if known else None
    return _refusal(f"{service}: there is no state {one_line(state, _NAME)!r}", hint)


def no_way(service: str, issue: str, *, wanted: str, found: str, known: Sequence[str]) -> TrackerError:
    """No rule of the tracker leads an issue from where it is to that state, or there is no such state."""
    hint = f"from there it can be moved to: {', '.join(known)}" if known else "it cannot be moved from there"
    return _refusal(
        f"{service}: {one_line(issue, _NAME)} cannot be moved from {one_line(found, _NAME)!r}"
        f" to {one_line(wanted, _NAME)!r}",
        hint,
    )


def not_moved(service: str, issue: str, *, wanted: str, found: str, hint: str | None = None) -> TrackerError:
    """The service took the move and did not make it."""
    return _refusal(
        f"{service}: {one_line(issue, _NAME)} is still in {one_line(found, _NAME)!r}"
        f" after a move to {one_line(wanted, _NAME)!r}",
        hint or "the tracker's rules may forbid this move, or somebody else made another one",
    )


def _refusal(message: str, hint: str | None, *, status: int | None = None) -> TrackerError:
    return TrackerError(
        Failure(
            category=Category.TRACKER_STATUS,
            blame=Blame.TRACKER,
            message=message,
            retryable=False,
            hint=hint or "look at the issue in the tracker",
            status=status,
        )
    )

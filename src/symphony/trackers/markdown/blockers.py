"""Which issues wait for others: blockers, and cycles among them. Pure (TR6)."""

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["find_cycles"]

_TOLD = 10


def find_cycles(blocked_by: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The cycle that an issue is in, for issues in one; every set of cycles gets at least one of them told.

    Args:
        blocked_by: for each open issue the open issues that block it; ids that are no key are ignored.

    Returns:
        For each member of a found cycle: the ids of that cycle, beginning with the member itself; of a long
        one the first ten, and then `...`.
    """
    stuck = _never_free(blocked_by)
    following = {issue: next(other for other in blocked_by[issue] if other in stuck) for issue in stuck}
    cycles: dict[str, tuple[str, ...]] = {}
    visited: set[str] = set()
    for start in sorted(stuck):
        ring = _walk(start, following, visited)
        for index, issue in enumerate(ring):
            cycles[issue] = _told(ring, index)
    return cycles


def _told(ring: tuple[str, ...], index: int) -> tuple[str, ...]:
    head = ring[index : index + _TOLD]
    head = (*head, *ring[: min(index, _TOLD - len(head))])
    return head if len(ring) <= _TOLD else (*head, "...")


def _never_free(blocked_by: Mapping[str, Sequence[str]]) -> set[str]:
    """Issues that stay blocked when everything that can be finished has been finished."""
    waiting = {
        issue: {other for other in others if other in blocked_by} for issue, others in blocked_by.items()
    }
    dependents: dict[str, list[str]] = {}
    for issue, others in waiting.items():
        for other in others:
            dependents.setdefault(other, []).append(issue)
    free = [issue for issue, others in waiting.items() if not others]
    while free:
        done = free.pop()
        free.extend(_released(done, dependents.get(done, ()), waiting))
        del waiting[done]
    return set(waiting)


def _released(done: str, dependents: Iterable[str], waiting: Mapping[str, set[str]]) -> list[str]:
    released = []
    for issue in dependents:
        waiting[issue].discard(done)
        if not waiting[issue]:
            released.append(issue)
    return released


def _walk(start: str, following: Mapping[str, str], visited: set[str]) -> tuple[str, ...]:
    """Follow the first blocker from `start`; the ring that closes, or nothing where it was walked before."""
    path: dict[str, None] = {}
    issue = start
    while issue not in visited:
        visited.add(issue)
        path[issue] = None
        issue = following[issue]
    if issue not in path:
        return ()
    members = list(path)
    return tuple(members[members.index(issue) :])

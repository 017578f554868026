"""Finds running issues that change the same files.

The agent of the later run gets a note, once for each file.
"""

from collections.abc import Iterator
from dataclasses import replace

from symphony.scheduler.messages import Overlap
from symphony.scheduler.state import Running, State


def overlaps(state: State, run: Running) -> tuple[Overlap, ...]:
    """The other running issues whose work changes files that this run's work changes."""
    return tuple(
        Overlap(identifier=other.issue.identifier, paths=paths) for other, paths in _shared(state, run)
    )


def with_overlaps_told(state: State, run: Running) -> tuple[Running, tuple[Overlap, ...]]:
    """The run with its new overlaps recorded, and these overlaps.

    Only the agent of the later run gets them, so that only one of two agents gives way.
    """
    new = list[Overlap]()
    told = set(run.told_overlaps)
    for other, paths in _shared(state, run):
        if (other.started_ms, other.run_id) < (run.started_ms, run.run_id):
            unknown = tuple(path for path in paths if (other.issue.id, path) not in told)
            told.update((other.issue.id, path) for path in unknown)
            new += [Overlap(identifier=other.issue.identifier, paths=unknown)] if unknown else []
    return (replace(run, told_overlaps=frozenset(told)) if new else run), tuple(new)


def _shared(state: State, run: Running) -> Iterator[tuple[Running, tuple[str, ...]]]:
    for other in state.running.values():
        if other.run_id != run.run_id and (shared := run.changed & other.changed):
            yield other, tuple(sorted(shared))

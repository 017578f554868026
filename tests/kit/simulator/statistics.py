"""Figures of one simulation, counted moment by moment."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from kit.simulator.books import Moment
from symphony.scheduler import FetchCandidates, Notify, RefreshIssues, RunEnded

__all__ = ["Statistics", "Tally"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a simulation came to; times are virtual milliseconds.

    Attributes:
        virtual_ms: how long it lasted. inputs: facts the scheduler was told.
        lives: daemons that were started.
        issues: on the board at any time. finished: in a terminal state at the end.
        starts: runs started. retries: those of them that were not the first of their claim.
        starts_per_issue: by issue id. blocks: claims that came to wait for a person.
        max_running: the most runs that were live at once.
        polls, refreshes: requests to the tracker. requests_per_poll: both together, per poll.
        slot_gap_ms, longest_slot_gap_ms: from a freed slot to the next start, where an issue was waiting for
            it; the median and the longest, null where there was none.
        crashes: deaths at a crash point, by point.
    """

    virtual_ms: int
    inputs: int
    lives: int
    issues: int
    finished: int
    starts: int
    retries: int
    starts_per_issue: dict[str, int] = field(default_factory=dict)
    blocks: int
    max_running: int
    polls: int
    refreshes: int
    requests_per_poll: float
    slot_gap_ms: float | None
    longest_slot_gap_ms: int | None
    crashes: dict[str, int] = field(default_factory=dict)


class Tally:
    """Counts what a simulation's moments tell."""

    def __init__(self) -> None:
        self._starts: Counter[str] = Counter()
        self._retries = 0
        self._blocks = 0
        self._polls = 0
        self._refreshes = 0
        self._max_running = 0
        self._freed_ms: list[int] = []
        self._gaps: list[int] = []

    def watch(self, moment: Moment) -> None:
        """Count one moment."""
        for start in moment.starts:
            self._starts[start.issue.id] += 1
            self._retries += start.attempt is not None
            if self._freed_ms:
                self._gaps.append(moment.now_ms - self._freed_ms.pop(0))
        if moment.starts:
            self._max_running = max(self._max_running, len(moment.books.live))
        for command in moment.commands:
            self._polls += isinstance(command, FetchCandidates)
            self._refreshes += isinstance(command, RefreshIssues)
            self._blocks += isinstance(command, Notify) and command.event == "issue_blocked"
        if isinstance(moment.fact, RunEnded) and len(moment.after.pending_candidates) > len(
            moment.before.pending_candidates
        ):
            self._freed_ms.append(moment.now_ms)
        elif not moment.after.pending_candidates:
            self._freed_ms.clear()

    def statistics(
        self,
        *,
        virtual_ms: int,
        inputs: int,
        lives: int,
        issues: int,
        finished: int,
        crashes: Mapping[str, int],
    ) -> Statistics:
        """The figures so far, with those that only the caller knows."""
        return Statistics(
            virtual_ms=virtual_ms,
            inputs=inputs,
            lives=lives,
            issues=issues,
            finished=finished,
            starts=self._starts.total(),
            retries=self._retries,
            starts_per_issue=dict(sorted(self._starts.items())),
            blocks=self._blocks,
            max_running=self._max_running,
            polls=self._polls,
            refreshes=self._refreshes,
            requests_per_poll=(self._polls + self._refreshes) / max(self._polls, 1),
            slot_gap_ms=median(self._gaps) if self._gaps else None,
            longest_slot_gap_ms=max(self._gaps, default=None),
            crashes=dict(sorted(crashes.items())),
        )

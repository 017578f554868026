"""The look at an issue right before it starts (SC9), and when it may be the look of a moment ago.

An issue starts only on an answer by id. Where a run is about to end, the issues that may follow it are asked
for together with its own, so that a slot that becomes free is filled at once. Such an answer is good for
`GUARD_MS`, counted from the question: no older than what a tracker behind a network tells anyway. It is good
for nothing if the claim on the issue changed hands since it was asked, if a poll tells something else of the
issue, or if somebody told us that something changed at the tracker.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from symphony.domain.issue import Issue
from symphony.scheduler import policy
from symphony.scheduler.policy import Eligible, ReasonCode
from symphony.scheduler.state import State
from symphony.scheduler.work import Work

__all__ = ["GUARD_MS", "forget_all", "forget_changed", "is_fresh", "likely_next", "saw"]

GUARD_MS = 250
_MOST_LOOKED_AT = 64
_NO_SLOT = frozenset({ReasonCode.NO_SLOT, ReasonCode.NO_STATE_SLOT})


def is_fresh(state: State, issue_id: str, now_ms: int) -> bool:
    """Whether an answer that we have may start the issue."""
    asked_ms = state.looked.get(issue_id)
    return asked_ms is not None and now_ms - asked_ms <= GUARD_MS


def saw(work: Work, ids: Collection[str], asked_ms: int) -> None:
    """Candidates were seen by id; what is too old is forgotten."""
    kept = {key: at for key, at in work.state.looked.items() if work.now_ms - at <= GUARD_MS}
    found = dict.fromkeys(ids, asked_ms) if work.now_ms - asked_ms <= GUARD_MS else {}
    if kept or found or work.state.looked:
        work.update(looked={**kept, **found})


def forget_all(work: Work) -> None:
    """Something changed at the tracker: what was seen, or is being asked, may be from before."""
    if work.state.looked:
        work.update(looked={})
    under_way = work.state.refresh
    if under_way is not None and under_way.ahead:
        work.update(refresh=replace(under_way, ahead=frozenset()))


def forget_changed(work: Work, before: Mapping[str, Issue]) -> None:
    """A poll told of candidates anew: what it tells as it was seen by id stays seen."""
    looked, now = work.state.looked, work.state.candidates
    kept = {key: at for key, at in looked.items() if key in now and now[key] == before.get(key)}
    forget_all(work)
    if kept:
        work.update(looked=kept)


def likely_next(state: State) -> frozenset[str]:
    """The candidates that would follow the runs whose turn has ended, as far as they wait for a slot alone.

    Some of those runs may go on: then a few ids were asked for in vain, in a request that was sent anyway.
    """
    ending = sum(run.awaiting or run.finishing is not None for run in state.running.values())
    if not ending:
        return frozenset()
    found: set[str] = set()
    passed = state.running.keys() | state.picks | state.deferred
    unclaimed = (issue for issue in state.candidates.values() if issue.id not in passed)
    for _, issue in zip(range(_MOST_LOOKED_AT), unclaimed, strict=False):
        if len(found) == ending:
            break
        verdict = policy.eligible(issue, state)
        if isinstance(verdict, Eligible) or verdict.code in _NO_SLOT:
            found.add(issue.id)
    return frozenset(found)

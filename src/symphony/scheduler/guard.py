"""The look at an issue right before it starts (SC9), and when it may be the look of a moment ago.

An issue starts only on an answer by id. Where a run is about to end, the issues that may follow it are asked
for together with its own, so that a slot that becomes free is filled at once. Such an answer is good for
`GUARD_MS`, counted from the question: no older than what a tracker behind a network tells anyway. It is good
for nothing if the claim on the issue changed hands since it was asked, or somebody told us that something
changed at the tracker.
"""

from collections.abc import Collection
from dataclasses import replace

from symphony.scheduler import policy
from symphony.scheduler.policy import Eligible, ReasonCode
from symphony.scheduler.state import State
from symphony.scheduler.work import Work

__all__ = ["GUARD_MS", "forget_all", "is_fresh", "likely_next", "saw"]

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


def likely_next(state: State) -> frozenset[str]:
    """The candidates that would follow the runs whose turn has ended, as far as they wait for a slot alone.

    Those runs may go on as well: then a few ids were asked for in vain, in a request that was sent anyway.
    """
    ending = sum(run.awaiting for run in state.running.values())
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

"""Why each known issue is not running: the verdict of `policy` for all of them at once, in its own words."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from symphony.domain.issue import Issue
from symphony.scheduler import policy
from symphony.scheduler.policy import Ineligible, ReasonCode
from symphony.scheduler.state import State

__all__ = ["CODES", "Reason", "Reasons", "waiting"]


@dataclass(frozen=True, slots=True)
class Reason:
    """`code` is stable: one of `policy.ReasonCode`, or `starting` or `deferred`; `message` is for people."""

    code: str
    message: str


Reasons = Callable[[State], Iterable[tuple[Issue, Reason]]]
"""What tells the waiting issues with their reasons, in the order in which they would start."""

_STARTING = Reason("starting", "starts as soon as it is refreshed")
_DEFERRED = Reason("deferred", "its refresh failed; it is asked about again after the next poll")
CODES: Final = (*(code.value for code in ReasonCode), _STARTING.code, _DEFERRED.code, "ready")
"""Every code that an issue can be selected by; those that are `ready` for review wait for nothing of ours."""


def waiting(state: State, *, identifier: str | None = None) -> Iterator[tuple[Issue, Reason]]:
    """The candidates without a claim, in the order in which they would start, each with its reason.

    With `identifier`, only those that are called so.
    """
    for issue in state.candidates.values():
        if identifier is not None and issue.identifier != identifier:
            continue
        if not (issue.id in state.running or issue.id in state.retrying or issue.id in state.blocked):
            yield issue, _reason(issue, state)


def _reason(issue: Issue, state: State) -> Reason:
    verdict = policy.eligible(issue, state)
    if isinstance(verdict, Ineligible):
        return Reason(verdict.code.value, verdict.message)
    return _DEFERRED if issue.id in state.deferred else _STARTING

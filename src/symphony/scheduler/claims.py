"""Claims: who holds an issue, and the only way a claim may change hands.

The table is the rule; `move` is its interpreter and the only code that touches the three claim maps.

    An issue is Unclaimed until a run starts for it. A run that is asked to stop keeps slot and claim
    until its end arrives, because its processes may still be alive. After its end the claim waits for
    a retry, waits for a person (Blocked), or is released. A pair that is not in the table leaves the
    state as it is, and the caller gets null (SM1-SM3).
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import assert_never

from symphony.scheduler.state import Blocked, Entry, Retry, Running, State

__all__ = ["TRANSITIONS", "Claim", "Trigger", "claim_of", "move"]


class Claim(StrEnum):
    """The states of a claim (SM1)."""

    UNCLAIMED = "unclaimed"
    RUNNING = "running"
    STOPPING = "stopping"
    RETRYING = "retrying"
    BLOCKED = "blocked"


class Trigger(StrEnum):
    """What changes a claim."""

    RECOVER = "recover"
    START = "start"
    STOP = "stop"
    RETRY = "retry"
    BLOCK = "block"
    RELEASE = "release"


TRANSITIONS: Mapping[tuple[Claim, Trigger], Claim] = {
    (Claim.UNCLAIMED, Trigger.START): Claim.RUNNING,
    (Claim.UNCLAIMED, Trigger.RECOVER): Claim.RETRYING,
    (Claim.UNCLAIMED, Trigger.BLOCK): Claim.BLOCKED,
    (Claim.RUNNING, Trigger.STOP): Claim.STOPPING,
    (Claim.RUNNING, Trigger.RETRY): Claim.RETRYING,
    (Claim.RUNNING, Trigger.BLOCK): Claim.BLOCKED,
    (Claim.RUNNING, Trigger.RELEASE): Claim.UNCLAIMED,
    (Claim.STOPPING, Trigger.RETRY): Claim.RETRYING,
    (Claim.STOPPING, Trigger.BLOCK): Claim.BLOCKED,
    (Claim.STOPPING, Trigger.RELEASE): Claim.UNCLAIMED,
    (Claim.RETRYING, Trigger.START): Claim.RUNNING,
    (Claim.RETRYING, Trigger.RETRY): Claim.RETRYING,
    (Claim.RETRYING, Trigger.BLOCK): Claim.BLOCKED,
    (Claim.RETRYING, Trigger.RELEASE): Claim.UNCLAIMED,
    (Claim.BLOCKED, Trigger.RETRY): Claim.RETRYING,
    (Claim.BLOCKED, Trigger.RELEASE): Claim.UNCLAIMED,
}


def claim_of(state: State, issue_id: str) -> Claim:
    """The claim on an issue."""
    if run := state.running.get(issue_id):
        return Claim.RUNNING if run.stopping is None else Claim.STOPPING
    if issue_id in state.retrying:
        return Claim.RETRYING
    return Claim.BLOCKED if issue_id in state.blocked else Claim.UNCLAIMED


def _fits(target: Claim, entry: Entry | None) -> bool:
    match entry:
        case Running():
            return target is (Claim.RUNNING if entry.stopping is None else Claim.STOPPING)
        case Retry():
            return target is Claim.RETRYING
        case Blocked():
            return target is Claim.BLOCKED
        case None:
            return target is Claim.UNCLAIMED
        case _:
            assert_never(entry)


def move(state: State, issue_id: str, trigger: Trigger, entry: Entry | None = None) -> State | None:
    """The state after the claim changed hands, or null when the table has no such transition."""
    target = TRANSITIONS.get((claim_of(state, issue_id), trigger))
    if target is None or not _fits(target, entry):
        return None
    running, retrying, blocked = dict(state.running), dict(state.retrying), dict(state.blocked)
    if not isinstance(entry, Running):
        running.pop(issue_id, None)
    retrying.pop(issue_id, None)
    blocked.pop(issue_id, None)
    match entry:
        case Running():
            running[issue_id] = entry
        case Retry():
            retrying[issue_id] = entry
        case Blocked():
            blocked[issue_id] = entry
    return replace(state, running=running, retrying=retrying, blocked=blocked)

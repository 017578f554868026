"""Daemons that remember, end or read back wrongly on purpose, each with the invariant that must notice it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from kit.simulator import Forgetting, Parts
from symphony.journal.model import ClaimRecord, ClaimReleased, IssueSpent, Record, RecoveredState
from symphony.journal.recorder import DaemonStart, recovered_event
from symphony.scheduler import ClaimKind, Recovered, State, StoredClaim, WorkspaceRef

__all__ = ["BROKEN_PARTS"]


Change = Callable[[Recovered], Recovered]


def _recovers(change: Change) -> Callable[[], Parts]:
    """A daemon that is told something else than what was remembered."""

    def recover(
        remembered: RecoveredState, start: DaemonStart, workspaces: tuple[WorkspaceRef, ...]
    ) -> Recovered:
        return change(recovered_event(remembered, start, workspaces=workspaces))

    return lambda: Parts(forgetting=Forgetting(recover=recover))


def _claims(change: Callable[[StoredClaim], StoredClaim | None]) -> Callable[[], Parts]:
    def changed(fact: Recovered) -> Recovered:
        found = (change(claim) for claim in fact.claims)
        return structs.replace(fact, claims=tuple(claim for claim in found if claim is not None))

    return _recovers(changed)


def _only(kind: ClaimKind, change: Callable[[StoredClaim], StoredClaim | None]) -> Callable[[], Parts]:
    return _claims(lambda claim: change(claim) if claim.kind is kind else claim)


def _keeps(kept: Callable[[Record], Record | None]) -> Callable[[], Parts]:
    """A daemon that writes something else than what happened."""

    def keep(records: Sequence[Record], _before: State, _after: State) -> Sequence[Record]:
        found = (kept(record) for record in records)
        return tuple(record for record in found if record is not None)

    return lambda: Parts(forgetting=Forgetting(keep=keep))


def _keeps_too_late() -> Parts:
    """What a step leaves is put only when the next one is taken: after the effects, not before."""
    held: list[Record] = []

    def keep(records: Sequence[Record], _before: State, _after: State) -> Sequence[Record]:
        late = tuple(held)
        held[:] = records
        return late

    return Parts(forgetting=Forgetting(keep=keep))


def _keeps_no_block(record: Record) -> Record | None:
    blocked = isinstance(record, ClaimRecord) and record.claim.kind is ClaimKind.BLOCKED
    return None if blocked else record


BROKEN_PARTS: Mapping[str, tuple[Callable[[], Parts], str]] = {
    "ends nothing that is left": (lambda: Parts(reaps=False), "one-agent-per-issue"),
    "looks for no comment": (lambda: Parts(reads_back=False), "no-comment-twice"),
    "forgets all claims": (_claims(lambda _: None), "claims-survive"),
    "forgets the blocks": (_only(ClaimKind.BLOCKED, lambda _: None), "claims-survive"),
    "starts cold what ran": (
        _only(ClaimKind.RUNNING, lambda claim: replace(claim, resume=None)),
        "claims-survive",
    ),
    "counts the attempts of what ran anew": (
        _only(ClaimKind.RUNNING, lambda claim: replace(claim, attempt=(claim.attempt or 1) + 1)),
        "claims-survive",
    ),
    "keeps a claim that was given up": (
        _keeps(lambda record: None if isinstance(record, ClaimReleased) else record),
        "claims-survive",
    ),
    "keeps nothing of a block": (_keeps(_keeps_no_block), "blocks-survive"),
    "keeps only after the effect": (_keeps_too_late, "claims-survive"),
    "counts retries anew": (
        _only(ClaimKind.RETRYING, lambda claim: replace(claim, attempt=(claim.attempt or 1) + 1)),
        "retries-survive",
    ),
    "has retries come due at once": (
        _only(ClaimKind.RETRYING, lambda claim: replace(claim, due_ms=0)),
        "retries-survive",
    ),
    "forgets what was asked": (
        _only(ClaimKind.BLOCKED, lambda claim: replace(claim, question=None)),
        "blocks-survive",
    ),
    "forgets that it is paused": (
        _recovers(lambda fact: structs.replace(fact, paused=False)),
        "pause-survives",
    ),
    "forgets what was used up": (_recovers(lambda fact: structs.replace(fact, spent={})), "budgets-survive"),
    "forgets what today used up": (
        _recovers(lambda fact: structs.replace(fact, day_tokens=0)),
        "budgets-survive",
    ),
    "counts tokens twice": (
        _keeps(
            lambda record: (
                structs.replace(record, spent=structs.replace(record.spent, tokens=2 * record.spent.tokens))
                if isinstance(record, IssueSpent)
                else record
            )
        ),
        "budgets-survive",
    ),
}

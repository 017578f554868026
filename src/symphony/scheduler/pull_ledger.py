"""Updates the ledger of a pull request after each snapshot, push, verdict, run and action of a person.

All times are milliseconds since 1970.
"""

from dataclasses import replace
from typing import assert_never

from symphony.domain import CheckState, PullRequest, add_counts
from symphony.scheduler.messages import IssueResult
from symphony.scheduler.results import MAY_CHANGE
from symphony.scheduler.verdict import (
    FeedbackKind,
    FeedbackTurn,
    ForgePolicy,
    MergeHead,
    NeedsYou,
    PendingFeedback,
    PullLedger,
    PullRequestEnded,
    ReadyForPerson,
    Verdict,
    Wait,
    judged_checks,
)


def ledger_after_snapshot(
    ledger: PullLedger, pull: PullRequest, policy: ForgePolicy, now_ms: int
) -> PullLedger:
    """The ledger after a snapshot that differs from the one before; then comes `judge_pull`.

    An offer that was not taken is withdrawn if the branch moved. Once all checks pass on another head,
    including those that the agent got in these turns, its turns about checks count from zero.
    """
    if ledger.offered is not None and pull.head_sha != ledger.offered.head:
        ledger = _without_offer(ledger, ledger.offered)
    if pull.head_sha != ledger.head:
        ledger = replace(ledger, head=pull.head_sha, head_ms=now_ms)
    ledger = replace(ledger, changed_ms=now_ms, has_checks=ledger.has_checks or bool(pull.checks))
    told = [each for each in ledger.told if each.kind is FeedbackKind.CI]
    turns = ledger.turns.get(FeedbackKind.CI, 0)
    if not turns or pull.head_sha in {each.head for each in told}:
        return ledger
    judged = judged_checks(pull, policy)
    # A check that failed may appear late on the new head. Until it does, the new head is not green.
    awaited = {name for each in told[-turns:] for name in each.names}
    awaited |= {*policy.required_checks, *pull.missing_checks}
    is_green = judged and all(check.state is CheckState.PASSED for check in judged)
    if is_green and awaited.issubset(check.name for check in judged):
        ledger = replace(ledger, turns={**ledger.turns, FeedbackKind.CI: 0})
    return ledger


def ledger_after_push(ledger: PullLedger, head: str, now_ms: int) -> PullLedger:
    """The ledger after the daemon pushed a commit."""
    return replace(ledger, pushed_head=head, pushed_ms=now_ms, changed_ms=now_ms, needs_you=None)


def ledger_after_verdict(ledger: PullLedger, made: Verdict, now_ms: int) -> PullLedger:
    """The ledger after a verdict. It is recorded before the verdict is acted on."""
    match made:
        case FeedbackTurn():
            told = made.told(now_ms)
            turns = {each.kind: add_counts(ledger.turns.get(each.kind, 0), 1) for each in told}
            threads = [each.thread_id for each in made.remarks if each.thread_id is not None]
            return replace(
                ledger,
                told=(*ledger.told, *told),
                turns={**ledger.turns, **turns},
                threads=tuple(dict.fromkeys((*ledger.threads, *threads))),
                needs_you=None,
                changed_ms=now_ms,
            )
        case MergeHead():
            return replace(ledger, landings=(*ledger.landings, made.head), landed_ms=now_ms, needs_you=None)
        case NeedsYou():
            return replace(ledger, needs_you=made.code)
        case ReadyForPerson() | PullRequestEnded():
            return replace(ledger, needs_you=None)
        case Wait():
            return ledger
        case _:
            assert_never(made)


def ledger_after_claim(ledger: PullLedger, *, working: bool, result: IssueResult | None) -> PullLedger:
    """The ledger with facts from the scheduler: whether a run is working on it, and the result of its issue.

    Work that began without feedback was started by a person, so turns count from zero, and a block ends. An
    offer that was not taken is withdrawn once the work is over.
    """
    if result is None:
        return replace(ledger, working=working)
    if result.restarts != ledger.restarts:
        ledger = replace(ledger, restarts=result.restarts, turns={}, needs_you=None)
    if ledger.offered is not None and ledger.offered.key == result.feedback:
        ledger = replace(ledger, offered=None)
    if ledger.offered is not None and result.status not in MAY_CHANGE:
        ledger = _without_offer(ledger, ledger.offered)
    return replace(ledger, working=working)


def ledger_after_lift(ledger: PullLedger, lifted: str | None, now_ms: int) -> PullLedger:
    """The ledger after a person lifted the block of an issue: all counts from zero.

    The agent may get the checks and conflicts of this head again.
    """
    if lifted is None or lifted == ledger.lifted:
        return replace(ledger, lifted=lifted)
    told = (each for each in ledger.told if each.head != ledger.head or each.kind is FeedbackKind.REVIEW)
    return replace(
        ledger,
        lifted=lifted,
        turns={},
        needs_you=None,
        told=tuple(told),
        landings=(),
        changed_ms=now_ms,
    )


def _without_offer(ledger: PullLedger, offered: PendingFeedback) -> PullLedger:
    withdrawn = [each for each in ledger.told if each.signature in offered.key.split("; ")]
    turns = {each.kind: max(ledger.turns.get(each.kind, 0) - 1, 0) for each in withdrawn}
    told = tuple(each for each in ledger.told if each not in withdrawn)
    return replace(ledger, told=told, turns={**ledger.turns, **turns}, offered=None)

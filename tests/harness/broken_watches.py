"""Watches over pull requests that are wrong on purpose, each with the invariant that must notice it."""

from collections.abc import Mapping
from dataclasses import replace

from kit.simulator import Watch
from symphony.domain import PullRequest, PullState
from symphony.scheduler import (
    FeedbackKind,
    ForgePolicy,
    MergeHead,
    PullLedger,
    Verdict,
    judge_pull,
    ledger_after_verdict,
)

__all__ = ["BROKEN_WATCHES"]


def _forgets_what_was_told(ledger: PullLedger, made: Verdict, now_ms: int) -> PullLedger:
    return replace(ledger_after_verdict(ledger, made, now_ms), told=())


def _counts_no_turns(ledger: PullLedger, made: Verdict, now_ms: int) -> PullLedger:
    return replace(ledger_after_verdict(ledger, made, now_ms), turns=dict.fromkeys(FeedbackKind, 0))


def _lands_anything(pull: PullRequest, ledger: PullLedger, policy: ForgePolicy, now_ms: int) -> Verdict:
    if pull.state is PullState.OPEN:
        return MergeHead(pull.head_sha)
    return judge_pull(pull, ledger, policy, now_ms)


BROKEN_WATCHES: Mapping[str, tuple[Watch, str]] = {
    "forgets what was told": (Watch(record=_forgets_what_was_told), "feedback-once"),
    "counts no turns": (Watch(record=_counts_no_turns), "feedback-is-bounded"),
    "gives no feedback": (Watch(gives=False), "feedback-arrives"),
    "blocks nothing": (Watch(blocks=False), "closed-work-waits"),
    "lands anything": (Watch(judge=_lands_anything), "lands-what-is-good"),
}

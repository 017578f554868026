"""Evaluates a proposal by past issues: agents work on each again without and with the change. Pure.

A session counts as good if it changed something, ended normally, and passed the operator's check. Models vary
from session to session, so a difference in cost below `MARGIN` counts as none.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct

MARGIN: Final = 1.25
"""The smallest ratio of the costs of two sessions that counts as a difference."""


class Verdict(StrEnum):
    """The effect of the change on one issue."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"


class Trial(Struct, frozen=True, kw_only=True):
    """One session on a past issue.

    Attributes:
        passed: whether it was good.
        seconds: the time of the agent, without the check.
        tokens: 0 if the agent does not report them.
        problem: why it was not good; `None` if it was.
    """

    passed: bool
    seconds: float
    turns: int
    tokens: int
    problem: str | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    """One past issue: the session without the change and the one with it, both from `base_commit`."""

    issue_identifier: str
    base_commit: str
    agent: str
    without: Trial
    changed: Trial

    @property
    def verdict(self) -> Verdict:
        """The effect of the change: the check decides first, then tokens, or turns if there are no tokens."""
        if self.without.passed is not self.changed.passed:
            return Verdict.BETTER if self.changed.passed else Verdict.WORSE
        if not self.changed.passed:
            return Verdict.SAME
        before, after = self.without.tokens, self.changed.tokens
        if not before or not after:
            before, after = self.without.turns, self.changed.turns
        if after * MARGIN <= before:
            return Verdict.BETTER
        return Verdict.WORSE if before * MARGIN <= after else Verdict.SAME


class Evaluation(Struct, frozen=True, kw_only=True):
    """The comparisons of one proposal.

    Attributes:
        check: the command that judged.
        base_version: the version to which the proposal was compared; 0 for none.
    """

    check: str
    base_version: int
    comparisons: tuple[Comparison, ...]
    at_ms: int

    @property
    def recommended(self) -> bool:
        """Whether no issue got worse and at least one got better."""
        verdicts = {one.verdict for one in self.comparisons}
        return Verdict.BETTER in verdicts and Verdict.WORSE not in verdicts


class Sums(Struct, frozen=True, kw_only=True):
    """The sums of several sessions; `passed` counts the good ones."""

    passed: int
    seconds: float
    turns: int
    tokens: int


def sums(trials: Iterable[Trial]) -> Sums:
    """The sums of sessions."""
    found = tuple(trials)
    return Sums(
        passed=sum(one.passed for one in found),
        seconds=round(sum(one.seconds for one in found), 1),
        turns=sum(one.turns for one in found),
        tokens=sum(one.tokens for one in found),
    )

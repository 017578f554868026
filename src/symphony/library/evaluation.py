"""Evaluates a proposal by past issues: agents work on each again without and with the change. Pure.

A session counts as good if it changed something, ended normally, and passed the operator's check. Models vary
from session to session, so a difference in cost below `MARGIN` counts as none.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from symphony.domain import Count

MARGIN: Final = 1.25
"""The smallest ratio of the costs of two sessions that counts as a difference."""


def _is(description: str) -> Meta:
    return Meta(description=description)


class Verdict(StrEnum):
    """The effect of the change on one issue."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"


class Trial(Struct, frozen=True, kw_only=True):
    """One session on a past issue."""

    passed: Annotated[bool, _is("It changed something, came to its end, and the check passed.")]
    seconds: Annotated[float, _is("Of the agent, without the check.")]
    turns: Count
    tokens: Annotated[Count, _is("0 if the agent does not report them.")]
    problem: Annotated[str | None, _is("Why it did not pass.")]


class Comparison(Struct, frozen=True, kw_only=True):
    """One past issue, on which agents worked again without and with the change."""

    issue_identifier: str
    base_commit: Annotated[str, _is("Where both sessions began.")]
    agent: str
    without: Trial
    changed: Trial


def verdict(one: Comparison) -> Verdict:
    """The effect of the change: the check decides first, then tokens, or turns if there are no tokens."""
    if one.without.passed is not one.changed.passed:
        return Verdict.BETTER if one.changed.passed else Verdict.WORSE
    if not one.changed.passed:
        return Verdict.SAME
    before, after = one.without.tokens, one.changed.tokens
    if not before or not after:
        before, after = one.without.turns, one.changed.turns
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
        verdicts = set(map(verdict, self.comparisons))
        return Verdict.BETTER in verdicts and Verdict.WORSE not in verdicts


class Sums(Struct, frozen=True, kw_only=True):
    """The sums of several sessions."""

    passed: Annotated[Count, _is("How many of them did.")]
    seconds: float
    turns: Count
    tokens: Count


def sums(trials: Iterable[Trial]) -> Sums:
    """The sums of sessions."""
    found = tuple(trials)
    return Sums(
        passed=sum(one.passed for one in found),
        seconds=round(sum(one.seconds for one in found), 1),
        turns=sum(one.turns for one in found),
        tokens=sum(one.tokens for one in found),
    )

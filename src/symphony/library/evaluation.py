"""What past issues say about a proposal: each was worked on again, without the change and with it. Pure.

A session counts as good if it changed something, came to its end, and the check of the operator passed.
Models differ from session to session, so that a smaller difference in cost than `MARGIN` counts as none.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from symphony.domain import Count

MARGIN: Final = 1.25
"""How many times the cost of the cheaper session the other one has to have, to count as a difference."""


def _is(description: str) -> Meta:
    return Meta(description=description)


class Verdict(StrEnum):
    """What the change did to one issue."""

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
    """One past issue, worked on again without the change and with it."""

    issue_identifier: str
    base_commit: Annotated[str, _is("Where both sessions began.")]
    agent: str
    without: Trial
    changed: Trial


def verdict(one: Comparison) -> Verdict:
    """What the change did: the check decides, then tokens, and turns where there are no tokens."""
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
        base_version: the version that the proposal was compared with; 0 for none.
    """

    check: str
    base_version: int
    comparisons: tuple[Comparison, ...]
    at_ms: int

    @property
    def recommended(self) -> bool:
        """No issue got worse, and at least one got better."""
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

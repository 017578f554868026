"""What the journal counts of skills. The API has it as it is, so this module loads no database."""

from typing import Annotated

from msgspec import Meta, Struct

from symphony.domain import Count

_Positive = Annotated[int, Meta(ge=1)]


def _is(description: str) -> Meta:
    return Meta(description=description)


class SkillUsage(Struct, frozen=True, kw_only=True):
    """One skill over many runs.

    Outcomes are those of runs, also `running` for live runs, and `unknown` if none was recorded.
    """

    name: str
    listed: Annotated[Count, _is("Runs that listed it.")]
    seen: Annotated[Count, _is("Runs that looked at it.")]
    outcomes: Annotated[dict[str, _Positive], _is("How many of the runs that listed it ended so.")]
    seen_outcomes: Annotated[dict[str, _Positive], _is("How many of the runs that looked at it ended so.")]
    versions: Annotated[Count, _is("Different contents.")]


class OutcomeCounts(Struct, frozen=True):
    """The outcomes of the ended runs that listed a skill; all later counts are among `runs`."""

    runs: Annotated[Count, _is("Ended runs that listed it.")]
    opened: Annotated[Count, _is("Runs that read or activated it; a lower bound.")]
    delivered: Annotated[Count, _is("Runs that added work to their branch.")]
    verified: Annotated[Count, _is("Runs whose work passed verify.commands.")]
    verify_failed: Annotated[Count, _is("Runs whose work failed them; all others were not verified.")]
    ready: Annotated[Count, _is("Runs with work that is ready for review, or done.")]
    merged: Annotated[Count, _is("Runs with merged work.")]
    blocked: Annotated[Count, _is("Runs after which the issue waited for a person.")]

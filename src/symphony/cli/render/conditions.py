"""Lines about abnormal conditions that affect all issues: what is wrong, and what to do."""

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from symphony.api.conditions import conditions
from symphony.api.formatting import duration, seconds_between
from symphony.api.models import Issue, State
from symphony.cli.formatting import arrow, cell

_STYLES: Final = {"info": "cyan", "warn": "yellow", "error": "red"}


def condition_lines(document: State | Issue) -> Iterator[Text]:
    """The lines for all issues, or for one."""
    for one in conditions(document):
        wait_s = seconds_between(document.generated_at, one.until)
        again = "" if wait_s is None else f" It is tried again in {duration(wait_s)}."
        yield cell(f"{one.text}{again}", _STYLES[one.tone])
        if one.hint:
            yield arrow(one.hint)

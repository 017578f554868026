"""An issue as a person names it: the exact one, else the only one that differs by case, else an error."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TypeVar

from symphony.cli.failures import CommandError
from symphony.domain.ids import by_number
from symphony.domain.plain import one_line

__all__ = ["answer_for", "unknown_issue"]

Elsewhere = Callable[[str], CommandError | None]
"""Says what is to be told of an issue that is not among the known ones, or `None` where nobody knows it."""

_MOST = 5
_Answer = TypeVar("_Answer")


def answer_for(
    identifier: str,
    ask: Callable[[str], _Answer | None],
    known: Callable[[], Sequence[str]],
    elsewhere: Elsewhere = lambda _: None,
) -> _Answer:
    """What `ask` says of the issue; `known` is called only where it does not know the exact identifier.

    Raises:
        CommandError: nobody knows it, several differ from it by case, or what `elsewhere` says of it.
    """
    if (answer := ask(identifier)) is not None:
        return answer
    names = known()
    alike = {one for one in names if one.casefold() == identifier.casefold()}
    for other in alike if len(alike) == 1 else ():
        if (answer := ask(other)) is not None:
            return answer
    raise elsewhere(identifier) or unknown_issue(identifier, names)


def unknown_issue(identifier: str, known: Sequence[str]) -> CommandError:
    """`known` are identifiers of the tracker, in any order."""
    folded = {one.casefold(): one for one in known}
    near = [folded[one] for one in get_close_matches(identifier.casefold(), folded, n=_MOST, cutoff=0.6)]
    if identifier.casefold() in folded:
        hint = f"did you mean {one_line(folded[identifier.casefold()])}? Identifiers are compared exactly"
    elif near:
        hint = f"did you mean {', '.join(map(one_line, near))}?"
    elif known:
        shown = sorted(known, key=by_number)[:_MOST]
        more = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
        hint = f"the tracker lists {', '.join(map(one_line, shown))}{more}"
    else:
        hint = "the tracker lists no issue in an active state; `symphony status` shows what is known"
    return CommandError.of(f"there is no issue {one_line(identifier)!r}", hint=hint)

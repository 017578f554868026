"""The error for an issue that nobody knows, with the identifiers that may have been meant."""

from collections.abc import Sequence
from difflib import get_close_matches

from symphony.cli.failures import CommandError
from symphony.domain.plain import one_line

__all__ = ["unknown_issue"]

_MOST = 5


def unknown_issue(identifier: str, known: Sequence[str]) -> CommandError:
    """`known` are identifiers of the tracker, in any order."""
    folded = {one.casefold(): one for one in known}
    near = [folded[one] for one in get_close_matches(identifier.casefold(), folded, n=_MOST, cutoff=0.6)]
    if identifier.casefold() in folded:
        hint = f"did you mean {one_line(folded[identifier.casefold()])}? Identifiers are compared exactly"
    elif near:
        hint = f"did you mean {', '.join(map(one_line, near))}?"
    elif known:
        shown = sorted(known)[:_MOST]
        more = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
        hint = f"the tracker lists {', '.join(map(one_line, shown))}{more}"
    else:
        hint = "the tracker lists no issue in an active state; `symphony status` shows what is known"
    return CommandError.of(f"there is no issue {one_line(identifier)!r}", hint=hint)

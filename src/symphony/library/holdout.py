"""The holdout: which skill of the library an issue is worked on without, to learn what the skill does.

The draw depends on ids and names alone, so an issue keeps its arm across attempts, restarts and machines.
"""

from collections.abc import Collection
from hashlib import sha256
from typing import Final

_RANGE: Final = 2**64


def withheld_skill(issue_id: str, eligible: Collection[str], share: float) -> str | None:
    """The one skill that is withheld from an issue; `None` if the issue is not drawn.

    A larger share draws the same issues and more. Another eligible skill changes the choice only by being
    chosen itself.

    Args:
        issue_id: the tracker's id of the issue.
        eligible: names of the skills of the library that the issue would get. Skills of the repository are
            never withheld.
        share: of the issues that are drawn, 0 to 0.5.
    """
    if not eligible or _number(issue_id) >= share * _RANGE:
        return None
    return min(eligible, key=lambda name: (_number(issue_id, name), name))


def _number(*parts: str) -> int:
    """A number below `_RANGE` that is spread evenly."""
    text = "\0".join(("holdout", *parts)).encode("utf-8", "backslashreplace")
    return int.from_bytes(sha256(text).digest()[:8])

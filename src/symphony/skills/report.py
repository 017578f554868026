"""Words the comment about malformed skills: fixed sentences, places, neutralised paths, never file text."""

import hashlib
import json
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from symphony.skills.codes import MEANINGS
from symphony.skills.model import Code, Problem, Scope, Severity

__all__ = ["RESOLVED", "RESOLVED_FINGERPRINT", "comment_body", "fingerprint"]

RESOLVED: Final = (
    "**All skills of this repository can be loaded again**\n\nWhat was named here has been mended."
)
"""What the comment says when nothing is left of what it named."""

RESOLVED_FINGERPRINT: Final = "resolved"

_MAX_ENTRIES: Final = 20
_MAX_BYTES: Final = 4_000
_MAX_PATH: Final = 160
_TITLE: Final = "**Some skills of this repository could not be loaded**"
_INTRO: Final = "The work goes on with the others. Please correct:"


def comment_body(problems: Iterable[Problem], *, at_least: Severity = Severity.ERROR) -> str | None:
    """The comment in Markdown, at most 20 entries and 4 kB; null where no problem is worth one.

    Args:
        problems: what the loader found.
        at_least: the mildest severity that is named.
    """
    entries = [_entry(problem) for problem in _worth_naming(problems, at_least)]
    if not entries:
        return None
    shown = _that_fit(entries)
    rest = len(entries) - len(shown)
    more = [f"- and {rest} more"] if rest else []
    return "\n".join([_TITLE, "", _INTRO, "", *shown, *more])


def fingerprint(problems: Iterable[Problem], *, at_least: Severity = Severity.ERROR) -> str:
    """A digest, in hex, of what the comment names: paths, codes, places; equal sets need no new comment."""
    named = _worth_naming(problems, at_least)
    facts = sorted([one.path, one.code, one.line or 0, one.column or 0] for one in named)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


_RANKS: Final = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}


def _worth_naming(problems: Iterable[Problem], at_least: Severity) -> list[Problem]:
    """What the repository can mend, from this severity on, the errors first.

    The user's own files are not its business.
    """
    theirs = (problem for problem in problems if problem.scope is not Scope.USER)
    named = [problem for problem in theirs if _RANKS[problem.severity] >= _RANKS[at_least]]
    return sorted(named, key=lambda problem: -_RANKS[problem.severity])


def _that_fit(entries: list[str]) -> list[str]:
    room = _MAX_BYTES - len(f"{_TITLE}\n\n{_INTRO}\n\n- and {len(entries)} more".encode())
    shown: list[str] = []
    for entry in entries[:_MAX_ENTRIES]:
        room -= len(entry.encode()) + 1
        if room < 0:
            break
        shown.append(entry)
    return shown


def _entry(problem: Problem) -> str:
    place = "" if problem.line is None else f" at {problem.line}:{problem.column}"
    meaning = MEANINGS[Code(problem.code)]
    return f"- `{_neutral(problem.path)}` `{problem.code.value}`{place}: {meaning.message} {meaning.hint}"


def _neutral(path: str) -> str:
    """The path with everything percent-encoded that a tracker could take for more than a path."""
    safe = "".join(one if one.isalnum() else quote(one, safe="/ ._-", errors="replace") for one in path)
    return safe if len(safe) <= _MAX_PATH else f"{safe[: _MAX_PATH // 2]}…{safe[-_MAX_PATH // 2 :]}"

"""Words the comment about malformed skills: fixed sentences, places, neutralised paths, never file text."""

import hashlib
import json
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from symphony.skills.codes import MEANINGS
from symphony.skills.model import Code, Problem, Scope, Severity

__all__ = ["comment_body", "fingerprint"]

_MAX_ENTRIES: Final = 20
_MAX_BYTES: Final = 4_000
_MAX_PATH: Final = 160
_TITLE: Final = "**Some skills of this repository could not be loaded**"
_INTRO: Final = "The work goes on with the others. Please correct:"


def comment_body(problems: Iterable[Problem]) -> str | None:
    """The comment in Markdown, at most 20 entries and 4 kB; null where nothing in the repository is wrong."""
    entries = [_entry(problem) for problem in _errors(problems)]
    if not entries:
        return None
    shown = _that_fit(entries)
    rest = len(entries) - len(shown)
    more = [f"- and {rest} more"] if rest else []
    return "\n".join([_TITLE, "", _INTRO, "", *shown, *more])


def fingerprint(problems: Iterable[Problem]) -> str:
    """A digest, in hex, of the set of errors: paths, codes and places; equal sets need no new comment."""
    facts = sorted([one.path, one.code, one.line or 0, one.column or 0] for one in _errors(problems))
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _errors(problems: Iterable[Problem]) -> list[Problem]:
    """Those that the repository can mend: the user's own files are not its business."""
    return [one for one in problems if one.severity is Severity.ERROR and one.scope is not Scope.USER]


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

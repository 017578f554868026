"""Names on the board: issue ids (file stems), their numbers, and comment files. Pure.

An id is the stem of its file, letter for letter. Two stems that differ only by case would be one file on some
machines and two on others, so both are refused. Names that begin with a dot are ours (temporary files) or the
editor's, and `README.md` is for people: neither is an issue.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from symphony.domain.ids import UnsafeKeyError, workspace_key

__all__ = [
    "AGENT",
    "COMMENTS",
    "COMMENT_SUFFIX",
    "DAEMON",
    "RESERVED_AUTHORS",
    "author_name",
    "case_twins",
    "comment_author",
    "comment_stem",
    "id_problem",
    "is_issue_file",
    "is_persons_comment",
    "next_number",
]

COMMENT_SUFFIX = ".md"
COMMENTS = "comments"
"""The folder of an issue's comments, below the one that is called like the issue."""
AGENT = "agent"
DAEMON = "symphony"
RESERVED_AUTHORS = frozenset({AGENT, DAEMON})
"""Who writes comments and is no person."""
_COMMENT = re.compile(r"\d{8}T\d{6}Z-(?P<author>.+)-(?P<mark>[0-9a-f]{8})")
_AUTHOR_LIMIT = 40
_MAX_DIGITS = 9


def is_issue_file(name: str) -> bool:
    """Whether a file of this name in the board's folder is an issue, by its name alone."""
    return name.endswith(".md") and not name.startswith(".") and name.lower() != "readme.md"


def is_persons_comment(name: str) -> bool:
    """Whether a file of this name among comments is one of a person, by its name alone."""
    found = comment_author(name.removesuffix(COMMENT_SUFFIX))
    ours = found is not None and found[0] in RESERVED_AUTHORS
    return name.endswith(COMMENT_SUFFIX) and not name.startswith(".") and not ours


def id_problem(stem: str) -> str | None:
    """Why this stem cannot be an id, or null (DM2, DM12)."""
    if stem != stem.strip() or not stem:
        return "the file name begins or ends with a space"
    if not all(char.isprintable() for char in stem):
        return "the file name holds control or undecodable characters"
    try:
        workspace_key(stem)
    except UnsafeKeyError as error:
        return str(error)
    return None


def case_twins(stems: Iterable[str]) -> dict[str, str]:
    """For every stem that differs from another only by case: that other stem."""
    groups: dict[str, list[str]] = {}
    for stem in sorted(stems):
        groups.setdefault(stem.casefold(), []).append(stem)
    twins = (group for group in groups.values() if len(group) > 1)
    return {stem: group[0] if stem != group[0] else group[1] for group in twins for stem in group}


def next_number(prefix: str, taken: Iterable[str]) -> int:
    """One more than the highest number that any of the names carries after `<prefix>-`, whatever its case."""
    pattern = re.compile(rf"{re.escape(prefix)}-(\d{{1,{_MAX_DIGITS}}})", re.IGNORECASE | re.ASCII)
    numbers = (pattern.fullmatch(name) for name in taken)
    return 1 + max((int(match[1]) for match in numbers if match), default=0)


def author_name(text: str) -> str:
    """An author as part of a file name: at most 40 letters, digits, `.`, `_`; `person` when none is left."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", text).strip("._")[:_AUTHOR_LIMIT] or "person"


def comment_stem(moment: datetime, author: str, mark: str) -> str:
    """`<utc>-<author>-<8hex>`: sorting by name is sorting by time."""
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}-{author}-{mark}"


def comment_author(stem: str) -> tuple[str, str] | None:
    """Author and mark that a comment's file name carries; null for a name that is not of our making."""
    match = _COMMENT.fullmatch(stem)
    return None if match is None else (match["author"], match["mark"])

"""Text of others without what steers a terminal: escape sequences, control and bidi characters.

Pure. What is shown anywhere passes here, because agents, hooks, git and trackers write what they like.
"""

import re

__all__ = ["MAX_CHARS", "one_line", "plain"]

MAX_CHARS = 1_000
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_BREAKS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_BLANKS = re.compile(r"[ \t\n]+")


def plain(text: str) -> str:
    """The text with its lines and tabs, each run of other control characters one blank."""
    if text.isprintable():  # holds for most lines, and then none of the patterns finds anything
        return text
    return _CONTROL.sub(" ", _BREAKS.sub("\n", _ESCAPES.sub("", text)))


def one_line(text: str, limit: int = MAX_CHARS) -> str:
    """`plain` on one line, blanks joined, at most `limit` characters; what was cut ends in `…`."""
    flat = _BLANKS.sub(" ", plain(text[: limit * 8])).strip()
    return flat if len(flat) <= limit and len(text) <= limit * 8 else flat[: limit - 1] + "…"

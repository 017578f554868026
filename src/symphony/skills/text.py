"""Makes text that a repository wrote safe to show in one line of a prompt."""

import re
import unicodedata
from typing import Final

__all__ = [
    "MAX_FIELD",
    "clean",
    "escape",
    "escape_xml",
    "is_name",
    "is_plain",
    "is_visible",
    "one_line",
    "shorten",
]

MAX_FIELD: Final = 1_024

# Control characters other than white space; what is invisible and only steers the display (bidirectional
# marks, fillers, tags, soft hyphen, zero-width space); surrogates, non-characters. The joiners of Indic and
# Arabic scripts and of emoji carry text and stay, as do visible ones such as the Arabic number sign.
_SILENT: Final = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
    + "]+"
)
# A joiner or variation selector shapes the character before it, in emoji two do; a longer run hides words.
_SHAPING: Final = "\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"
_SHAPING_RUN: Final = re.compile(f"([{_SHAPING}]{{2}})[{_SHAPING}]+")
_BLANKS: Final = re.compile(r"\s+")
_TAG: Final = re.compile(r"<(?=[^\W\d_]|[/!])")

# Shown, and yet not to be seen: what shapes its neighbour, Mongolian selectors, the blank of Braille, and a
# note without a head.
_UNSEEN: Final = re.compile(f"[{_SHAPING}\u180b-\u180f\u2800\U0001d159]")
_POSES_AS_OURS: Final = re.compile(r" — |\((?:directory|file): |&lt;")
# What at the beginning of an item of a list begins a heading, a quotation, a table, a fence, another list, a
# line, or the definition of a link.
_OPENS_A_BLOCK: Final = re.compile(
    r"[#>|]|```|~~~|[-+*](?:\s|\Z)|\d{1,9}[.)](?:\s|\Z)|(?:[-*_]\s*){3,}\Z|\[[^\]]*\]:"
)
_XML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})


def one_line(text: str) -> str:
    """At most 1,024 characters on one line, without what only steers the display, and without tags.

    Text of every script stays intact. A longer text ends in an ellipsis; it is shortened before `<` is
    escaped, so that no escape is ever cut.
    """
    return escape(shorten(clean(text), MAX_FIELD))


def clean(text: str) -> str:
    """The text on one line, without what only steers the display."""
    if text.isascii() and text.isprintable():  # as most are: nothing but spaces could be too much
        return " ".join(text.split())
    return _BLANKS.sub(" ", _SHAPING_RUN.sub(r"\1", _SILENT.sub("", text))).strip()


def shorten(line: str, limit: int) -> str:
    """At most `limit` characters of a line; one that is cut ends in an ellipsis."""
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def escape(line: str) -> str:
    """The line with every `<` written out that could begin a tag."""
    return _TAG.sub("&lt;", line) if "<" in line else line


def escape_xml(line: str) -> str:
    """The line as the content of an XML element or attribute."""
    return line.translate(_XML)


def is_visible(text: str) -> bool:
    """Whether anything of the text can be seen."""
    if text.isascii() and text.isprintable():  # as most are
        return bool(text.strip())
    return any(unicodedata.category(one)[0] in "LNPS" for one in _UNSEEN.sub("", _SILENT.sub("", text)))


def is_plain(text: str) -> bool:
    """Whether a line shows the text so that it can be told apart from any other; `<` may be escaped."""
    return (
        clean(text) == text
        and is_visible(text)
        and not _UNSEEN.search(text)
        and not _POSES_AS_OURS.search(text)
    )


def is_name(text: str) -> bool:
    """Whether the text can be the name of an entry: plain, no path, and not the beginning of a block."""
    return (
        is_plain(text)
        and not any(one in text for one in "/\\")
        and text not in {".", ".."}
        and not _OPENS_A_BLOCK.match(text)
    )

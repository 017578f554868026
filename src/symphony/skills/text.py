"""Makes text that a repository wrote safe to show in one line of a prompt."""

import re
from typing import Final

__all__ = ["MAX_FIELD", "clean", "escape", "escape_xml", "one_line", "shorten"]

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

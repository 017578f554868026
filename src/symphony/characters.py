"""Invisible characters. They can hide words from a person, while a model reads them. Pure."""

import re
import unicodedata
from typing import Final

SILENT: Final = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
"""Ignorable characters that do not change their neighbours, as the content of a character class."""
SHAPING: Final = "\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Ignorable joiners and variation selectors, which can change their neighbours.

`SILENT` and `SHAPING` are Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt, version 14.
"""
_NO_TEXT: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_PICTURES: Final = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_JOINING: Final = "\u0620-\u074f\u0860-\u109f\u1780-\u17b3\u17b6-\u17dd\u1820-\u18aa\ua800-\uabff"
# Legitimate uses: the style of an emoji or keycap, joined emoji, letters that join or do not join.
_NEEDED: Final = (
    f"(?<=[{_PICTURES}])[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)|(?<=[{_PICTURES}\ufe0f])\u200d(?=[{_PICTURES}])"
    f"|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
)
_NEEDLESS: Final = re.compile(f"(?!{_NEEDED})[{SILENT}{SHAPING}]")
_IGNORABLE: Final = re.compile(f"[{SILENT}{SHAPING}]")


def has_ignorable(text: str) -> bool:
    """Whether the text has an ignorable character, including those that its script needs."""
    return not text.isascii() and _IGNORABLE.search(text) is not None


def without_ignorable(text: str, *, needed: bool = True) -> str:
    """The text without ignorable characters; with `needed`, those that its script needs stay."""
    return text if text.isascii() else (_NEEDLESS if needed else _IGNORABLE).sub("", text)


def has_hidden(text: str) -> bool:
    """Whether the text has invisible characters, other than tabs and those that its script needs."""
    if text.isascii() and text.isprintable():
        return False
    return _NEEDLESS.search(text) is not None or any(
        unicodedata.category(one) in _NO_TEXT and one not in "\t\u200c\u200d" for one in text
    )


def visible(text: str) -> str:
    """The text with invisible characters as escapes, except line breaks, tabs and needed ones."""
    if text.isprintable() and not has_ignorable(text):
        return text
    return "".join(
        one
        if (one.isprintable() or one in "\n\t\u200c\u200d") and not _NEEDLESS.match(text, place)
        else one.encode("unicode_escape", "surrogatepass").decode()
        for place, one in enumerate(text)
    )


def visible_name(name: bytes) -> str:
    """The name of a file in one line; what is not UTF-8, and what no one sees, is escaped."""
    text = visible(name.decode("utf-8", "backslashreplace"))
    return text.replace("\n", r"\n").replace("\t", r"\t")

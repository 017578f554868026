"""Writing one value as one line of YAML that reads back as exactly that text. Pure."""

import re
from collections.abc import Sequence

__all__ = ["quote", "quote_list"]

# What YAML readers take for text without quotes, whichever version of YAML they speak.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 ._/()+-]*(?<! )")
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_BYTE, _PLANE = 0xFF, 0xFFFF


def quote(text: str) -> str:
    """`text` as a YAML scalar on one line: bare where that is safe everywhere, else in double quotes.

    Raises:
        ValueError: the text holds lone surrogates and cannot be written as UTF-8.
    """
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("the text is not valid Unicode")
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    return '"' + "".join(_escape(char) for char in text) + '"'


def quote_list(items: Sequence[str]) -> str:
    """The items as a YAML list on one line."""
    return f"[{', '.join(quote(item) for item in items)}]"


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code <= _BYTE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _PLANE else f"\\U{code:08x}"

"""What a person should read twice before a change of a skill is accepted. Pure.

Many sessions obey what a skill says, and its author may have read or copied texts of others. The gate finds
what harmful texts have: addresses, commands that run what they download, hidden characters and secrets. A
person sees all of it and decides; but no version is made of a text with something of `REFUSED`.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from symphony.library.model import LibraryError, SkillText

REFUSED: Final = frozenset({"hidden_characters", "secret"})
"""Codes of what no skill needs."""
MAX_CHANGED_LINES: Final = 200
_MAX_PER_CODE: Final = 20
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_JOINERS: Final = "\u200c\u200d"
_ADDRESS = re.compile(r"\b(?:https?|ftp|ssh|git)://[^\s<>\"'`)\]]+", re.IGNORECASE)
_PIPE = re.compile(
    r"\b(?:curl|wget|fetch|base64)\b[^|\n]{0,500}\|\s*(?:sudo\s+)?(?:\S*/)?"
    r"(?:ba|z|da|k|fi)?(?:sh|python3?|perl|ruby|node)\b"
    r"|\b(?:ba|z|da|k)?sh\s+-c\s+[\"']?\$\(\s*(?:curl|wget)\b"
    r"|<\(\s*(?:curl|wget)\b"
)


class GateFinding(Struct, frozen=True, kw_only=True):
    """Something in a change; `line` is of the SKILL.md as it would be."""

    code: str
    line: int | None
    message: str
    hint: str


def gate(before: SkillText | None, after: SkillText, mask: Callable[[str], str]) -> tuple[GateFinding, ...]:
    """What is new in `after` and can do harm; `mask` hides the secrets that are known."""
    old = set() if before is None else set(before.file().decode().split("\n"))
    known = set() if before is None else set(_ADDRESS.findall(before.file().decode()))
    new = [
        (number, line) for number, line in enumerate(after.file().decode().split("\n"), 1) if line not in old
    ]
    found: dict[str, list[GateFinding]] = {}

    def add(code: str, line: int | None, message: str, hint: str) -> None:
        found.setdefault(code, []).append(GateFinding(code=code, line=line, message=message, hint=hint))

    for number, line in new:
        if _has_hidden(line):
            add("hidden_characters", number, "It has characters that no one sees.", "Look at the escapes.")
        if mask(line) != line:
            add("secret", number, "It has a secret of this daemon.", "Reject it, and replace the secret.")
        if _PIPE.search(line):
            add("pipe_to_shell", number, "It runs what it gets from elsewhere.", "Read the command.")
        for address in _ADDRESS.findall(line):
            if address not in known:
                add("new_address", number, f"It names {address[:200]}.", "Look where it leads.")
    if len(new) > MAX_CHANGED_LINES:
        message = f"{len(new):,} lines are new."
        add("large_change", None, message, f"A good change has at most {MAX_CHANGED_LINES}.")
    return tuple(finding for findings in found.values() for finding in findings[:_MAX_PER_CODE])


def admit(before: SkillText | None, after: SkillText, mask: Callable[[str], str]) -> tuple[GateFinding, ...]:
    """What a person who makes a version of this text should read twice.

    Raises:
        LibraryError: it has something of `REFUSED`.
    """
    findings = gate(before, after, mask)
    for one in findings:
        if one.code in REFUSED:
            what = "the secret, and replace it" if one.code == "secret" else "them, or with escapes"
            hint = f"write it without {what}"
            raise LibraryError(f"line {one.line} of {after.name}: {one.message}", hint=hint)
    return findings


def _has_hidden(line: str) -> bool:
    """Whether a line has characters that no one sees; scripts and emoji join letters by some of them."""
    line = line.removesuffix("\r")
    return any(
        unicodedata.category(character) in _HIDDEN
        and character != "\t"
        and not (character in _JOINERS and not (line[:place] or "a")[-1].isascii())
        for place, character in enumerate(line)
    )

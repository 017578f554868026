"""Text made fit to be shown: known secret values and everything with the shape of a credential masked (LG5).

Pure, so that every border uses the same rules: logs, failures, comments, and what agents say.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from symphony.domain.failures import Failure

__all__ = ["MASK", "Redaction", "mask_credentials", "printable"]

MASK = "***"
_MIN_SECRET_CHARS = 6

_CREDENTIALS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@?#]*@"), rf"\1{MASK}@"),
    (re.compile(r"(?i)\b(https?|wss?)(://[^\s?#\"'<>`)]+)[?#][^\s\"'<>`)]*"), rf"\1\2?{MASK}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {MASK}"),
    (
        re.compile(
            r"(?i)(\b[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|private[_-]?key|_key"
            r"|authorization|cookie)\b"
            r"[\"']?\s*[:=]\s*[\"']?)(?!\s)(?!bearer\b|basic\b)[^\s\"',;&}]{4,}"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"), MASK),
    (
        re.compile(
            r"\b(?:sk|pk|rk)-[A-Za-z0-9_*-]{6,}|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}"
            r"|\bglpat-[\w-]{12,}|\blin_(?:api|oauth)_\w{12,}|\bxox[abeprs]-[\w-]{8,}|\bAKIA[A-Z0-9]{12,}"
            r"|\bATATT[A-Za-z0-9_=-]{16,}"
        ),
        MASK,
    ),
)


def mask_credentials(text: str) -> str:
    """The text with credentials masked: in addresses, headers, assignments, and known token shapes."""
    for pattern, mask in _CREDENTIALS:
        text = pattern.sub(mask, text)
    return text


def printable(text: object) -> str:
    """`text` on one line: control, bidi and undecodable characters become escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in str(text)
    )


class Redaction:
    """Masks known values as well as shapes. Values shorter than six characters would mask ordinary words."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        long_enough = {value for value in values if len(value) >= _MIN_SECRET_CHARS}
        self._values = sorted(long_enough, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text, fit to be shown."""
        for value in self._values:
            text = text.replace(value, MASK)
        return mask_credentials(text)

    def failure(self, failure: Failure) -> Failure:
        """The failure with a message and a hint that are fit to be shown."""
        hint = None if failure.hint is None else self.text(failure.hint)
        return replace(failure, message=self.text(failure.message), hint=hint)

"""Text made fit to be shown: plain, known secrets and what has the shape of a credential masked (LG5).

Pure, so that every border uses the same rules: logs, failures, comments, and what agents say.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from symphony.domain.failures import Failure
from symphony.domain.plain import one_line, plain

__all__ = ["MASK", "Redaction", "holds_credential", "mask_credentials"]

MASK = "***"
_MIN_SECRET_CHARS = 6
_MAX_LINE_CHARS = 4_000

_ADDRESS = re.compile(r"(?i)\b((?:https?|wss?)://[^\s?#\"'<>`)]+)([?#][^\s\"'<>`)]*)?")
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)?")
# What agents say passes here on the event loop: no pattern may look at the same characters again and again.
_TOKENS = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_*-]{6,}|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}"
    r"|\bglpat-[\w-]{12,}|\blin_(?:api|oauth)_\w{12,}|\bxox[abeprs]-[\w-]{8,}|\bAKIA[A-Z0-9]{12,}"
    r"|\bATATT[A-Za-z0-9_=-]{16,}"
)
_PASSWORD_IN_ADDRESS = re.compile(r"[A-Za-z0-9+.-]://[^\s/@?#:$]*:[^\s/@?#$]+@")
# Before each pattern stands what a text must hold one of to match at all: looking for that is far cheaper.
_CREDENTIALS: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (("://",), re.compile(r"(?i)([a-z0-9+.-]://)[^\s/@?#]*@"), rf"\1{MASK}@"),
    (("",), re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {MASK}"),
    (
        (":", "="),
        re.compile(
            r"(?i)((?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|private[_-]?key|_key"
            r"|authorization|cookie)\b"
            r"[\"']?\s*[:=]\s*[\"']?)(?!\s)(?!bearer\b|basic\b)[^\s\"',;&}]{4,}"
        ),
        rf"\1{MASK}",
    ),
    (("-", "_", "AKIA", "ATATT"), _TOKENS, MASK),
)


def mask_credentials(text: str) -> str:
    """The text with credentials masked: in addresses, headers, assignments, and known token shapes."""
    return _mask_shapes(_ADDRESS.sub(_without_query, text) if "://" in text else text)


def _mask_shapes(text: str) -> str:
    """As `mask_credentials`, but the query of an address is masked only where it names a secret."""
    if "eyJ" in text:
        text = _JWT.sub(_without_jwt, text)
    for needed, pattern, mask in _CREDENTIALS:
        if any(word in text for word in needed):
            text = pattern.sub(mask, text)
    return text


def holds_credential(text: str) -> bool:
    """Whether the text surely holds a credential: a known token shape, or an address with a password.

    Stricter than masking, which may well hide too much: this is for telling people.
    """
    shapes = (_TOKENS, _PASSWORD_IN_ADDRESS)
    return any(shape.search(text) for shape in shapes) or MASK in _JWT.sub(_without_jwt, text)


def _without_query(found: re.Match[str]) -> str:
    return found[1] if found[2] is None else f"{found[1]}?{MASK}"


def _without_jwt(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else MASK


def _written(value: str) -> Iterator[str]:
    """The value as it stands in a text: itself, and inside the quotes of JSON or of Python."""
    for form in (
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
    ):
        yield plain(form)


class Redaction:
    """Masks known values as well as shapes. Values shorter than six characters would mask ordinary words."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        long_enough = {value for value in values if len(plain(value)) >= _MIN_SECRET_CHARS}
        forms = {form for value in long_enough for form in _written(value)}
        self._values = sorted(forms, key=len, reverse=True)
        self._raw_values = sorted(forms | long_enough, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text, fit to be shown; its lines stay lines."""
        text = plain(text)
        for value in self._values:
            text = text.replace(value, MASK)
        return mask_credentials(text)

    def verbatim(self, text: str) -> str:
        """The text as it is but for its secrets: control characters and harmless queries stay.

        For what people want to see exactly, such as a prompt; whoever shows it on a terminal cleans it.
        """
        for value in self._raw_values:
            text = text.replace(value, MASK)
        return _mask_shapes(text)

    def failure(self, failure: Failure) -> Failure:
        """The failure with texts that are fit to be shown, one line each."""
        return replace(
            failure,
            message=self._line(failure.message),
            hint=None if failure.hint is None else self._line(failure.hint),
            where=None if failure.where is None else self._line(failure.where),
        )

    def _line(self, text: str) -> str:
        return one_line(self.text(text), _MAX_LINE_CHARS)

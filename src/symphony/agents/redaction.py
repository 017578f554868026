"""Text of an agent made fit to be shown: one line, no credentials, bounded.

Failure messages travel into logs, the API and tracker comments, and agents put endpoint addresses and headers
into their errors (AGENT-FACTS 7).
"""

import re

__all__ = ["one_line", "redact"]

MAX_CHARS = 1_000
_MASK = "***"
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SPACES = re.compile(r" {2,}")

_CREDENTIALS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@?#]*@"), rf"\1{_MASK}@"),
    (re.compile(r"(?i)\b(https?|wss?)(://[^\s?#\"'<>`)]+)[?#][^\s\"'<>`)]*"), rf"\1\2?{_MASK}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {_MASK}"),
    (
        re.compile(
            r"(?i)(\b[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|private[_-]?key|_key"
            r"|authorization|cookie)\b"
            r"[\"']?\s*[:=]\s*[\"']?)(?!\s)(?!bearer\b|basic\b)[^\s\"',;&}]{4,}"
        ),
        rf"\1{_MASK}",
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"), _MASK),
    (
        re.compile(
            r"\b(?:sk|pk|rk)-[A-Za-z0-9_*-]{6,}|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}"
            r"|\bglpat-[\w-]{12,}|\blin_(?:api|oauth)_\w{12,}|\bxox[abeprs]-[\w-]{8,}|\bAKIA[A-Z0-9]{12,}"
        ),
        _MASK,
    ),
)


def one_line(text: str, limit: int = MAX_CHARS) -> str:
    """Without escape sequences and control characters, blanks joined, at most `limit` characters."""
    flat = _SPACES.sub(" ", _CONTROL.sub(" ", _ESCAPES.sub("", text[: limit * 8]))).strip()
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def redact(text: str, limit: int = MAX_CHARS) -> str:
    """`one_line` with credentials masked: in addresses, headers, assignments, and known token shapes.

    The text is masked before it is cut, so that a cut never leaves the head of a secret unrecognised.
    """
    flat = one_line(text, limit * 4)
    for pattern, mask in _CREDENTIALS:
        flat = pattern.sub(mask, flat)
    return one_line(flat, limit)

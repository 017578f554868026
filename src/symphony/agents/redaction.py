"""Text of an agent made fit to be shown: one line, no credentials, bounded.

Failure messages travel into logs, the API and tracker comments, and agents put endpoint addresses and headers
into their errors (AGENT-FACTS 7).
"""

import re

from symphony.domain.redaction import mask_credentials

__all__ = ["one_line", "redact"]

MAX_CHARS = 1_000
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SPACES = re.compile(r" {2,}")


def one_line(text: str, limit: int = MAX_CHARS) -> str:
    """Without escape sequences and control characters, blanks joined, at most `limit` characters."""
    flat = _SPACES.sub(" ", _CONTROL.sub(" ", _ESCAPES.sub("", text[: limit * 8]))).strip()
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def redact(text: str, limit: int = MAX_CHARS) -> str:
    """`one_line` with credentials masked: in addresses, headers, assignments, and known token shapes.

    The text is masked before it is cut, so that a cut never leaves the head of a secret unrecognised.
    """
    flat = one_line(text, limit * 4)
    return one_line(mask_credentials(flat), limit)

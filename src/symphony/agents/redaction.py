"""Text of an agent made fit to be shown: one line, no credentials, bounded.

Failure messages travel into logs, the API and tracker comments, and agents put endpoint addresses and headers
into their errors (AGENT-FACTS 7).
"""

from symphony.domain.plain import MAX_CHARS, one_line
from symphony.domain.redaction import mask_credentials

__all__ = ["redact"]


def redact(text: str, limit: int = MAX_CHARS) -> str:
    """`one_line` with credentials masked: in addresses, headers, assignments, and known token shapes.

    The text is masked before it is cut, so that a cut never leaves the head of a secret unrecognised.
    """
    flat = one_line(text, limit * 4)
    return one_line(mask_credentials(flat), limit)

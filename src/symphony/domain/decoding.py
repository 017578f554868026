"""What reading JSON of others can raise, whatever they sent."""

from typing import Final

import msgspec

__all__ = ["UNREADABLE"]

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""It is no JSON or of another shape, no UTF-8, or nested without end."""

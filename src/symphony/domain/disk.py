"""A disk that is full, which no permission and no setting mends."""

import errno
from typing import Final

__all__ = ["is_full", "make_room"]

_NUMBERS: Final = {errno.ENOSPC, errno.EDQUOT}
_WORDS: Final = ("no space left on device", "disk quota exceeded")


def is_full(error: BaseException | str) -> bool:
    """Whether an error, or what a program said of one, means that there is no room left."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _NUMBERS
    return any(words in str(error).lower() for words in _WORDS)


def make_room(place: object) -> str:
    """The hint for a full disk; `place` is a path on it."""
    return f"make room on the filesystem of {place}; `symphony clean --dry-run` shows what old runs have left"

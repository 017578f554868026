"""Paths in the commands that tests write for a shell."""

import shlex

__all__ = ["word"]


def word(path: object) -> str:
    """A path as one word of a shell command, whatever its characters are."""
    return shlex.quote(str(path))

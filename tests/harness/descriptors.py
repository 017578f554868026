"""The open descriptors of this process, of which other threads open and close some at any time."""

from contextlib import suppress
from pathlib import Path

__all__ = ["open_descriptors"]


def open_descriptors() -> set[tuple[str, str]]:
    """The number of each, and what it leads to."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile, as the one that lists them
            found.add((link.name, str(link.readlink())))
    return found

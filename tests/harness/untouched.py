"""Whether a file was written to: its metadata without what a mere look changes."""

from pathlib import Path

__all__ = ["writing_of"]


def writing_of(path: Path) -> tuple[int, int, int]:
    """What is another after each write, and the same after a read (which changes the time of access)."""
    now = path.stat()
    return now.st_ino, now.st_mtime_ns, now.st_ctime_ns

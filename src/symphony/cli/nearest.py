"""The nearest directory to a place that need not exist yet: it says what holds for the place itself."""

from pathlib import Path

__all__ = ["nearest"]


def nearest(path: Path) -> Path:
    """The path, or the first of its parents that is a directory."""
    for place in (path, *path.parents):
        try:
            if place.is_dir():
                return place
        except OSError:
            continue
    return Path("/")

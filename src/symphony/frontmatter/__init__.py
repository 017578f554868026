"""YAML front matter with line numbers, read so that a hostile file cannot hurt the process.

Depth, number of values and size are limited before they cost anything, no tag ever constructs anything, and
every failure is a `FrontMatterError` with a code and a place.
"""

from symphony.frontmatter.reader import (
    MAX_BYTES,
    MAX_EVENTS,
    Code,
    Document,
    FrontMatterError,
    Path,
    Place,
    Profile,
    Split,
    load,
    split,
)

__all__ = [
    "MAX_BYTES",
    "MAX_EVENTS",
    "Code",
    "Document",
    "FrontMatterError",
    "Path",
    "Place",
    "Profile",
    "Split",
    "load",
    "split",
]

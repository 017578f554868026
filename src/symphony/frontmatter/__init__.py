"""YAML front matter with line numbers, read so that a hostile file cannot hurt the process.

Depth, number of values and size are limited before they cost anything, no tag ever constructs anything, and
every failure is a `FrontMatterError` with a code and a place.
"""

from symphony.frontmatter.build import build
from symphony.frontmatter.events import Places
from symphony.frontmatter.fences import split
from symphony.frontmatter.model import MAX_BYTES, Code, Document, FrontMatterError, Profile, Split, check_size

__all__ = ["Code", "Document", "FrontMatterError", "Profile", "Split", "load", "split"]


def load(front: bytes, *, profile: Profile, first_line: int = 2, max_bytes: int = MAX_BYTES) -> Document:
    """Read front matter; `first_line` is the line of the file on which it starts. Empty gives an empty map.

    Raises:
        FrontMatterError: with the code, line and column of the first thing that is wrong.
    """
    check_size(len(front), max_bytes, line=first_line)
    return build(Places(_decode(front, first_line), first_line), profile)


def _decode(front: bytes, first_line: int) -> str:
    try:
        return front.decode()
    except UnicodeDecodeError as error:
        good = front[: error.start].decode()
        place = Places(good, first_line).at(len(good))
        raise FrontMatterError.at(place, Code.NOT_UTF8, "the front matter is not UTF-8") from None

"""Finds the fence lines of a file without reading what stands between them."""

import re
from typing import Final

from symphony.frontmatter.model import MAX_BYTES, Split, check_size

__all__ = ["split"]

_BOM: Final = b"\xef\xbb\xbf"
_OPENER: Final = re.compile(rb"---[ \t]*(?:\r?\n|\Z)")
_CLOSER: Final = re.compile(rb"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)


def split(data: bytes, *, limit: int = MAX_BYTES) -> Split | None:
    """Find the fences of a file; None when its first line is not a fence.

    A fence is `---` at column 0 and then only blanks, ended by LF, CRLF or the end of the input.

    Raises:
        FrontMatterError: FRONT_MATTER_TOO_LARGE, more than `limit` bytes of front matter.
    """
    bom = data.startswith(_BOM)
    opener = _OPENER.match(data, len(_BOM) if bom else 0)
    if opener is None:
        return None
    start = opener.end()
    closer = _CLOSER.search(data, start) if data[start - 1 : start] == b"\n" else None
    end = len(data) if closer is None else closer.start()
    check_size(end - start, limit, line=2)
    offset = len(data) if closer is None else closer.end()
    return Split(
        front=data[start:end],
        front_line=2,
        body_offset=offset,
        body_line=1 + data.count(b"\n", 0, offset),
        bom=bom,
        closed=closer is not None,
    )

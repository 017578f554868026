"""Writes the beginning of a SKILL.md: every value is serialised, none is pasted, whatever it holds."""

import re
from typing import Final

from symphony import frontmatter
from symphony.frontmatter.scalars import quote
from symphony.skills.text import MAX_FIELD, clean, shorten

__all__ = ["draft", "suggested_name", "with_front_matter"]

_MAX_NAME: Final = 64
_BOM: Final = b"\xef\xbb\xbf"
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
_NO_TEXT: Final = re.compile(r"#|<!--|```|~~~|---")
_HEADING: Final = re.compile(r"#{1,6}\s+(.+)")
_BODY: Final = """\
# {name}

1. What to do first, as a command that can be run as it stands.
2. How to tell that it worked.
"""


def draft(name: str, description: str, when_to_use: str) -> str:
    """The text of a new skill, with a body to be filled in; `name` should be a clean one.

    Raises:
        ValueError: a text holds lone surrogates and cannot be written as UTF-8.
    """
    return _front(name=name, description=description, when_to_use=when_to_use) + _BODY.format(name=name)


def with_front_matter(data: bytes, name: str) -> bytes | None:
    """A bare file with front matter before its own bytes; the description is its first paragraph.

    Null where the file is not bare, is not UTF-8, or says nothing that could be a description.
    """
    data = data.removeprefix(_BOM)
    try:
        bare = frontmatter.split(data.lstrip()) is None
        description = _gist(data.decode()) if bare else ""
    except (frontmatter.FrontMatterError, UnicodeDecodeError):
        return None
    if not description:
        return None
    return _front(name=name, description=description).encode() + data


def suggested_name(text: str) -> str:
    """A clean name that resembles the text; empty where nothing of it is left."""
    return _NO_NAME.sub("-", text.lower()).strip("-")[:_MAX_NAME].strip("-")


def _front(**values: str) -> str:
    lines = [f"{key}: {quote(value)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---", ""])


def _gist(text: str) -> str:
    """The first paragraph, or else the first heading, on one line."""
    for block in re.split(r"\n[ \t\r]*\n", text):
        lines = [line for line in block.splitlines() if not _HEADING.match(line)]
        paragraph = clean(" ".join(lines))
        if paragraph and not _NO_TEXT.match(paragraph):
            return shorten(paragraph, MAX_FIELD)
    heading = next((found[1] for line in text.splitlines() if (found := _HEADING.match(line))), "")
    return shorten(clean(heading), MAX_FIELD)

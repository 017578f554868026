"""Lines of a patch for a page: their numbers, the words that differ, and the kinds of tokens.

Everything is bounded, because the text comes from an agent. Pygments is imported with the first coloured
line. Only files of listed languages and only short lines are coloured, because a lexer may take very long for
unusual text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import Final

Segment = tuple[str, str]
"""The classes of a piece of a line, and its text."""

CHANGED: Final = "w"
"""The class of words that differ."""
_MAX_COLOURED_CHARS: Final = 60_000
_MAX_COLOURED_LINE: Final = 300
_MAX_COMPARED_LINE: Final = 400
_MAX_COMPARED_WORDS: Final = 150
_MAX_COMPARED_PAIRS: Final = 300
_LEAST_ALIKE: Final = 0.35
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")
_WORDS: Final = re.compile(r"\w+|\s+|.", re.DOTALL)
_MODES: Final = re.compile(r"(old|new|deleted file|new file) mode (\d+)")
_LEXERS: Final[Mapping[str, str]] = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "javascript"),
    **dict.fromkeys((".ts", ".tsx", ".mts"), "typescript"),
    **dict.fromkeys((".c", ".h"), "c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp", ".hh"), "cpp"),
    **dict.fromkeys((".sh", ".bash"), "bash"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    **dict.fromkeys((".html", ".htm"), "html"),
    **dict.fromkeys((".kt", ".kts"), "kotlin"),
    **dict.fromkeys((".ex", ".exs"), "elixir"),
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
    ".rb": "ruby",
    ".php": "php",
    ".cs": "csharp",
    ".swift": "swift",
    ".scala": "scala",
    ".lua": "lua",
    ".sql": "sql",
    ".json": "json",
    ".toml": "toml",
    ".ini": "ini",
    ".cfg": "ini",
    ".css": "css",
    ".xml": "xml",
    "makefile": "make",
    "dockerfile": "docker",
}
"""The coloured languages, by the ending or the whole name of a file in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """A line of a hunk.

    Attributes:
        kind: `added`, `removed` or `same`.
        old, new: its number before and after the change, if it exists there.
        segments: its text in pieces.
        unended: whether the file ends here without a line break.
    """

    kind: str
    old: int | None
    new: int | None
    segments: tuple[Segment, ...]
    unended: bool = False

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(text for _, text in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Consecutive lines; `before` is how many lines of the new file are hidden above."""

    before: int
    heading: str
    lines: tuple[CodeLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePatch:
    """The patch of one file; `modes` is the change of its mode, if any."""

    hunks: tuple[Hunk, ...]
    modes: str | None


def parse_patch(text: str) -> FilePatch:
    """Parse the text after `diff --git ` in a patch of one file. Anything else is left out."""
    hunks, modes = list[tuple[int, str, list[CodeLine]]](), dict[str, str]()
    old = new = old_left = new_left = shown_to = 0
    for line in text.split("\n"):
        is_over = old_left <= 0 and new_left <= 0
        if found := _HUNK.fullmatch(line):
            old, new = int(found[1]), int(found[3])
            old_left, new_left = int(found[2] or 1), int(found[4] or 1)
            first = new if new_left else new + 1
            hunks.append((max(first - 1 - shown_to, 0), found[5].strip(), []))
            shown_to = first + new_left - 1
        elif line.startswith("\\") and hunks and (lines := hunks[-1][2]):
            lines[-1] = replace(lines[-1], unended=True)
        elif not is_over:
            kind = {"+": "added", "-": "removed"}.get(line[:1], "same")
            has_old, has_new = kind != "added", kind != "removed"
            hunks[-1][2].append(
                CodeLine(
                    kind=kind,
                    old=old if has_old else None,
                    new=new if has_new else None,
                    segments=(("", line[1:].removesuffix("\r")),),
                )
            )
            old, old_left = old + has_old, old_left - has_old
            new, new_left = new + has_new, new_left - has_new
        elif mode := _MODES.fullmatch(line):
            modes[mode[1]] = mode[2]
    changed = f"mode {modes['old']} → {modes['new']}" if {"old", "new"} <= modes.keys() else None
    return FilePatch(
        hunks=tuple(
            Hunk(before=before, heading=heading, lines=tuple(lines)) for before, heading, lines in hunks
        ),
        modes=changed,
    )


# --- words that differ -----------------------------------------------------------------------------------


def with_changed_words(patch: FilePatch) -> FilePatch:
    """The patch with marks on the words that differ between a removed line and its replacement."""
    left = _MAX_COMPARED_PAIRS
    hunks = []
    for hunk in patch.hunks:
        lines = list(hunk.lines)
        for removed, added in _replaced(lines):
            left -= 1
            if left < 0:
                break
            before, after = _compared(lines[removed].text, lines[added].text)
            lines[removed] = replace(lines[removed], segments=before)
            lines[added] = replace(lines[added], segments=after)
        hunks.append(replace(hunk, lines=tuple(lines)))
    return replace(patch, hunks=tuple(hunks))


def _replaced(lines: Sequence[CodeLine]) -> Iterator[tuple[int, int]]:
    """The positions of removed lines, each with the position of the added line that replaces it."""
    place = 0
    while place < len(lines):
        removed = place
        while removed < len(lines) and lines[removed].kind == "removed":
            removed += 1
        added = removed
        while added < len(lines) and lines[added].kind == "added":
            added += 1
        yield from zip(range(place, removed), range(removed, added), strict=False)
        place = max(added, place + 1)


def _compared(before: str, after: str) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Two lines with their differences marked; unmarked if they are long or have little in common."""
    if max(len(before), len(after)) <= _MAX_COMPARED_LINE:
        old, new = _WORDS.findall(before), _WORDS.findall(after)
        if max(len(old), len(new)) <= _MAX_COMPARED_WORDS:
            matcher = SequenceMatcher(None, old, new, autojunk=False)
            if matcher.ratio() >= _LEAST_ALIKE:
                codes = matcher.get_opcodes()
                return (
                    tuple(_pieces(old, [(tag, a, b) for tag, a, b, _, _ in codes])),
                    tuple(_pieces(new, [(tag, a, b) for tag, _, _, a, b in codes])),
                )
    return (("", before),), (("", after),)


def _pieces(words: Sequence[str], codes: Sequence[tuple[str, int, int]]) -> Iterator[Segment]:
    for tag, first, last in codes:
        if last > first:
            yield "" if tag == "equal" else CHANGED, "".join(words[first:last])


# --- colours ---------------------------------------------------------------------------------------------


def coloured(patch: FilePatch, path: str) -> FilePatch:
    """The patch with the kinds of tokens: `k` keyword, `s` string, `c` comment, `n` number, `f` name.

    The two sides of a hunk are read separately. A string that began above the hunk is unknown.
    """
    name = PurePosixPath(path.lower())
    language = _LEXERS.get(name.suffix) or _LEXERS.get(name.name)
    texts = [line.text for hunk in patch.hunks for line in hunk.lines]
    if language is None or sum(map(len, texts)) > _MAX_COLOURED_CHARS:
        return patch
    if max(map(len, texts), default=0) > _MAX_COLOURED_LINE:
        return patch
    return replace(patch, hunks=tuple(_coloured_hunk(hunk, language) for hunk in patch.hunks))


def _coloured_hunk(hunk: Hunk, language: str) -> Hunk:
    lines = list(hunk.lines)
    for side, coloured_kinds in (("removed", {"removed"}), ("added", {"added", "same"})):
        places = [place for place, line in enumerate(lines) if line.kind in {side, "same"}]
        kinds = _kinds("\n".join(lines[place].text for place in places), language)
        start = 0
        for place in places:
            line = lines[place]
            length = len(line.text)
            if line.kind in coloured_kinds:
                lines[place] = replace(
                    line, segments=tuple(_merged(line.segments, kinds[start : start + length]))
                )
            start += length + 1
    return replace(hunk, lines=tuple(lines))


def _kinds(text: str, language: str) -> str:
    """One letter for each character of a text: the kind of its token, or a blank."""
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415 - see the docstring of the module
    from pygments.token import Token  # noqa: PLC0415 - as above

    letters = (
        (Token.Comment, "c"),
        (Token.Keyword, "k"),
        (Token.Literal.String, "s"),
        (Token.Literal.Number, "n"),
        (Token.Name.Function, "f"),
        (Token.Name.Class, "f"),
        (Token.Name.Tag, "f"),
        (Token.Name.Decorator, "f"),
        (Token.Operator.Word, "k"),
    )
    found = [" "] * len(text)
    for place, kind, value in get_lexer_by_name(language).get_tokens_unprocessed(text):
        letter = next((letter for parent, letter in letters if kind in parent), " ")
        if letter != " ":
            found[place : place + len(value)] = letter * len(value)
    return "".join(found[: len(text)])


def _merged(segments: Sequence[Segment], kinds: str) -> Iterator[Segment]:
    """The pieces of a line, cut where the kind of token changes."""
    place = 0
    for mark, text in segments:
        first = 0
        for last in range(1, len(text) + 1):
            kind = kinds[place + first]
            if last == len(text) or kinds[place + last] != kind:
                yield " ".join(filter(None, (mark, kind.strip()))), text[first:last]
                first = last
        place += len(text)

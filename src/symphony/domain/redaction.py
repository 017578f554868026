"""Makes untrusted text safe to show: removes control characters, fences it, and masks secrets.

All outputs use these rules: logs, failures, comments, and the messages of agents.

Masking finds a known secret in every notation that programs write: verbatim, wrapped over lines or joined,
percent-encoded, with the escapes of JSON, HTML, Python or a shell, in hex, and inside base64. It decodes the
escapes in a copy of the text, one notation after the other, so it finds mixed notations too.

Mask before cutting. If text arrives already cut (at its end, before `…` or a closing quote), the remaining
part of a secret is masked too.
"""

import base64
import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import unquote_to_bytes

from symphony.characters import SHAPING, SILENT, has_ignorable
from symphony.domain.failures import Failure
from symphony.domain.secrecy import MIN_SECRET_CHARS

# --- plain text ------------------------------------------------------------------------------------------

MAX_LINE_CHARS = 1_000
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_BREAKS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_BLANKS = re.compile(r"[ \t\n]+")


def plain_text(text: str) -> str:
    """The text without terminal escapes, and with a blank for each run of control and bidi characters.

    Line breaks and tabs are kept.
    """
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text  # true for most texts; no pattern can match
    return _CONTROL.sub(" ", _BREAKS.sub("\n", _ESCAPES.sub("", text)))


def one_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """`plain_text` on one line with single blanks, cut to `limit` characters with `…`."""
    flat = _BLANKS.sub(" ", plain_text(text[: limit * 8])).strip()
    return flat if len(flat) <= limit and len(text) <= limit * 8 else flat[: limit - 1] + "…"


# --- fences ----------------------------------------------------------------------------------------------

_BACKTICKS: Final = re.compile("`+")


def fence(text: object) -> str:
    """The text in a Markdown code block whose fence is longer than every run of backticks in the text.

    Issue text is untrusted. A fence cannot stop prompt injection, but it marks the text as data, and the text
    cannot end it. In a comment the text contains no mention, picture, link or markup. `None` and blank text
    give an empty text. Templates have this function as the Liquid filter `fence`.
    """
    lines = [] if text is None else str(text).strip().splitlines()
    if not lines:
        return ""
    inside = "\n".join(lines)
    longest = max((len(run) for run in _BACKTICKS.findall(inside)), default=0)
    border = "`" * max(3, longest + 1)
    return f"{border}text\n{inside}\n{border}"


# --- shapes of credentials -------------------------------------------------------------------------------

MASK = "***"
_MIN_LINE_CHARS = 12
_MIN_PIECE_CHARS = 8
_MAX_LINE_CHARS = 4_000
_MAX_ESCAPED = 3  # JSON in JSON, in a command

_ADDRESS = re.compile(r"(?i)\b((?:https?|wss?)://[^\s?#\"'<>`)]+)([?#][^\s\"'<>`)]*)?")
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)?")
# Messages of agents are masked on the event loop: no pattern may backtrack over the same characters.
_TOKENS = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_*-]{6,}|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}"
    r"|\bglpat-[\w-]{12,}|\blin_(?:api|oauth)_\w{12,}|\bxox[abeprs]-[\w-]{8,}|\bAKIA[A-Z0-9]{12,}"
    r"|\bATATT[A-Za-z0-9_=-]{16,}"
)
_PASSWORD_IN_ADDRESS = re.compile(r"[A-Za-z0-9+.-]://[^\s/@?#:$]*:[^\s/@?#$]+@")
# Each pattern with groups of texts. A case-folded match contains at least one text of each group, and
# searching for these texts first is much faster. The texts of patterns that ignore case contain no i, because
# a dotless i matches too.
_CREDENTIALS: tuple[tuple[tuple[tuple[str, ...], ...], re.Pattern[str], str], ...] = (
    (((":",), ("://",)), re.compile(r"(?i)([a-z0-9+.-]://)[^\s/@?#]*@"), rf"\1{MASK}@"),
    ((("bearer", "bas"),), re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {MASK}"),
    (
        ((":", "="), ("token", "secret", "passw", "key", "author", "cook")),
        re.compile(
            r"(?i)((?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|private[_-]?key|_key"
            r"|authorization|cookie)\b"
            r"[\"']?\s*[:=]\s*[\"']?)(?!\s)(?!bearer\b|basic\b)[^\s\"',;&}]{4,}"
        ),
        rf"\1{MASK}",
    ),
    ((("_", "k-", "glpat-", "xox", "akia", "atatt"),), _TOKENS, MASK),
)


def mask_credentials(text: str) -> str:
    """The text with credentials masked: in addresses, headers and assignments, and known token formats."""
    return _mask_shapes(_ADDRESS.sub(_without_query, text) if "://" in text else text)


def _mask_shapes(text: str) -> str:
    """As `mask_credentials`, but masks a query parameter only if its name is that of a secret."""
    if "eyJ" in text:
        text = _JWT.sub(_without_jwt, text)
    folded = text.casefold()
    for needed, pattern, mask in _CREDENTIALS:
        if all(any(word in folded for word in group) for group in needed):
            text = pattern.sub(mask, text)
    return text


def holds_credential(text: str) -> bool:
    """Whether the text certainly contains a credential: a known token format, or an address with a password.

    Stricter than masking, which may hide too much. Used for warnings.
    """
    shapes = (_TOKENS, _PASSWORD_IN_ADDRESS)
    return any(shape.search(text) for shape in shapes) or MASK in _JWT.sub(_without_jwt, text)


def _without_query(found: re.Match[str]) -> str:
    return found[1] if found[2] is None else f"{found[1]}?{MASK}"


def _without_jwt(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else MASK


# --- known secrets ---------------------------------------------------------------------------------------

# Each notation with a character that its escapes contain. A match may be a run of escapes. Notations are
# decoded one at a time, because escapes of one notation are plain text in another.
_ESCAPED = (
    ("%", re.compile(r"(?P<percent>(?:%[0-9A-Fa-f]{2})+)")),
    ("&", re.compile(r"(?P<html>&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});)")),
    (
        "\\",
        re.compile(
            r"(?P<utf16>(?:\\u[0-9A-Fa-f]{4})+)|(?P<utf32>\\U[0-9A-Fa-f]{8})"
            r"|(?P<hex>(?:\\x[0-9A-Fa-f]{2})+)|(?P<back>\\(?s:.))"
        ),
    ),
    ("'", re.compile(r"""(?P<shell>'(?:\\'|"'")')""")),
)
_BACKSLASH_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "\n": ""}
_INVISIBLE = re.compile(rf"[\s\x00-\x1f\x7f-\x9f{SILENT}{SHAPING}]+")
_NON_ALPHANUMERIC = re.compile(r"[\W_]+")
# Marks of a cut; a quote ends text that was cut before it was quoted.
_CUT = re.compile(r"…|\.\.\.|\(cut|[\"'`]")
_MAX_CUT_MARK_CHARS = 4
_MAX_ESCAPE_CHARS = 7


def _unescaped(found: re.Match[str]) -> str:
    """The characters that an escape stands for."""
    text = found[0]
    match found.lastgroup:
        case "percent":
            characters = _decoded(unquote_to_bytes(text))
        case "hex":
            characters = _decoded(bytes.fromhex(text.replace("\\x", "")))
        case "utf16":
            characters = bytes.fromhex(text.replace("\\u", "")).decode("utf-16-be", "replace")
        case "utf32":
            characters = bytes.fromhex(text[2:]).decode("utf-32-be", "replace")
        case "html":
            characters = html.unescape(text)
        case "shell":
            characters = "'"
        case _:
            characters = _BACKSLASH_ESCAPES.get(text[1], text[1])
    return characters


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class _View:
    """A text with escapes decoded, and the position of each character in the original text."""

    def __init__(self, text: str, spans: list[tuple[int, int]] | None = None) -> None:
        self.text = text
        self._spans = spans

    def unescaped(self) -> "Iterator[_View]":
        """For each notation that occurs in the text, a view with that notation decoded."""
        for needed, pattern in _ESCAPED:
            if needed in self.text and pattern.search(self.text):
                yield self._without(pattern)

    def _without(self, pattern: re.Pattern[str]) -> "_View":
        parts: list[str] = []
        spans: list[tuple[int, int]] = []
        at = 0
        for found in pattern.finditer(self.text):
            characters = _unescaped(found)
            parts += (self.text[at : found.start()], characters)
            spans += (self.span(index, index + 1) for index in range(at, found.start()))
            spans += [self.span(*found.span())] * len(characters)
            at = found.end()
        spans += (self.span(index, index + 1) for index in range(at, len(self.text)))
        return _View("".join([*parts, self.text[at:]]), spans)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The span in the original text."""
        if self._spans is None:
            return start, end
        return self._spans[start][0], self._spans[end - 1][1]


class Redaction:
    """Masks known secrets, and text in the shape of credentials.

    Secrets with less than eight characters besides blanks are ignored: they would mask ordinary words.

    Args:
        values: secrets, which are masked in every notation.
        words: credentials that are ordinary words, or too short: only their hex and base64 are masked.
    """

    def __init__(self, values: Iterable[str] = (), *, words: Iterable[str] = ()) -> None:
        known = {value for value in values if len(_squeezed(plain_text(value))) >= MIN_SECRET_CHARS}
        # Compared without blanks and line breaks, because output is wrapped, joined and indented.
        forms = {form for value in known for form in _plain_notations(value)}
        forms |= {form for value in {*known, *words} for form in _encodings(value)}
        self._joined = [(form[:_MIN_PIECE_CHARS], form[-_MIN_PIECE_CHARS:], form) for form in forms]
        # Compared only by letters and digits, because any text may join the lines.
        skeletons = (_NON_ALPHANUMERIC.sub("", value) for value in known if len(value.splitlines()) > 1)
        self._skeletons = {form for form in skeletons if len(form) >= _MIN_LINE_CHARS}

    def text(self, text: str) -> str:
        """The text, safe to show; line breaks are kept."""
        return mask_credentials(self._without_known(plain_text(text)))

    def verbatim(self, text: str) -> str:
        """The text with secrets masked, and control characters and harmless queries kept.

        Use it for text that people want to see exactly, such as a prompt. Clean the result before showing it
        on a terminal.
        """
        return _mask_shapes(self._without_known(text))

    def line(self, text: str, limit: int = MAX_LINE_CHARS, *, joint: str = " ") -> str:
        """The text on one line of at most `limit` characters: masked, then joined, then cut."""
        room = limit * 8  # also masks a secret that is cut here
        lines = self.text(text[:room]).splitlines() + (["…"] if len(text) > room else [])
        return one_line(joint.join(line.strip() for line in lines if line.strip()), limit)

    def failure(self, failure: Failure) -> Failure:
        """The failure with texts that are safe to show, one line each."""
        return replace(
            failure,
            message=self.line(failure.message, _MAX_LINE_CHARS),
            hint=None if failure.hint is None else self.line(failure.hint, _MAX_LINE_CHARS),
            where=None if failure.where is None else self.line(failure.where, _MAX_LINE_CHARS),
        )

    def _without_known(self, text: str) -> str:
        if not self._joined:
            return text
        spans: list[tuple[int, int]] = []
        views = {text: _View(text)}
        newest = views
        for _ in range(_MAX_ESCAPED):
            others = (other for view in newest.values() for other in view.unescaped())
            newest = {other.text: other for other in others if other.text not in views}
            views = views | newest
        for view in views.values():
            spans += (view.span(*found) for found in self._secret_spans(view.text))
        return _masked(text, spans) if spans else text

    def _secret_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The spans of known secrets, and of their remaining parts where the text was cut."""
        squeezed = _squeezed(text)
        found: list[tuple[int, int]] = []
        for head, tail, form in self._joined:
            if head in squeezed:
                found += _heads(squeezed, form)
            if tail in squeezed:
                found += _tails(squeezed, form)
        if found:
            at = [index for index, character in enumerate(text) if not _INVISIBLE.match(character)]
            yield from ((at[start], at[end - 1] + 1) for start, end in found)
        if self._skeletons:
            bare = _NON_ALPHANUMERIC.sub("", text)
            at = []
            for form in self._skeletons:
                for match in re.finditer(form, bare):  # letters and digits alone
                    at = at or [
                        index
                        for index, character in enumerate(text)
                        if not _NON_ALPHANUMERIC.match(character)
                    ]
                    yield at[match.start()], at[match.end() - 1] + 1


PATTERNS_ONLY: Final = Redaction()
"""Masks text in the shape of credentials; knows no secrets."""


def _plain_notations(value: str) -> Iterator[str]:
    """The notations of a secret that have no escapes, without blanks: as a whole and by lines."""
    for form in (value, plain_text(value), value.strip().replace(" ", "+")):
        yield from _long_enough(_squeezed(form), MIN_SECRET_CHARS)
    lines = value.splitlines()
    for line in lines if len(lines) > 1 else ():
        yield from _long_enough(_squeezed(line), _MIN_LINE_CHARS)


def _encodings(value: str) -> Iterator[str]:
    """A secret in hex and base64."""
    for text in {value, value.strip()}:
        raw = text.encode("utf-8", "surrogatepass")
        yield from _long_enough(raw.hex(), _MIN_PIECE_CHARS)
        yield from _long_enough(raw.hex().upper(), _MIN_PIECE_CHARS)
        for before in range(3):  # base64 encodes three bytes together, and a secret may begin at any of them
            coded = base64.b64encode(bytes(before) + raw).decode()
            own = coded[(0, 2, 3)[before] : (before + len(raw)) * 8 // 6]
            yield from _long_enough(own, _MIN_PIECE_CHARS)
            yield from _long_enough(own.replace("+", "-").replace("/", "_"), _MIN_PIECE_CHARS)


def _squeezed(text: str) -> str:
    """The text without blanks, line breaks and invisible characters."""
    joined = "".join(text.split())
    return joined if joined.isprintable() and not has_ignorable(joined) else _INVISIBLE.sub("", joined)


def _long_enough(form: str, least: int) -> Iterator[str]:
    if len(form) >= least:
        yield form


def _heads(text: str, form: str) -> Iterator[tuple[int, int]]:
    """The spans of a form, and of its beginnings before a cut; half an escape may come between."""
    start = text.find(form[:_MIN_PIECE_CHARS])
    while start >= 0:
        end = start + _common_prefix_length(form, text[start : start + len(form)])
        whole = end - start == len(form)
        if whole or len(text) - end <= _MAX_ESCAPE_CHARS or _is_cut(text, start + _MIN_PIECE_CHARS, end):
            yield start, end
        start = text.find(form[:_MIN_PIECE_CHARS], start + 1)


def _tails(text: str, form: str) -> Iterator[tuple[int, int]]:
    """The spans of the ends of a form after a cut; half an escape may come between."""
    found = text.find(form[-_MIN_PIECE_CHARS:])
    while found >= 0:
        end = found + min(_MIN_PIECE_CHARS, len(form))
        start = end - _common_prefix_length(form[::-1], text[max(0, end - len(form)) : end][::-1])
        if start <= _MAX_ESCAPE_CHARS or _is_cut(text, start - 2 * _MAX_ESCAPE_CHARS, end - _MIN_PIECE_CHARS):
            yield start, end
        found = text.find(form[-_MIN_PIECE_CHARS:], found + 1)


def _is_cut(text: str, first: int, last: int) -> bool:
    """Whether a mark of a cut follows directly or after at most half an escape."""
    found = _CUT.search(text, max(first, 0), last + _MAX_ESCAPE_CHARS + _MAX_CUT_MARK_CHARS)
    return found is not None and found.start() <= last + _MAX_ESCAPE_CHARS


def _common_prefix_length(one: str, other: str) -> int:
    """The length of the common prefix."""
    differing = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in _merged(spans):
        parts += (text[done:start], MASK)
        done = end
    return "".join([*parts, text[done:]])


def _merged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans in order, with overlapping ones merged."""
    start, end = -1, -1
    for first, last in sorted(spans):
        if first <= end:
            end = max(end, last)
            continue
        if start >= 0:
            yield start, end
        start, end = first, last
    yield start, end

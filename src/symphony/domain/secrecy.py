"""Decides which parts of a setting's value are secret. Secret parts are masked wherever they are shown.

Masking a word would make every text that contains it unreadable, so a word is no secret: `symphony` in the
address of a webhook is not masked. There is no list of words. A word is a run of letters that can be
pronounced in English: it has vowels at usual distances, and only pairs of letters that occur in English.

- A value is a secret if the name of its setting or variable says so (`api_key`, `DB_PASSWORD`), or if
  `worker.env` gives it to hosts, unless it has fewer than eight characters or is one or two words.
  `correct-horse-battery-staple` is a secret.
- Any other value that consists of words, such as that of `project: $PROJECT`, is no secret, no matter how
  many words it has.
- Of an address or a path, only the parts that can be a credential are secrets.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

MIN_SECRET_CHARS: Final = 8
_MAX_WORDS: Final = 2
_MAX_PHRASE_CHARS: Final = 24
_MAX_ABBREVIATION_CHARS: Final = 4
_MAX_UNSPOKEN_CHARS: Final = 6
_MAX_DIGITS: Final = 4
_MIN_HOST_LABEL_CHARS: Final = 10

_SEPARATORS: Final = re.compile(r"[\s\-_.,:;/=@+|~]+")
_HUMPS: Final = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}(?![a-z])")
_SMALL: Final = re.compile(r"[0-9]{1,2}")
_NUMBERED: Final = re.compile(r"([A-Za-z]{5,})[0-9]{1,2}")
_VERSION: Final = re.compile(r"(?i)v?\d{1,3}")
_SCHEME: Final = re.compile(r"(?i)(?:bearer|basic|token)\s+(\S+)")
_TURNS: Final = re.compile(r"[a-z][0-9]|[0-9][a-z]", re.IGNORECASE)
_CREDENTIAL_NAME: Final = re.compile(r"(?i)token|secret|passw|key|auth|sig|pwd|credential|code")
_NOT_ENGLISH: Final = re.compile(
    r"q(?!u)|[jv][^aeiouy]|x[bdfgjkmnqrvwxz]|z[bcdfgjkmnpqrstvwx]|[bcdfgkpstvwz]x|[bcdfghjklmpqrtvwxz]j"
    r"|[bcdfgjmpqtvwz]q|[bcfgjkmpqtvwxz]v|[bdfjgvqx]k|[cfgjkpqvwx]z|[fhjkqvxy]g(?!h)|kk.|[aeiou]{4}"
    r"|[^aeiouy]{5}|^[^aeiouy]{4}|(.)\1\1"
)


def secret_parts(value: str, *, named: bool) -> frozenset[str]:
    """The parts of a setting's value that are secrets; none if it has none.

    Args:
        value: the value, with its variable looked up.
        named: whether the name of the setting or of the variable says that it is a credential.
    """
    text = value.strip()
    if "://" in text and (parts := _address_parts(text)) is not None:
        return frozenset(parts)
    if not named and text.startswith("/"):
        return frozenset(_path_parts(text))
    found = {value} if _is_secret(text, named=named) else set[str]()
    if (scheme := _SCHEME.fullmatch(text)) is not None and _is_secret(scheme[1], named=named):
        found.add(scheme[1])
    return frozenset(found)


def _is_secret(text: str, *, named: bool) -> bool:
    if len("".join(text.split())) < MIN_SECRET_CHARS:
        return False
    pieces = [piece for piece in _SEPARATORS.split(text) if piece]
    if not named:
        return not _is_wordy(pieces)
    words = [word for piece in pieces if not _SMALL.fullmatch(piece) for word in _words(piece) or [""]]
    return not (len(words) <= _MAX_WORDS and len(text) <= _MAX_PHRASE_CHARS and all(map(_is_spoken, words)))


def _is_wordy(pieces: list[str]) -> bool:
    """Whether the pieces are words, abbreviations and small numbers, with at least one word."""
    unspoken = digits = spoken = 0
    for piece in pieces:
        if piece.isascii() and piece.isdecimal():
            digits += len(piece)
        elif (words := _words(_NUMBERED.sub(r"\1", piece))) and all(_is_spoken(word) for word in words):
            spoken += 1
        elif (
            piece.isalpha() and len(piece) <= _MAX_ABBREVIATION_CHARS and (piece.islower() or piece.isupper())
        ):
            unspoken += len(piece)
        elif _VERSION.fullmatch(piece) is None:
            return False
    return spoken > 0 and unspoken <= _MAX_UNSPOKEN_CHARS and digits <= _MAX_DIGITS


def _words(piece: str) -> list[str]:
    """The words of a piece such as `IncomingWebhook`; none if the piece contains anything else."""
    if piece.isalpha() and (piece.islower() or piece.isupper()):
        return [piece]
    words = [found[0] for found in _HUMPS.finditer(piece)]
    return words if "".join(words) == piece and all(len(word) > _MAX_WORDS for word in words) else []


def _is_spoken(word: str) -> bool:
    """Whether a word can be pronounced; letters of other scripts count as words."""
    lower = word.lower()
    if not lower or not lower.isascii():
        return bool(lower)
    return re.search("[aeiouy]", lower) is not None and _NOT_ENGLISH.search(lower) is None


# --- addresses and paths ---------------------------------------------------------------------------------


def _address_parts(address: str) -> Iterator[str] | None:
    """The secret parts of an address: login, values of the query, and random-looking parts of path and host.

    `None` if it cannot be read as an address; the caller then treats it as any other text.
    """
    try:
        parts = urlsplit(address)
        login, _, host = parts.netloc.rpartition("@")
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return None
    return _parts_of(login, host, parts.path, query, unquote(parts.fragment))


def _parts_of(login: str, host: str, path: str, query: list[tuple[str, str]], fragment: str) -> Iterator[str]:
    user, colon, password = login.partition(":")
    candidates = [(user, not colon), (password, True), (fragment, False)]
    candidates = [(unquote(text), named) for text, named in candidates]
    candidates += [(text, _CREDENTIAL_NAME.search(name) is not None) for name, text in query]
    for text, named in candidates:
        if _is_secret(text, named=named):
            yield text
    for label in host.split("."):
        if len(label) >= _MIN_HOST_LABEL_CHARS and len(_TURNS.findall(label)) > _MAX_WORDS:
            yield label
    yield from _path_parts(path)


def _path_parts(path: str) -> Iterator[str]:
    """Segments that are no words. Neighbouring segments are also joined, because each of them may be short.

    Zapier's hooks end in `/1234567/a1b2c3d/`.
    """
    segments = [unquote(segment) for segment in path.split("/") if segment]

    def is_random(segment: str) -> bool:
        pieces = [piece for piece in _SEPARATORS.split(segment) if piece]
        return not (_is_wordy(pieces) or _VERSION.fullmatch(segment) or _is_abbreviation(segment))

    for random, group in groupby(segments, is_random):
        run = list(group)
        if not random:
            continue
        yield from (text for text in {*run, "/".join(run)} if len(text) >= MIN_SECRET_CHARS)


def _is_abbreviation(segment: str) -> bool:
    return segment.isalpha() and len(segment) <= _MAX_ABBREVIATION_CHARS and segment.islower()

"""Full-text search of skills, for sessions with too many skills to list.

Okapi BM25 over three weighted fields: a word in a name counts more than one in a description. Words are
folded (NFKC, case), compounds count as a whole and by their parts (`pdf-tools`, `PDFTools`), a plural matches
its singular, and a prefix matches with less weight. Words of scripts without blanks are split into pairs of
characters. The search is pure and deterministic: equal scores keep the order of the catalog.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from symphony.skills.model import Skill

DEFAULT_LIMIT: Final = 10
_SATURATION: Final = 1.2  # k1 and b as in the literature
_LENGTH_SHARE: Final = 0.75
_NAME, _WHEN, _DESCRIPTION = 3.0, 1.5, 1.0
_PREFIX_SHARE: Final = 0.5
_MIN_PREFIX: Final = 3
_MAX_QUERY_WORDS: Final = 32
_MAX_FIELD_CHARS: Final = 4_096
_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL_CASE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED: Final = re.compile(r"[\u0E00-\u0EFF\u3040-\u30FF\u3400-\u9FFF\uF900-\uFAFF]+")
_PLURAL_MIN: Final = 4


class Hit(Struct, frozen=True, kw_only=True):
    """A match; a higher `score` is better, and only comparable within one search."""

    skill: Skill
    score: float


class _Document(Struct, frozen=True):
    """A skill as weighted words; `length` is the sum of the weights."""

    skill: Skill
    words: Mapping[str, float]
    length: float


def search_skills(skills: Iterable[Skill], query: str, *, limit: int = DEFAULT_LIMIT) -> tuple[Hit, ...]:
    """The best matches for a query, best first; none if no skill has any of its words.

    Args:
        skills: in the order that breaks ties.
        query: any text; only its first 32 words are used.
        limit: maximum number of matches.
    """
    documents = [_document(skill) for skill in skills]
    wanted = tuple(dict.fromkeys(_words(query)))[:_MAX_QUERY_WORDS]
    if not documents or not wanted:
        return ()
    scores = _Scores(documents)
    hits = [Hit(skill=one.skill, score=scores.of(one, wanted)) for one in documents]
    found = sorted((hit for hit in hits if hit.score > 0), key=lambda hit: -hit.score)
    return tuple(found[: max(limit, 0)])


class _Scores:
    """Okapi BM25 over one collection."""

    def __init__(self, documents: Sequence[_Document]) -> None:
        self._count = len(documents)
        self._average = sum(one.length for one in documents) / self._count or 1.0
        self._holders = Counter(word for one in documents for word in one.words)

    def of(self, document: _Document, wanted: Sequence[str]) -> float:
        """The score of a document; 0 if it has none of the words."""
        share = 1 - _LENGTH_SHARE + _LENGTH_SHARE * document.length / self._average
        return sum(self._word(document, word, share) for word in wanted)

    def _word(self, document: _Document, word: str, share: float) -> float:
        """The score of one word, or else of the best word that it is a prefix of."""
        if (weight := document.words.get(word)) is not None:
            return self._idf(word) * _saturated(weight, share)
        if len(word) < _MIN_PREFIX:
            return 0.0
        longer = (
            self._idf(one) * _saturated(weight, share)
            for one, weight in document.words.items()
            if one.startswith(word)
        )
        return _PREFIX_SHARE * max(longer, default=0.0)

    def _idf(self, word: str) -> float:
        """The inverse document frequency of a word; never negative."""
        holders = self._holders[word]
        return math.log(1 + (self._count - holders + 0.5) / (holders + 0.5))


def _saturated(weight: float, share: float) -> float:
    return weight * (_SATURATION + 1) / (weight + _SATURATION * share)


def _document(skill: Skill) -> _Document:
    words: dict[str, float] = {}
    for text, weight in ((skill.name, _NAME), (skill.when_to_use, _WHEN), (skill.description, _DESCRIPTION)):
        for word in _words(text[:_MAX_FIELD_CHARS]):
            words[word] = words.get(word, 0.0) + weight
    return _Document(skill=skill, words=words, length=sum(words.values()))


def _words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text)):
        yield from _forms(match[0])


def _forms(word: str) -> Iterator[str]:
    """The index terms of a word: folded and singular, and its camel-case parts; or pairs of characters."""
    if _UNSPACED.search(word):
        yield from _pairs(word.casefold())
        return
    yield _singular(word.casefold())
    parts = _CAMEL_CASE.split(word)
    if len(parts) > 1:
        yield from (_singular(part.casefold()) for part in parts)


def _pairs(text: str) -> Iterator[str]:
    if len(text) == 1:
        yield text
    for first, second in pairwise(text):
        yield first + second


def _singular(word: str) -> str:
    """The word without its plural ending; crude, but the same for queries and texts."""
    if len(word) < _PLURAL_MIN or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]

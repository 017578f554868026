"""Ranks skills for a few words: what a session asks when there are too many skills to list.

Okapi BM25 over three weighted fields, so that a word in a name says more than one in a description. Words are
folded (NFKC, case), compounds count as a whole and by their parts (`pdf-tools`, `PDFTools`), a plural finds
its singular, and the beginning of a word finds it with less weight. Scripts without blanks between words are
cut into pairs of characters. Pure and deterministic: equal scores fall back to the order of the catalog.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

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
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED: Final = re.compile(r"[\u0E00-\u0EFF\u3040-\u30FF\u3400-\u9FFF\uF900-\uFAFF]+")
_PLURAL_MIN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One skill that was found; a higher `score` fits better, and only their order means something."""

    skill: Skill
    score: float


@dataclass(frozen=True, slots=True)
class _Document:
    """A skill as weighted words; `length` is the sum of the weights."""

    skill: Skill
    words: Mapping[str, float]
    length: float


def search_skills(skills: Iterable[Skill], query: str, *, limit: int = DEFAULT_LIMIT) -> tuple[Hit, ...]:
    """The skills that fit the words best, the best first; none where no word occurs anywhere.

    Args:
        skills: what may be found, in the order that breaks ties.
        query: any text; its first 32 words count.
        limit: how many hits at most.
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
        """How well a document fits; 0 where it holds none of the words."""
        share = 1 - _LENGTH_SHARE + _LENGTH_SHARE * document.length / self._average
        return sum(self._word(document, word, share) for word in wanted)

    def _word(self, document: _Document, word: str, share: float) -> float:
        """The word itself, or else the best word that it begins."""
        if (weight := document.words.get(word)) is not None:
            return self._rarity(word) * _saturated(weight, share)
        if len(word) < _MIN_PREFIX:
            return 0.0
        longer = (
            self._rarity(one) * _saturated(weight, share)
            for one, weight in document.words.items()
            if one.startswith(word)
        )
        return _PREFIX_SHARE * max(longer, default=0.0)

    def _rarity(self, word: str) -> float:
        """The weight of a word by how few documents hold it; never negative."""
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
    """A word as it is looked up: folded, singular, its humps, or its pairs in a script without blanks."""
    if _UNSPACED.search(word):
        yield from _pairs(word.casefold())
        return
    yield _singular(word.casefold())
    humps = _HUMP.split(word)
    if len(humps) > 1:
        yield from (_singular(hump.casefold()) for hump in humps)


def _pairs(text: str) -> Iterator[str]:
    if len(text) == 1:
        yield text
    for first, second in pairwise(text):
        yield first + second


def _singular(word: str) -> str:
    """Without an English plural; deliberately crude, as both sides go through it."""
    if len(word) < _PLURAL_MIN or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]

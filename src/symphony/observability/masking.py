"""Masks secrets in a nested value on its way out: in every text, and whole under telling keys."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from symphony.domain.redaction import MASK

__all__ = ["masked"]

_SECRET_KEYS = re.compile(r"(?i)(token|secret|password|passwd|api_?key|authorization|cookie|credential)")
_NOT_SECRET_KEYS = re.compile(r"(?i)_tokens$|^tokens$")


@lru_cache(maxsize=1_024)
def _is_telling(key: str) -> bool:
    """Whether a key says that a secret stands under it; the same few keys come again and again."""
    return bool(_SECRET_KEYS.search(key)) and not _NOT_SECRET_KEYS.search(key)


def masked(value: Any, text: Callable[[str], str], *, key: str = "") -> Any:
    """The value with `text` applied to every text in it; what stands under a telling key is hidden whole."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if _is_telling(key):
        return MASK
    match value:
        case str():
            return text(value)
        case Mapping():
            return {str(inner): masked(item, text, key=str(inner)) for inner, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [masked(item, text) for item in value]
        case _:
            return text(str(value))

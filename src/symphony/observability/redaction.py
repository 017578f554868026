"""Masks secrets in nested values."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, UnsetType

from symphony.domain import MASK

MAX_DEPTH: Final = 64
TOO_DEEP: Final = "(nested too deep)"
_LARGEST: Final = 2**63 - 1

_SECRET_KEYS = re.compile(r"(?i)(token|secret|password|passwd|api_?key|authorization|cookie|credential)")
_NOT_SECRET_KEYS = re.compile(r"(?i)_tokens$|^tokens$|^token_usage$")


@lru_cache(maxsize=1_024)
def _is_telling(key: str) -> bool:
    """Whether the value of a key is a secret, judged by its name. Cached, because the same keys repeat."""
    return bool(_SECRET_KEYS.search(key)) and not _NOT_SECRET_KEYS.search(key)


def masked(value: Any, text: Callable[[str], str], *, key: str = "") -> Any:
    """The value with `text` applied to all texts in it, including keys; values under secret keys are hidden.

    A document keeps its type. The result can be written as JSON: parts nested deeper than `MAX_DEPTH` are
    left out, and a number of more than 64 bits becomes the nearest number of 64 bits.
    """
    return _masked(value, text, key, MAX_DEPTH)


def _masked(value: Any, text: Callable[[str], str], key: str, levels: int) -> Any:
    shown: Any
    match value:
        case None | bool() | float() | UnsetType():
            shown = value
        case int():
            shown = max(min(value, _LARGEST), -_LARGEST)
        case _ if _is_telling(key):
            shown = MASK
        case str():
            shown = text(value)
        case Mapping() | list() | tuple() | set() | frozenset() if levels == 0:
            shown = TOO_DEEP
        case Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            texts = {name: _masked(item, text, name, levels - 1) for name, item in fields.items()}
            lists = {name: tuple(texts[name]) for name, item in fields.items() if isinstance(item, tuple)}
            shown = type(value)(**texts | lists)
        case Mapping():
            shown = {text(str(key)): _masked(item, text, str(key), levels - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            shown = [_masked(item, text, "", levels - 1) for item in value]
        case _:
            shown = text(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
    return shown

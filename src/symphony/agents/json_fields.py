"""Reads JSON of an agent: decodes it within bounds, and gets fields whose types are not guaranteed."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from symphony.domain import DECODE_ERRORS

MAX_DEPTH: Final = 64
MAX_ID_CHARS: Final = 200
Json = Mapping[str, Any]


def decode_json(raw: msgspec.Raw | bytes) -> Any:
    """Decode a JSON text.

    Raises:
        ValueError: it is not JSON, not UTF-8, or nests deeper than `MAX_DEPTH`.
    """
    try:
        value = msgspec.json.decode(raw)
    except DECODE_ERRORS as error:
        raise ValueError(str(error)) from error
    text = bytes(raw)
    brackets = text.count(b"[") + text.count(b"{")  # few in nearly all texts
    if brackets > MAX_DEPTH and nests_deeper(value, MAX_DEPTH):
        raise ValueError(f"it nests deeper than {MAX_DEPTH} levels")
    return value


def decode_object(raw: msgspec.Raw) -> dict[str, Any]:
    """Decode a JSON object; empty when the text is another value. Raises as `decode_json`."""
    value = decode_json(raw)
    return value if isinstance(value, dict) else {}


def nests_deeper(value: object, most: int) -> bool:
    """Whether lists and objects nest deeper than `most`. Goes level by level: any depth is safe."""
    level: list[Any] = [value]
    for _ in range(most + 1):
        nodes = [node for node in level if isinstance(node, dict | list)]
        if not nodes:
            return False
        level = [child for node in nodes for child in (node.values() if isinstance(node, dict) else node)]
    return True


def object_in(node: Json, key: str) -> dict[str, Any]:
    """Return the object at the key; empty for any other value."""
    value = node.get(key)
    return value if isinstance(value, dict) else {}


def objects_in(node: Json, key: str) -> list[dict[str, Any]]:
    """Return the objects in the list at the key; empty for any other value."""
    value = node.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def text_in(node: Json, key: str) -> str:
    """Return the text at the key; empty for any other value."""
    value = node.get(key)
    return value if isinstance(value, str) else ""


def as_text(value: object) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def count_in(node: Json, keys: Iterable[str]) -> int | None:
    """Return the first value at one of the keys that is a count, as a number or as digits; else None."""
    for key in keys:
        value = node.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value[:18])
    return None

"""JSON Schema of documents, made of their types."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import UNSET, structs

from symphony.observability.model import Document

__all__ = ["IN_DEFS", "schemas"]

IN_DEFS: Final = "#/$defs/{name}"


def schemas(*kinds: type[Document], ref: str = IN_DEFS) -> dict[str, Any]:
    """The schemas of these documents and of their parts by name; they refer to each other by `ref`.

    A field is required unless it may be unset: one with another default is for readers, and is always sent.
    """
    _, found = msgspec.json.schema_components(kinds, ref_template=ref)
    for kind in _all_kinds(Document):
        if kind.__name__ in found:
            tag, fields = kind.__struct_config__.tag_field, structs.fields(kind)
            names = [field.encode_name for field in fields if field.default is not UNSET]
            found[kind.__name__]["required"] = names if tag is None else [tag, *names]
    return found


def _all_kinds(kind: type[Document]) -> Iterator[type[Document]]:
    for one in kind.__subclasses__():
        yield one
        yield from _all_kinds(one)

"""The published schemas say what the types say."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from published.schemas import FOLDER, published
from symphony.api.models import Document

PUBLISHED = published()


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_a_stored_schema_is_current(path: Path) -> None:
    stored = path.read_text(encoding="utf-8")
    assert stored == PUBLISHED[path], "make schemas"
    jsonschema.Draft202012Validator.check_schema(json.loads(stored))


def test_every_stored_schema_is_made_of_a_type() -> None:
    assert set(FOLDER.iterdir()) == set(PUBLISHED)


def test_no_two_documents_have_one_name() -> None:
    """The schemas are found by it."""
    assert [name for name, times in Counter(_names(Document)).items() if times > 1] == []


def _names(kind: type[Document]) -> Iterator[str]:
    for one in kind.__subclasses__():
        yield one.__name__
        yield from _names(one)

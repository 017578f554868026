"""docs/tracing.md lists every span and every attribute, and nothing else."""

import re
from pathlib import Path

from symphony.observability.span_names import Attribute, SpanName

PAGE = (Path(__file__).parents[3] / "docs" / "tracing.md").read_text(encoding="utf-8")


def _first_column(heading: str) -> list[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def test_the_page_lists_every_span() -> None:
    assert [name.removesuffix(" NAME").removesuffix(" KIND") for name in _first_column("Spans")] == list(
        SpanName
    )


def test_the_page_lists_every_attribute() -> None:
    assert sorted(_first_column("Attributes")) == sorted(Attribute)

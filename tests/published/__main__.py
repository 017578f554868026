"""Writes the schemas: `make schemas`."""

from published.schemas import published

for path, text in published().items():
    path.write_text(text, encoding="utf-8")

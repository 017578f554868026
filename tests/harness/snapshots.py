"""Compares whole screens with stored text files; `make snapshots` records them again."""

import os
from pathlib import Path

__all__ = ["check_snapshot"]

_FOLDER = Path(__file__).parents[1] / "snapshots"


def check_snapshot(name: str, text: str) -> None:
    """Assert that the text is the content of `tests/snapshots/<name>.txt`; SYMPHONY_SNAPSHOTS records it."""
    file = _FOLDER / f"{name}.txt"
    if os.environ.get("SYMPHONY_SNAPSHOTS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{file}: look at the difference, then make snapshots"

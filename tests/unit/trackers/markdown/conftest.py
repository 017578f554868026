"""A board in a temporary folder, with a clock that stands still."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from symphony.trackers.markdown import Board, BoardConfig, CommentStore, MarkdownTracker

MOMENT = datetime(2026, 11, 27, 10, 15, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / ".symphony" / "issues"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def config(folder: Path) -> BoardConfig:
    return BoardConfig(path=folder)


@pytest.fixture
def board(config: BoardConfig) -> Board:
    return Board(config, now=lambda: MOMENT)


@pytest.fixture
def comments(folder: Path) -> CommentStore:
    return CommentStore(folder, now=lambda: MOMENT)


@pytest.fixture
def tracker(config: BoardConfig) -> MarkdownTracker:
    return MarkdownTracker(config)


Write = Callable[..., Path]


@pytest.fixture
def write(folder: Path) -> Write:
    """Write an issue file: `write("SYM-1", state="Todo", blocked_by="[SYM-2]")`."""

    def _write(stem: str, body: str = "", **values: str) -> Path:
        front: Mapping[str, str] = {"title": f"Title of {stem}", "state": "Todo", **values}
        text = "".join(f"{key}: {value}\n" for key, value in front.items())
        path = folder / f"{stem}.md"
        path.write_text(f"---\n{text}---\n{body}", encoding="utf-8")
        return path

    return _write

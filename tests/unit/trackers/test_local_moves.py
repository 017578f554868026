"""Moves and looks of the trackers that need no network."""

from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.trackers.base import AccountCapability, AccountInfo, MovingCapability, TrackerError
from symphony.trackers.markdown import BoardConfig, MarkdownTracker
from symphony.trackers.memory import MemoryTracker

pytestmark = pytest.mark.asyncio

Write = Callable[..., Path]
RECORD = {"id": "M-1", "title": "One", "state": "Todo", "dispatchable": True}


async def test_both_offer_it() -> None:
    for kind in (MarkdownTracker, MemoryTracker):
        assert issubclass(kind, MovingCapability)
        assert issubclass(kind, AccountCapability)


async def test_a_file_is_moved_and_read_back(tracker: MarkdownTracker, write: Write) -> None:
    path = write("SYM-1", body="Its text.\n")
    assert await tracker.move_issue("SYM-1", "human review") == "Human Review"
    assert path.read_text(encoding="utf-8").endswith("state: Human Review\n---\nIts text.\n")


@pytest.mark.parametrize(("issue_id", "state"), [("SYM-1", "Nowhere"), ("SYM-9", "Todo")])
async def test_what_is_not_there_is_refused(
    tracker: MarkdownTracker, write: Write, issue_id: str, state: str
) -> None:
    write("SYM-1")
    with pytest.raises(TrackerError) as caught:
        await tracker.move_issue(issue_id, state)
    assert caught.value.failure.hint


async def test_a_board_tells_its_states(
    tracker: MarkdownTracker, config: BoardConfig, tmp_path: Path
) -> None:
    assert await tracker.account_info() == AccountInfo(
        login=None, scope=str(config.path), states=config.states
    )
    with pytest.raises(TrackerError):
        await MarkdownTracker(BoardConfig(path=tmp_path / "none")).account_info()


async def test_a_record_in_memory_goes_to_any_state() -> None:
    tracker = MemoryTracker([RECORD])
    assert await tracker.move_issue("M-1", "Anywhere") == "Anywhere"
    assert (await tracker.account_info()).states == ()
    with pytest.raises(TrackerError):
        await tracker.move_issue("M-2", "Todo")

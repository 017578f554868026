import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import watchfiles
from structlog.testing import capture_logs
from typing_extensions import override

from symphony.trackers.markdown import BoardConfig, MarkdownTracker, tracker
from symphony.trackers.markdown.board import Board, BoardIssues

pytestmark = pytest.mark.asyncio


class Hints:
    """Counts hints; waits until there was one more than when it last looked."""

    def __init__(self) -> None:
        self.count = 0
        self._more = anyio.Event()

    def tell(self) -> None:
        self.count += 1
        self._more.set()

    async def next(self) -> None:
        with anyio.fail_after(60):
            await self._more.wait()
        self._more = anyio.Event()


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x", encoding="utf-8")


def rename(path: Path, other: Path) -> None:
    path.rename(other)


def make_anew(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


@asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[Hints]:
    hints = Hints()

    async def run() -> None:
        async for _ in MarkdownTracker(BoardConfig(path=folder)).changes():
            hints.tell()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        yield hints
        group.cancel_scope.cancel()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / ".symphony" / "issues"
    path.mkdir(parents=True)
    return path


async def test_a_watch_begins_with_a_hint_and_tells_of_changed_issues(folder: Path) -> None:
    async with watching(folder) as hints:
        await hints.next()
        touch(folder / "SYM-1.md")
        await hints.next()
        rename(folder / "SYM-1.md", folder / "SYM-2.md")
        await hints.next()


async def test_the_longer_a_board_takes_to_read_the_longer_hints_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, rests = 100.0, list[float]()

    async def rest(wanted_s: float) -> None:
        rests.append(wanted_s)

    class Slow(Board):
        takes_s = 0.0

        @override
        def all(self) -> BoardIssues:
            nonlocal now_s
            now_s += self.takes_s
            return super().all()

    board = Slow(BoardConfig(path=folder))
    tracker = MarkdownTracker(board.config, board=board, rest=rest)
    async with aclosing(tracker.changes()) as hints:
        for number, board.takes_s in enumerate((0.0, 0.02, 2.0)):
            await anext(hints)
            with monkeypatch.context() as patch:
                patch.setattr(anyio, "current_time", lambda: now_s)
                await tracker.fetch_issues_by_states(["Todo"])
            touch(folder / f"SYM-{number}.md")
        await anext(hints)
    assert rests == pytest.approx([0.0, 0.38, 5.0])


async def test_comments_and_temporary_files_wake_nobody(folder: Path) -> None:
    async with watching(folder) as hints:
        await hints.next()
        touch(folder / "SYM-1" / "comments" / "x.md")
        touch(folder / ".symphony-0000000000000000.tmp")
        touch(folder.parent / "skills")
        await _looks(folder, 3)
        assert hints.count == 1
        touch(folder / "SYM-1.md")
        await hints.next()
        assert hints.count == 2


async def _looks(folder: Path, count: int) -> None:
    """Wait until a watch of our own has looked at the same folder a few times."""
    looks = watchfiles.awatch(
        folder, folder.parent, debounce=50, step=25, rust_timeout=500, yield_on_timeout=True, recursive=False
    )
    async with aclosing(looks):
        async for _ in looks:
            count -= 1
            if count == 0:
                return


async def test_a_folder_that_comes_later_is_watched_from_then_on(folder: Path) -> None:
    shutil.rmtree(folder.parent.parent)
    async with watching(folder) as hints:
        await _looks(folder.parent.parent.parent, 1)
        assert hints.count == 0
        make_anew(folder)
        await hints.next()
        touch(folder / "SYM-1.md")
        await hints.next()


async def test_a_folder_that_is_made_anew_is_watched_again(folder: Path) -> None:
    async with watching(folder) as hints:
        await hints.next()
        make_anew(folder)
        await hints.next()
        touch(folder / "SYM-1.md")
        await hints.next()
        rename(folder, folder.with_name("old"))
        make_anew(folder)
        await hints.next()
        touch(folder / "SYM-1.md")
        await hints.next()


async def test_a_system_that_cannot_watch_is_told_once_and_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    awatch, failures = (
        watchfiles.awatch,
        iter([OSError("no watches left"), RuntimeError("nor now"), FileNotFoundError()]),
    )

    def sometimes(*paths: Path, **options: Any) -> AsyncIterator[object]:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        return awatch(*paths, **options)

    monkeypatch.setattr(watchfiles, "awatch", sometimes)
    with capture_logs() as logs, anyio.fail_after(60):
        async with aclosing(tracker.folder_changes(folder, pause_s=0.01)) as hints:
            await anext(hints)
    assert [log["event"] for log in logs] == ["board_watch_failed"]

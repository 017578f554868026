"""What is noticed of the work of other processes."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

from kit.virtual_time import in_virtual_time
from symphony.daemon.context import RuntimeContext
from symphony.daemon.watchers import TrackerWatch, watch_library
from symphony.library.model import Authorship, SkillText
from symphony.library.store import Library

STYLE = SkillText(name="style", description="Style.", when_to_use="", content="Be brief.\n")
ASSIGN = """
import sys
from pathlib import Path
from symphony.library.model import TargetKind
from symphony.library.store import Library
Library(Path(sys.argv[1])).assign(TargetKind.AGENT, "codex", [])
"""
DEADLINE_S = 120.0


@pytest.mark.asyncio
@in_virtual_time
async def test_each_change_of_the_library_by_whatever_process_is_noticed_and_no_reading(
    tmp_path: Path,
) -> None:
    library = Library(tmp_path / "library.db")
    give, calls = anyio.create_memory_object_stream[None](float("inf"))
    assign = (sys.executable, "-c", ASSIGN, str(library.path))
    async with anyio.create_task_group() as tasks, give, calls:
        tasks.start_soon(watch_library, library.path, lambda: give.send_nowait(None), 0.01)
        await anyio.sleep(0.2)
        for write in (
            lambda: library.add(STYLE, Authorship(author="ada")),
            lambda: subprocess.run(assign, check=True),
        ):
            await to_thread.run_sync(write)
            with anyio.fail_after(DEADLINE_S):
                await calls.receive()
            await anyio.sleep(0.2)
            while calls.statistics().current_buffer_used:
                await calls.receive()
            for _ in range(20):
                await to_thread.run_sync(library.skills)
                await anyio.sleep(0.02)
            assert calls.statistics().current_buffer_used == 0, "it was only read"
        tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_after_new_settings_their_tracker_is_watched() -> None:
    woken = anyio.Event()
    ended = anyio.Event()

    class Board:
        def __init__(self, *, changes: bool) -> None:
            self._changes = changes

        async def changes(self) -> AsyncIterator[None]:
            try:
                if self._changes:
                    yield
                await anyio.sleep_forever()
            finally:
                ended.set()

    async def wake() -> None:
        woken.set()
        await anyio.lowlevel.checkpoint()

    def by(board: Board) -> RuntimeContext:
        return cast("RuntimeContext", SimpleNamespace(tracker=board))

    watch = TrackerWatch(wake)
    watch.reconfigure(by(Board(changes=False)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        await anyio.wait_all_tasks_blocked()
        assert not woken.is_set()
        watch.reconfigure(by(Board(changes=True)))
        with anyio.fail_after(30):
            await ended.wait()
            await woken.wait()
        tasks.cancel_scope.cancel()

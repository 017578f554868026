"""The threads for work on files: all there from the beginning, never more."""

import threading
from functools import partial

import anyio
import pytest
from anyio import to_thread
from typing_extensions import override

from symphony.runtime import pool
from symphony.runtime.pool import bound_threads, start_threads

pytestmark = pytest.mark.asyncio


def _workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "AnyIO" in thread.name}


async def test_they_are_all_there_before_the_work_begins() -> None:
    bound_threads()
    await start_threads()
    before = _workers()
    together = threading.Barrier(pool.THREADS)
    async with anyio.create_task_group() as tasks:
        for _ in range(pool.THREADS):
            tasks.start_soon(partial(to_thread.run_sync, together.wait, 10.0))
    assert len(before) >= pool.THREADS
    assert _workers() == before
    assert to_thread.current_default_thread_limiter().total_tokens == pool.THREADS


async def test_a_machine_that_makes_no_more_threads_starts_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "_OTHERS", pool.THREADS + 50)
    start, made = threading.Thread.start, list[threading.Thread]()

    def few(thread: threading.Thread) -> None:
        if len(made) == pool.THREADS:
            raise RuntimeError("can't start new thread")
        made.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", few)
    await start_threads()
    assert len(made) == pool.THREADS


async def test_a_machine_without_threads_left_does_not_hold_the_start_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(threading.Barrier):
        @override
        def wait(self, timeout: float | None = None) -> int:
            del timeout
            raise threading.BrokenBarrierError

    monkeypatch.setattr(pool.threading, "Barrier", Broken)  # type: ignore[attr-defined]  # not re-exported
    await start_threads()

"""A blocking function in a thread: its own errors are its own; a thread that cannot be made is waited for."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from threading import Barrier, BrokenBarrierError, Event, get_ident

import anyio
import pytest
from anyio import CapacityLimiter

from harness.other_user import NOBODY, ordinary_python, search_path
from symphony import to_thread

_LIMITED = """
import anyio, resource, sys
from symphony import to_thread
async def main():
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, most))
    try:
        to_thread.require()
    except RuntimeError:
        print("refused")
    async with anyio.create_task_group() as tasks:
        async def later():
            await anyio.sleep(0.5)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        tasks.start_soon(later)
        print(await to_thread.run_sync(max, 3, 4))
anyio.run(main)
"""


@pytest.mark.asyncio
async def test_no_more_threads_run_than_are_shared() -> None:
    seen: list[int] = []
    barrier = Barrier(3)

    def look(wait_s: float) -> None:
        with suppress(BrokenBarrierError):
            seen.append(barrier.wait(wait_s))

    to_thread.share(2)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(to_thread.run_sync, look, 0.2)
    assert seen == [], "three were never there together"
    to_thread.share(3)
    barrier.reset()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(to_thread.run_sync, look, 60)
    assert sorted(seen) == [0, 1, 2]


@pytest.mark.asyncio
async def test_a_function_runs_once_in_another_thread_and_its_error_is_raised() -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(get_ident())
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError):
        await to_thread.run_sync(fails)
    assert len(calls) == 1
    assert calls != [get_ident()]
    assert await to_thread.run_sync(max, 1, 2) == 2
    with pytest.raises(RuntimeError), anyio.fail_after(60):
        await to_thread.run_sync(next, iter(()))


def test_a_thread_is_waited_for_where_there_is_no_room_for_one() -> None:
    root = os.geteuid() == 0
    done = subprocess.run(
        [ordinary_python() if root else sys.executable, "-c", _LIMITED],
        env={"PYTHONPATH": search_path()},
        user=NOBODY if root else None,
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[0] == "refused"
    assert done.stdout.splitlines()[-1] == "4"


@pytest.mark.asyncio
async def test_threads_are_used_again() -> None:
    used: set[int] = set()

    async def call() -> None:
        for _ in range(5):
            used.add(await to_thread.run_sync(get_ident))

    to_thread.share(3)
    for calls in (20, 20, 200):
        async with anyio.create_task_group() as tasks:
            for _ in range(calls):
                tasks.start_soon(call)
    assert len(used) <= 3


@pytest.mark.asyncio
async def test_a_call_that_is_abandoned_keeps_its_thread_and_its_place_until_it_ends() -> None:
    hanging, limiter = Event(), CapacityLimiter(1)
    with anyio.move_on_after(0.05) as scope:
        await to_thread.run_sync(hanging.wait, 60, abandon_on_cancel=True, limiter=limiter)
    assert scope.cancelled_caught
    assert limiter.borrowed_tokens == 1
    hanging.set()
    assert await to_thread.run_sync(max, 1, 2, limiter=limiter) == 2
    with anyio.CancelScope() as scope:
        scope.cancel()
        await to_thread.run_sync(hanging.clear)
    assert hanging.is_set(), "a call that is cancelled before it begins is not made"


def test_the_threads_of_a_loop_end_after_it() -> None:
    before = threading.active_count()
    for _ in range(3):
        asyncio.run(to_thread.run_sync(int))
    gc.collect()
    end = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before

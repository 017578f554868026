"""Streams of events on real sockets, while many agents stream."""

import gc
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from blockbuster import blockbuster_ctx

from harness.asking import BEARER, TOKEN, FakeOperator
from harness.chronicle import Chronicle
from harness.scheduling import make_issue
from symphony.api.live import MAX_STREAMS, Changes
from symphony.config import ServerSettings
from symphony.daemon.http_server import serve_http
from symphony.daemon.state_dir import StateDirectory

pytestmark = pytest.mark.asyncio
AGENTS = 50
REPORTS = 40
LONGEST_S = 0.05
DEADLINE_S = 120.0


class Turns:
    """The longest turn of the event loop in seconds of processor time, so that no other process counts."""

    longest_s = 0.0

    async def watch(self) -> None:
        before = time.thread_time()
        while True:
            await anyio.lowlevel.checkpoint()
            now = time.thread_time()
            self.longest_s, before = max(self.longest_s, now - before), now


@pytest.fixture
def small_heap() -> Iterator[None]:
    """What the test process has loaded takes no part in garbage collection, which would take 80 ms."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def read_streams(port: int, last: bytes) -> int:
    """Open all streams, and read until each has the `last` line; how many have it. In a thread."""
    head = f"host: localhost\r\nauthorization: {BEARER['authorization']}\r\n\r\n"
    request = f"GET /api/v1/events HTTP/1.1\r\n{head}".encode()
    got, until = {}, time.monotonic() + DEADLINE_S
    with ExitStack() as stack:
        for _ in range(MAX_STREAMS):
            stream = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            stream.sendall(request)
            got[stream] = b""
        while not all(last in text for text in got.values()) and time.monotonic() < until:
            for stream in select.select([*got], [], [], 0.1)[0]:
                got[stream] += stream.recv(65_536)
    return sum(last in text for text in got.values())


@pytest.mark.slow
@pytest.mark.usefixtures("small_heap")
async def test_full_streams_and_many_agents_never_hold_up_the_loop(tmp_path: Path) -> None:
    issues = [make_issue(str(number)) for number in range(2_000)]
    story = Chronicle(*issues, max_concurrent_agents=AGENTS).begin()
    story.advance(1_500)
    story.slow = True
    assert len(story.state.running) == AGENTS
    state_dir, changes, turns, complete = StateDirectory(tmp_path), Changes(interval_s=0.05), Turns(), [0]
    await to_thread.run_sync(state_dir.create)

    end = REPORTS * AGENTS
    last = f'{{"version":{end},"scope":"board"}}'.encode()

    async def read(port: int) -> None:
        complete[0] = await to_thread.run_sync(read_streams, port, last)

    async with serve_http(
        FakeOperator(story=story),
        state_dir,
        server=ServerSettings(port=0),
        environment={"SYMPHONY_OPERATOR_TOKEN": TOKEN},
        changes=changes,
    ) as listeners:
        assert listeners.port is not None
        with blockbuster_ctx("symphony"):  # every blocking call raises
            async with anyio.create_task_group() as watching:
                watching.start_soon(turns.watch)
                async with anyio.create_task_group() as reading:
                    reading.start_soon(read, listeners.port)
                    while len(changes.streams) < MAX_STREAMS:
                        await anyio.lowlevel.checkpoint()
                    for count in range(1, REPORTS + 1):
                        for issue_id in story.state.running:
                            before = story.state
                            story.streams(issue_id, event_count=count, total_tokens=count)
                            changes(before, story.inputs[-1][1], story.state, ())
                            await anyio.lowlevel.checkpoint()
                watching.cancel_scope.cancel()
    assert (complete, changes.version) == ([MAX_STREAMS], end)
    assert turns.longest_s < LONGEST_S

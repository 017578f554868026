import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio import to_thread

from harness.left_runs import leave_run
from symphony.hosts.local import LocalHost
from symphony.runtime.recovery import glance, reap_predecessor
from symphony.runtime.state_dir import LiveRun, StateDirectory

pytestmark = pytest.mark.asyncio

STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
)


@contextmanager
def stubborn(run_id: str | None) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a session of its own that ignores SIGTERM, with or without a mark."""
    environment = {key: value for key, value in os.environ.items() if key != "SYMPHONY_RUN_ID"}
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN],
        env=environment | ({} if run_id is None else {"SYMPHONY_RUN_ID": run_id}),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            yield process
        finally:
            process.kill()


def living(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is None


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(tmp_path)
    made.create()
    return made


async def test_what_carries_the_mark_of_a_left_run_ends_and_nothing_else_does(state: StateDirectory) -> None:
    host = LocalHost()
    with stubborn("left-1") as marked, stubborn("other-1") as other, stubborn(None) as recorded:
        leave_run(state, LiveRun(run_id="left-1", issue_id="1", issue_identifier="SYM-1"))
        agent = host.identify(recorded.pid)
        leave_run(state, LiveRun(run_id="left-2", issue_id="2", issue_identifier="SYM-2", agent=agent))
        assert living(marked)
        assert living(recorded)
        assert await reap_predecessor(state, host, await glance(state, host)) == 2
        await to_thread.run_sync(marked.wait, 5)
        await to_thread.run_sync(recorded.wait, 5)
        assert living(other), "not ours to end"
    assert await to_thread.run_sync(state.left_runs) == ()

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from anyio import to_thread

from symphony.daemon.recovery import reap_predecessor, scan_orphans
from symphony.processes.local import LocalHost
from symphony.processes.table import INSTANCE_VARIABLE

pytestmark = pytest.mark.asyncio

STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
)


@contextmanager
def stubborn(instance: str | None) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a session of its own that ignores SIGTERM, with or without a mark."""
    environment = {key: value for key, value in os.environ.items() if key != INSTANCE_VARIABLE}
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN],
        env=environment | ({} if instance is None else {INSTANCE_VARIABLE: instance}),
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


async def test_what_carries_our_mark_or_stands_in_the_journal_ends_and_nothing_else_does() -> None:
    ours, others = f"of-this-test-{os.getpid()}", f"of-another-{os.getpid()}"
    host = LocalHost(instance=ours)
    with stubborn(ours) as marked, stubborn(others) as other, stubborn(None) as recorded:
        assert living(marked)
        assert living(recorded)
        agent = host.identify(recorded.pid)
        assert agent is not None
        assert await reap_predecessor(host, await scan_orphans(host), agents=[agent]) == 2
        await to_thread.run_sync(marked.wait, 60)
        await to_thread.run_sync(recorded.wait, 60)
        assert living(other), "not ours to end"

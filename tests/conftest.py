"""For every test: code of ours that blocks the event loop fails it.

What may block is listed here with its reason; each entry is bounded to well under a millisecond.
"""

from collections.abc import Iterator

import pytest
import structlog  # noqa: F401 - loading it asks for the current directory: a test by itself does so in the loop
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

from conformance import recorder
from symphony.hosts import processes

settings.register_profile("ours", deadline=None)  # the clock of a busy machine proves nothing
settings.load_profile("ours")

pytest_addoption = recorder.pytest_addoption
pytest_configure = recorder.pytest_configure

PROCESS_TABLE = [
    name for name in vars(processes.ProcessTable) if callable(getattr(processes.ProcessTable, name))
]
MAY_BLOCK = (
    ("subprocess.py", {"_execute_child"}),  # waits for exec, as every way to start a process does
    ("symphony/hosts/processes.py", set(PROCESS_TABLE)),  # /proc is memory
    ("symphony/hosts/groups.py", {"own_group", "members", "kill"}),  # so are control groups
    ("symphony/runtime/state_dir.py", {"remove_run"}),  # once, of what an earlier version left
    ("symphony/agents/codex/preflight.py", {"_check_home"}),  # once, before the first dispatch
    ("coverage/collector.py", {"lock_data"}),  # what measures us, when a thread is new
    ("symphony/workflow/store.py", {"reload_if_changed", "_look"}),  # one stat, now and then one small file
)


@pytest.fixture(autouse=True)
def no_blocking_of_the_loop() -> Iterator[BlockBuster]:
    with blockbuster_ctx("symphony", excluded_modules=["symphony.testing"]) as guard:
        for function in guard.functions.values():
            for file, names in MAY_BLOCK:
                function.can_block_in(file, names)
        guard.functions["os.path.abspath"].deactivate()  # asks for the current directory only
        yield guard

"""For every test: code of ours that blocks the event loop fails it.

What may block is listed here with its reason; each entry is bounded to well under a millisecond.
"""

import atexit
import gc
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from blockbuster import BlockBuster
from hypothesis import settings

from conformance import recorder, skips
from harness.bare import pip_settings
from harness.nightly import NIGHTLY
from harness.rings import mark_variants
from harness.shares import in_shares
from symphony.agents.registry import AGENTS
from symphony.processes import table
from symphony.trackers.registry import TRACKERS

# The clock of a busy machine proves nothing. By day each change is judged by the same examples, and by fewer.
settings.register_profile("ours", deadline=None, derandomize=not NIGHTLY, max_examples=100 if NIGHTLY else 40)
settings.load_profile("ours")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    mark_variants(items)
    chosen = yield  # by their marks, which leaves out some
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = in_shares(items, workers, name=lambda item: item.nodeid)
    return chosen


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The collector of garbage need not look at fourteen thousand tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionstart() -> None:
    _live_in_a_new_home()
    _give_children_default_signals()
    if not (TRACKERS.names and AGENTS.names):
        pytest.exit(
            "the installed package is older than pyproject.toml: run `make gates`, or pip install -e ."
        )


def _live_in_a_new_home() -> None:
    """So that no test depends on what programs, git first of all, find out about the user who runs it."""
    os.environ.update(pip_settings())
    for name in [name for name in os.environ if name.startswith(("GIT_", "XDG_"))]:
        del os.environ[name]
    home = tempfile.TemporaryDirectory(prefix="symphony-home-", ignore_cleanup_errors=True)
    atexit.register(home.cleanup)
    os.environ["HOME"] = home.name


def _give_children_default_signals() -> None:
    """Unless a signal is ignored here, a child begins with its default.

    A shell starts what runs in the background with Ctrl-C ignored, and `nohup` ignores SIGHUP. Such tests go
    on as before: they handle the signal by doing nothing.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


pytest_addoption = recorder.pytest_addoption
pytest_configure = recorder.pytest_configure
pytest_terminal_summary = skips.pytest_terminal_summary

PROCESS_TABLE = [name for name in vars(table.ProcessTable) if callable(getattr(table.ProcessTable, name))]
MAY_BLOCK = (
    ("subprocess.py", {"_execute_child"}),  # waits for exec, as every way to start a process does
    ("symphony/processes/table.py", set(PROCESS_TABLE)),  # /proc is memory
    ("symphony/processes/cgroups.py", {"own_cgroup", "members", "kill"}),  # so are control groups
    ("symphony/agents/codex/preflight.py", {"_check_home"}),  # once, before the first dispatch
    ("coverage/collector.py", {"lock_data"}),  # what measures us, when a thread is new
    ("tests/harness/project.py", {"symphony"}),  # a command that holds up none but itself
    ("symphony/cli/client.py", {"_ask"}),  # as it does in a thread of its own
    ("symphony/cli/commands/clean.py", {"trim_journal"}),  # as that
    ("symphony/config/loader.py", {"reload_if_changed", "_look"}),  # one stat, now and then one small file
)


@pytest.fixture(scope="session", autouse=True)
def no_blocking_of_the_loop() -> Iterator[None]:
    """For all tests together, as fifty functions are replaced."""
    guard = BlockBuster("symphony")
    del guard.functions["os.path.abspath"]  # asks for the current directory only
    for function in guard.functions.values():
        for file, names in MAY_BLOCK:
            function.can_block_in(file, names)
    guard.activate()
    yield
    guard.deactivate()


@pytest.fixture(autouse=True)
def logging_is_as_before() -> Iterator[None]:
    """A command that ran in this process may have set the level of the log."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A path as people may have one too: a command that quotes nothing fails below it."""
    path = tmp_path / "it's here"
    path.mkdir()
    return path


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory for sockets, whose paths have at most 107 bytes; wherever temporary files are."""
    with tempfile.TemporaryDirectory(prefix="it's ", dir="/var/tmp") as place:
        yield Path(place).resolve()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that other users can reach; pytest closes its own whenever another session of it begins."""
    with tempfile.TemporaryDirectory(prefix="symphony-reachable-", dir="/var/tmp") as place:
        path = Path(place).resolve()
        path.chmod(0o755)
        yield path

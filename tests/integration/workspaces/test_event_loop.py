import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from symphony.config import HooksSettings
from symphony.domain import Issue
from symphony.processes.local import LocalHost
from symphony.processes.table import ProcessTable
from symphony.workspaces import WorkspaceManager

pytestmark = pytest.mark.asyncio

_PROCESS_TABLE = {name for name, value in vars(ProcessTable).items() if callable(value)}


@pytest.fixture
def strict_loop() -> Iterator[BlockBuster]:
    """Any blocking call in the event loop raises, but for starting a program and reading the process table.

    asyncio starts programs in the loop too; the process table is memory, not a disk.
    """
    with blockbuster_ctx("symphony") as buster:
        buster.functions["os.read"].can_block_in("subprocess.py", "_execute_child")
        for function in buster.functions.values():
            function.can_block_in("symphony/processes/table.py", _PROCESS_TABLE)
        yield buster


@pytest.mark.usefixtures("strict_loop")
async def test_the_life_of_a_workspace_never_blocks_the_event_loop(
    make_manager: Callable[..., WorkspaceManager], repo: Path, issue: Callable[[str], Issue]
) -> None:
    script = HooksSettings(
        after_create="echo x > new && git add new && git commit -qm new", before_run="true", after_run="false"
    )
    manager = make_manager(repo=str(repo), hooks=script)
    await manager.check_root()
    made = await manager.prepare(issue("MT-1"), None)
    await manager.prepare(issue("MT-1"), 1)
    await manager.verify(made)
    await manager.before_run(made, issue("MT-1"), 1)
    await manager.after_run(made, issue("MT-1"), 1)
    await manager.progress(made)

    assert (await manager.deliver(made)).delivered
    assert (await manager.remove((await manager.records())[0])).removed


@pytest.mark.usefixtures("strict_loop")
async def test_the_life_of_a_process_never_blocks_the_event_loop(tmp_path: Path) -> None:
    host = LocalHost()
    child = await host.spawn(
        ["cat"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "SYMPHONY_RUN_ID": f"strict-{os.getpid()}"},
        stderr_path=tmp_path / "log",
    )
    await child.send(b"hello")

    assert await child.receive() == b"hello"
    assert child.descendants() == host.find_marked([f"strict-{os.getpid()}"]) == (child.identity,)
    assert await host.end(child.descendants(), grace_ms=5_000) == ()
    assert await child.wait() != 0

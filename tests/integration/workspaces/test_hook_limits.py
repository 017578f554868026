"""A hook that runs out of time, whichever it is: nothing of it goes on living."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.shell import word
from symphony.config import HooksSettings
from symphony.domain import Category, Issue
from symphony.workspaces import Removal, WorkspaceError, WorkspaceManager

pytestmark = [pytest.mark.asyncio, pytest.mark.conformance("K-9")]

Make = Callable[..., WorkspaceManager]
MakeIssue = Callable[[str], Issue]
HOOKS = ("after_create", "before_run", "after_run", "before_remove")


def _script(pids: Path) -> str:
    """A hook that hangs, with a child in the background, one in its own session, and one deaf to SIGTERM."""
    note = f"echo $! >> {word(pids)}"
    deaf = "(trap '' TERM; sleep 618; sleep 618)"
    return (
        f"sleep 618 & {note}; setsid sleep 618 & {note}; {deaf} & {note}; echo $$ >> {word(pids)}; sleep 618"
    )


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def _use(manager: WorkspaceManager, issue: Issue, hook: str) -> Removal | None:
    """Bring a workspace as far as the hook; the result of its removal, where it comes to that."""
    made = await manager.prepare(issue, None)
    match hook:
        case "before_run":
            await manager.before_run(made, issue, None)
        case "after_run":
            await manager.after_run(made, issue, None)
        case "before_remove":
            (record,) = await manager.records()
            return await manager.remove(record)
    return None


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_out_of_time_leaves_no_process_and_its_rule_holds(
    make_manager: Make, root: Path, tmp_path: Path, issue: MakeIssue, hook: str
) -> None:
    pids = tmp_path / "pids"
    manager = make_manager(hooks=HooksSettings.model_validate({hook: _script(pids), "timeout_ms": 4_000}))

    if hook in {"after_create", "before_run"}:
        with pytest.raises(WorkspaceError) as caught:
            await _use(manager, issue("MT-1"), hook)
        assert caught.value.failure.category is Category.WORKSPACE_HOOK_TIMEOUT
    else:
        removal = await _use(manager, issue("MT-1"), hook)
        assert removal == (Removal(removed=True) if hook == "before_remove" else None)

    started = [int(line) for line in pids.read_text().split()]
    assert len(started) == 4
    assert [pid for pid in started if _alive(pid)] == []
    assert (root / "MT-1").exists() is (hook in {"before_run", "after_run"})

"""The record of a new, empty workspace is on the disk before anybody works there, and nobody waits twice."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.domain.failures import Category
from symphony.domain.issue import Issue
from symphony.workspace.manager import WorkspaceManager
from symphony.workspace.model import WorkspaceError

pytestmark = pytest.mark.asyncio


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were synced."""
    names: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


async def test_a_new_workspace_is_made_at_once_and_its_record_synced_beside(
    make_manager: Callable[..., WorkspaceManager], issue: Callable[[str], Issue], synced: list[str]
) -> None:
    manager = make_manager()
    made = await manager.prepare(issue("MT-1"), None)
    assert synced == []
    await manager.keep(made)
    assert synced == ["MT-1.json"]
    again = await manager.prepare(issue("MT-1"), None)
    await manager.keep(again)
    assert synced == ["MT-1.json"], "it existed, and is on the disk"


async def test_a_record_that_cannot_be_kept_fails_the_attempt(
    make_manager: Callable[..., WorkspaceManager],
    issue: Callable[[str], Issue],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = make_manager()
    made = await manager.prepare(issue("MT-1"), None)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError) as raised:
        await manager.keep(made)
    assert raised.value.failure.category is Category.WORKSPACE_PREPARE_FAILED
    assert "No space left" in raised.value.failure.message

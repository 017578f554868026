"""Real files: edited in place, replaced by rename, broken, repaired, removed."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from watchfiles import Change

from symphony.config import (
    AGENT_SECTIONS,
    Rejected,
    Reloaded,
    Workflow,
    WorkflowError,
    WorkflowFile,
    WorkflowStore,
    parse_workflow,
)
from symphony.domain import Blame, Category, Failure, SymphonyError

Replace = Callable[[Path, str], None]


def text(turns: object) -> str:
    return f"---\ntracker: {{kind: markdown}}\nagent: {{max_turns: {turns}}}\n---\nTurns: {turns}\n"


def parse(file: WorkflowFile) -> Workflow:
    return parse_workflow(file, environment={}, tracker_kinds=["markdown"], agent_kinds=AGENT_SECTIONS)


def edit(path: Path, content: str) -> None:
    path.write_text(content)


def rename_over(path: Path, content: str) -> None:
    new = path.with_suffix(".swp")
    new.write_text(content)
    new.rename(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "WORKFLOW.md"
    path.write_text(text(3))
    return path


@pytest.fixture
def store(path: Path) -> WorkflowStore:
    return WorkflowStore(path, parse)


@pytest.fixture
def orphan(store: WorkflowStore, path: Path) -> WorkflowStore:
    """A store whose directory is gone."""
    path.unlink()
    path.parent.rmdir()
    return store


both_ways = pytest.mark.parametrize("replace", [edit, rename_over])


def test_an_unchanged_file_is_no_change(store: WorkflowStore) -> None:
    assert store.current().settings.agent.max_turns == 3
    assert store.reload_if_changed() is None
    assert store.failures == ()


@pytest.mark.conformance("W-2")
@both_ways
def test_settings_and_prompt_change_together(store: WorkflowStore, path: Path, replace: Replace) -> None:
    replace(path, text(4))

    answer = store.reload_if_changed()

    assert answer == Reloaded(workflow=store.current())
    assert store.current().settings.agent.max_turns == 4
    assert store.current().template.source == "Turns: 4"
    assert store.reload_if_changed() is None


@pytest.mark.conformance("W-2")
def test_a_file_of_a_config_map_is_reloaded(tmp_path: Path) -> None:
    """Kubernetes leaves the link, and replaces another one that it leads through."""

    def publish(turns: int) -> None:
        (version := tmp_path / f"..{turns}").mkdir()
        (version / "WORKFLOW.md").write_text(text(turns))
        (new := tmp_path / "..data_tmp").symlink_to(version.name)
        new.rename(tmp_path / "..data")

    publish(3)
    (path := tmp_path / "WORKFLOW.md").symlink_to("..data/WORKFLOW.md")
    store = WorkflowStore(path, parse)
    publish(4)
    assert isinstance(store.reload_if_changed(), Reloaded)
    assert store.current().settings.agent.max_turns == 4


@pytest.mark.conformance("W-3")
@both_ways
def test_a_broken_file_is_told_once_and_changes_nothing(
    store: WorkflowStore, path: Path, replace: Replace
) -> None:
    replace(path, text(0))

    answer = store.reload_if_changed()

    assert isinstance(answer, Rejected)
    assert [failure.message for failure in answer.failures] == ["agent.max_turns must be greater than 0"]
    assert store.failures == answer.failures
    assert store.current().settings.agent.max_turns == 3
    assert store.reload_if_changed() is None
    replace(path, text(0))
    assert store.reload_if_changed() is None
    assert store.failures == answer.failures


@both_ways
def test_another_mistake_is_told_again(store: WorkflowStore, path: Path, replace: Replace) -> None:
    for turns in ("0", "-1", "many"):
        replace(path, text(turns))
        assert isinstance(store.reload_if_changed(), Rejected)


@pytest.mark.conformance("W-3")
@both_ways
def test_a_repaired_file_is_in_force_again(store: WorkflowStore, path: Path, replace: Replace) -> None:
    replace(path, text(0))
    store.reload_if_changed()
    replace(path, text(3))

    assert isinstance(store.reload_if_changed(), Reloaded)
    assert store.failures == ()


@pytest.mark.conformance("W-3")
def test_a_vanished_file_is_told_once_and_its_return_is_a_reload(store: WorkflowStore, path: Path) -> None:
    content = path.read_text()
    path.unlink()

    answer = store.reload_if_changed()
    assert isinstance(answer, Rejected)
    assert [failure.category for failure in answer.failures] == [Category.MISSING_WORKFLOW_FILE]
    assert store.failures == answer.failures
    assert store.reload_if_changed() is None
    assert store.current().settings.agent.max_turns == 3

    path.write_text(content)
    assert isinstance(store.reload_if_changed(), Reloaded)
    assert store.failures == ()
    path.unlink()
    assert isinstance(store.reload_if_changed(), Rejected)


def test_a_settled_file_is_not_read_again(path: Path) -> None:
    parsed: list[int] = []

    def counting(file: WorkflowFile) -> Workflow:
        parsed.append(len(file.data))
        return parse(file)

    later = path.stat().st_ctime_ns + 10**10
    store = WorkflowStore(path, counting, wall_ns=lambda: later)
    assert store.reload_if_changed() is None
    assert store.reload_if_changed() is None
    assert parsed == [path.stat().st_size]


@pytest.mark.conformance("W-2")
def test_a_second_write_within_one_tick_of_the_clock_is_seen(store: WorkflowStore, path: Path) -> None:
    before = path.stat()
    path.write_text(text(9))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert path.stat().st_size == before.st_size
    assert isinstance(store.reload_if_changed(), Reloaded)
    assert store.current().settings.agent.max_turns == 9


def test_touching_the_file_is_no_change(path: Path) -> None:
    later = path.stat().st_ctime_ns + 10**12
    store = WorkflowStore(path, parse, wall_ns=lambda: later)
    os.utime(path)
    assert store.reload_if_changed() is None


def test_what_the_composer_refuses_is_rejected_too(path: Path) -> None:
    failure = Failure(category=Category.INVALID_TRACKER_CONFIG, blame=Blame.CONFIG, message="no such folder")
    refusing = False

    def with_adapter(file: WorkflowFile) -> Workflow:
        if refusing:
            raise SymphonyError(failure)
        return parse(file)

    store = WorkflowStore(path, with_adapter)
    refusing = True
    path.write_text(text(5))

    assert store.reload_if_changed() == Rejected(failures=(failure,))
    assert store.current().settings.agent.max_turns == 3


def test_a_store_begins_with_a_good_file(path: Path) -> None:
    path.write_text(text(0))
    with pytest.raises(WorkflowError, match="must be greater than 0"):
        WorkflowStore(path, parse)
    path.unlink()
    with pytest.raises(WorkflowError, match="No such file"):
        WorkflowStore(path, parse)


@pytest.mark.conformance("W-2")
@both_ways
@pytest.mark.asyncio
async def test_a_change_gives_a_hint(store: WorkflowStore, path: Path, replace: Replace) -> None:
    hints = store.changes()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_edit_until_seen, store, path, replace)
            await anext(hints)
            tasks.cancel_scope.cancel()
        await hints.aclose()

    assert isinstance(store.reload_if_changed(), Reloaded)


async def _edit_until_seen(_store: WorkflowStore, path: Path, replace: Replace) -> None:
    """When the watch is in place cannot be known from outside, so the edit is repeated until it is seen."""
    turns = 10
    while True:
        replace(path, text(turns))
        turns += 1
        await anyio.sleep(0.1)


@pytest.mark.asyncio
async def test_without_a_directory_there_are_no_hints(orphan: WorkflowStore) -> None:
    with anyio.fail_after(60):
        assert [hint async for hint in orphan.changes()] == []


@pytest.mark.asyncio
async def test_hints_end_with_the_watch(store: WorkflowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ending(*_: object, **__: object) -> AsyncIterator[set[tuple[Change, str]]]:
        yield set()
        yield set()  # nothing was written in the second round

    monkeypatch.setattr("watchfiles.awatch", ending)
    assert [hint async for hint in store.changes()] == [None]


@pytest.mark.asyncio
async def test_watching_ends_when_its_task_is_cancelled(store: WorkflowStore) -> None:
    async def watch() -> None:
        async for _ in store.changes():
            pass

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_a_worker_gets_the_marked_sections_as_the_file_has_them(store: WorkflowStore) -> None:
    front = store.current().settings.for_workers()
    assert "tracker" not in front
    assert front["agent"]["max_turns"] == store.current().settings.agent.max_turns

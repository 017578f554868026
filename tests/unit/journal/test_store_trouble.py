"""A file that fails while it is open: nothing is raised, and no record is lost that can be kept."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from harness.journalling import claim, event, opened, run
from symphony.journal import store
from symphony.journal.database import Database
from symphony.journal.model import ClaimReleased, HealthState, JournalStatus, Retention, TrimResult
from symphony.journal.reader import open_reader
from symphony.journal.store import Backlog, Journal


@contextmanager
def locked(path: Path) -> Iterator[None]:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    yield
    holder.execute("ROLLBACK")
    holder.close()


def state(journal: Journal) -> HealthState:
    return journal.health.state


def messages(path: Path) -> list[str]:
    with open_reader(path) as reader:
        return [found.event.message for found in reader.events("SYM-1")]


@pytest.mark.asyncio
async def test_records_that_could_not_be_written_are_written_later_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    journal.put(claim(1), claim(2), event(1))
    await journal.flush()
    with locked(path):
        journal.put(ClaimReleased(issue_id="id-1"), event(2))
        await journal.flush()
        assert state(journal) is HealthState.MEMORY
        assert await journal.trim(Retention()) == TrimResult()
        journal.put(claim(1, attempt=3), event(3))
    await journal.flush()
    assert state(journal) is HealthState.OK
    await journal.close()
    assert await asyncio.to_thread(messages, path) == ["message 1", "message 2", "message 3"]
    again = await opened(path)
    assert again.recovered_state.claims == (claim(1, attempt=3), claim(2))
    await again.close()


@pytest.mark.asyncio
async def test_writing_is_retried_and_the_health_reported(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    states: asyncio.Queue[HealthState] = asyncio.Queue()

    def tell(health: JournalStatus) -> None:
        states.put_nowait(health.state)

    journal = await opened(path, retry_s=0.01, on_health=tell)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.run)
        with locked(path):
            journal.put(event(1))
            assert await states.get() is HealthState.MEMORY
        assert await states.get() is HealthState.OK
        tasks.cancel_scope.cancel()
    await journal.close()
    assert await asyncio.to_thread(messages, path) == ["message 1"]


@pytest.mark.asyncio
async def test_a_file_that_is_damaged_while_open_is_replaced_with_the_present_records(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    journal.put(claim(1), run(1), *(event(number) for number in range(2_000)))
    await journal.close()
    journal = await opened(path)
    journal.snapshot_from(lambda: (claim(1), claim(2), run(1)))
    await asyncio.to_thread(spoil, path)
    journal.put(claim(2), *(event(number, issue=2) for number in range(2_000)))
    await journal.flush()
    await journal.flush()
    assert state(journal) is HealthState.OK
    assert any("damaged" in failure.message for failure in journal.take_notices())
    await journal.close()
    again = await opened(path)
    remembered = again.recovered_state
    assert (remembered.claims, remembered.live_runs) == ((claim(1), claim(2)), (run(1),))
    await again.close()


def spoil(path: Path) -> None:
    """Everything behind the first page; a write of somebody else makes us read the file again."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("INSERT INTO days VALUES ('2026-01-01', 1)")
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xff" * (path.stat().st_size - 4_096))
    other.close()


@pytest.mark.asyncio
async def test_records_without_room_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path, backlog=Backlog(max_event_chars=3_000))
    with locked(path):
        journal.put(*(event(number, message="x" * 700) for number in range(8)))
        await journal.flush()
    await journal.flush()
    (notice,) = journal.take_notices()
    assert notice.message == "the journal could not keep 5 records while it was unusable"
    await journal.close()
    assert len(await asyncio.to_thread(messages, path)) == 3


@pytest.mark.asyncio
async def test_a_record_that_cannot_be_encoded_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    journal.put(run(2**70), claim(1), event(2**70), event(2))
    journal.put(run(ended_wall_ms=2**63))
    await journal.flush()
    assert state(journal) is HealthState.OK
    messages = " ".join(failure.message for failure in journal.take_notices())
    assert messages.count("left out a RunRecord") == 2
    assert messages.count("left out an event") == 1
    await journal.close()
    again = await opened(path)
    assert again.recovered_state.claims == (claim(1),)
    await again.close()


@pytest.mark.asyncio
async def test_an_unexpected_error_neither_ends_the_writer_nor_is_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await opened(tmp_path / "journal.db")
    with monkeypatch.context() as broken:
        broken.setattr(Database, "write", lambda *_, **__: 1 / 0)
        journal.put(claim(1))
        await journal.flush()
        assert journal.health.failure is not None
        assert "division by zero" in journal.health.failure.message
    await journal.flush()
    assert state(journal) is HealthState.OK
    with monkeypatch.context() as broken:
        broken.setattr(store, "trim_steps", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await journal.trim(Retention())
    await journal.close()
    again = await opened(tmp_path / "journal.db")
    assert again.recovered_state.claims == (claim(1),)
    await again.close()


@pytest.mark.asyncio
async def test_a_cancelled_flush_loses_nothing(tmp_path: Path) -> None:
    journal = await opened(tmp_path / "journal.db")
    waiting = asyncio.create_task(journal.flush())
    await asyncio.sleep(0)
    waiting.cancel()
    journal.put(claim(1))
    await asyncio.gather(journal.flush(), journal.close(), journal.flush())
    again = await opened(tmp_path / "journal.db")
    assert again.recovered_state.claims == (claim(1),)
    await again.close()


@pytest.mark.asyncio
async def test_a_file_that_is_opened_anew_and_fails_at_once_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    with monkeypatch.context() as broken:
        broken.setattr(Database, "write", lambda *_, **__: 1 / 0)
        journal.put(claim(1))
        await journal.flush()  # to the open file, which is closed
        await journal.flush()  # to one that was opened anew
        assert state(journal) is HealthState.MEMORY
    await journal.flush()
    assert state(journal) is HealthState.OK
    await journal.close()
    again = await opened(path)
    assert again.recovered_state.claims == (claim(1),)
    await again.close()


@pytest.mark.asyncio
async def test_a_flush_just_before_the_end_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = await opened(tmp_path / "journal.db")
    entered, go_on = threading.Event(), threading.Event()
    write = Database.write

    def slow(*arguments: Any, **named: Any) -> Any:
        entered.set()
        go_on.wait()
        return write(*arguments, **named)

    monkeypatch.setattr(Database, "write", slow)
    journal.put(claim(1))
    first = asyncio.create_task(journal.flush())
    await asyncio.to_thread(entered.wait)
    asked = [asyncio.ensure_future(waited) for waited in (journal.flush(), journal.close(), journal.flush())]
    await asyncio.sleep(0)
    journal.put(claim(2))
    go_on.set()
    await asyncio.gather(first, *asked)
    again = await opened(tmp_path / "journal.db")
    assert again.recovered_state.claims == (claim(1), claim(2))
    await again.close()


@pytest.mark.asyncio
async def test_a_disk_that_hangs_is_abandoned_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_CLOSE_S", 0.01)
    journal = await opened(tmp_path / "journal.db")
    go_on = threading.Event()

    def hangs(database: Database, *_: object, **__: object) -> tuple[()]:
        go_on.wait()
        database.close()  # the end of the process would
        return ()

    monkeypatch.setattr(Database, "write", hangs)
    journal.put(claim(1))
    await journal.close()
    go_on.set()


@pytest.mark.asyncio
async def test_a_trim_ends_when_the_file_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    journal.put(*(run(number, ended_wall_ms=1, outcome="failed") for number in range(100)))
    await journal.flush()
    trimming = asyncio.create_task(journal.trim(Retention()))
    for file in (path, path.with_name("journal.db-wal"), path.with_name("journal.db-shm")):
        file.unlink(missing_ok=True)
    path.mkdir()
    assert await trimming == TrimResult()
    assert state(journal) is HealthState.MEMORY
    await journal.close()

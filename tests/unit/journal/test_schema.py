"""Each version that was ever released has its file in `schemas`, with rows: never change one."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.journalling import claim, full_claim, opened, run
from symphony.journal.schema import STEPS, VERSION, difference, migrate, shape
from symphony.scheduler.inputs import Spent

SCHEMAS = Path(__file__).with_name("schemas")


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def test_every_version_has_its_file() -> None:
    assert sorted(path.name for path in SCHEMAS.iterdir()) == [
        f"v{number + 1}.sql" for number in range(VERSION)
    ]


@pytest.mark.parametrize("number", range(1, VERSION + 1))
def test_every_past_schema_becomes_the_newest(connection: sqlite3.Connection, number: int) -> None:
    connection.executescript((SCHEMAS / f"v{number}.sql").read_text("utf-8"))
    assert migrate(connection) == number
    assert difference(connection) is None
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    assert migrate(fresh) == 0
    assert shape(connection) == shape(fresh)
    fresh.close()
    assert migrate(connection) == VERSION


@pytest.mark.parametrize("number", range(1, VERSION + 1))
@pytest.mark.asyncio
async def test_every_past_file_is_remembered(tmp_path: Path, number: int) -> None:
    path = tmp_path / "journal.db"
    past = sqlite3.connect(path)
    past.executescript((SCHEMAS / f"v{number}.sql").read_text("utf-8"))
    past.close()
    journal = await opened(path)
    assert journal.take_notices() == ()
    remembered = await journal.remembered()
    assert remembered.claims == (claim(1), full_claim())
    assert remembered.live_runs == (run(1),)
    assert remembered.spent == {"id-1": Spent(tokens=5, turns=2)}
    assert remembered.days == {"2026-11-21": 7}
    assert remembered.settings == {"paused": "true"}
    await journal.close()


def test_steps_are_taken_from_where_the_file_is_and_all_or_none(connection: sqlite3.Connection) -> None:
    def second(file: sqlite3.Connection) -> None:
        file.execute("ALTER TABLE days ADD COLUMN turns INTEGER")

    def broken(file: sqlite3.Connection) -> None:
        file.execute("CREATE TABLE half (a)")
        file.execute("no SQL")

    assert migrate(connection) == 0
    before = shape(connection)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (*STEPS, second, broken))
    assert shape(connection) == before
    assert migrate(connection, (*STEPS, second)) == len(STEPS)
    assert "turns" in shape(connection)["days"]
    assert migrate(connection) == len(STEPS) + 1, "a newer file is left as it is"
    assert difference(connection) == "days"


def test_what_somebody_added_is_no_difference(connection: sqlite3.Connection) -> None:
    migrate(connection)
    connection.execute("CREATE INDEX for_a_report ON runs (outcome)")
    assert difference(connection) is None

import asyncio
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, structs

from harness.journalling import (
    NOW,
    claim,
    comment,
    event,
    full_claim,
    opened,
    run,
    skills,
    with_claim,
    written,
)
from symphony.journal.database import VERSION
from symphony.journal.model import RecoveredState, Retention, RunRecord, SkillUse, UnusableError
from symphony.journal.reader import JournalReader, NumberedEvent, SkillReport, checkup, open_reader


def use(name: str, sha256: str | None = "1", *, listed: bool = True, seen: bool = False) -> SkillUse:
    return SkillUse(name=name, path=f"/{name}", sha256=sha256, listed=listed, seen=seen)


def messages(reader: JournalReader, after_id: int, run_id: str | None = None) -> list[str]:
    return messages_of(reader.events("SYM-1", after_id=after_id, run_id=run_id))


def messages_of(found: tuple[NumberedEvent, ...]) -> list[str]:
    return [numbered.event.message for numbered in found]


def test_runs_of_one_issue_or_of_all_come_newest_first(tmp_path: Path) -> None:
    path = written(tmp_path / "j.db", run(1), run(2), run(3, ended_wall_ms=NOW, outcome="failed"))
    with open_reader(path) as reader:
        assert [found.run_id for found in reader.runs()] == ["r-3", "r-2", "r-1"]
        assert [found.run_id for found in reader.runs(limit=1)] == ["r-3"]
        assert reader.runs("SYM-2") == (run(2),)
        assert reader.runs("SYM-\ud800") == ()


def test_a_run_is_found_as_it_was_written_last(tmp_path: Path) -> None:
    path = written(tmp_path / "j.db", run(1))
    ended = renamed(run(1, ended_wall_ms=NOW, outcome="failed"), "OPS-9")
    written(path, ended)
    with open_reader(path) as reader:
        assert reader.runs("OPS-9") == reader.runs() == (ended,)
        columns = reader.connection.execute("SELECT ended_wall_ms, outcome FROM runs").fetchall()
        assert [tuple(row) for row in columns] == [(NOW, "failed")]


def test_claims_and_comments_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "j.db", full_claim(), claim(1), comment(1), comment(2))
    with open_reader(path) as reader:
        assert reader.claims() == (claim(1), full_claim())
        assert reader.comments() == (comment(1), comment(2))
        assert reader.comments("id-2") == (comment(2),)


def test_new_events_are_read_by_id_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with asyncio.Runner() as runner:
        journal = runner.run(opened(path))
        journal.put(event(1), event(2, run_id=None), event(3, issue=2))
        runner.run(journal.flush())
        with open_reader(path) as reader:
            assert messages(reader, 0) == ["message 1", "message 2"]
            assert messages(reader, 0, "r-1") == ["message 1"]
            last = reader.events("SYM-1")[-1].id
            journal.put(event(4))
            runner.run(journal.flush())
            assert messages(reader, last) == ["message 4"]
            assert messages_of(reader.latest_events("SYM-1", limit=2)) == ["message 2", "message 4"]
            assert messages_of(reader.latest_events("SYM-1", run_id="r-1")) == ["message 1", "message 4"]
        runner.run(journal.close())


def test_event_ids_of_a_new_file_follow_those_of_the_old_one(tmp_path: Path) -> None:
    path = written(tmp_path / "j.db", *(event(number) for number in range(20)))
    with open_reader(path) as reader:
        known = reader.events("SYM-1")[-1].id
    path.unlink()
    written(path, event(99), now_wall_ms=NOW + 1_000)
    with open_reader(path) as reader:
        assert messages(reader, known) == ["message 99"]


def test_a_report_counts_the_outcomes_of_each_skill(tmp_path: Path) -> None:
    path = written(
        tmp_path / "j.db",
        run(1, ended_wall_ms=NOW, outcome="succeeded"),
        run(2, ended_wall_ms=NOW, outcome="failed"),
        run(3),
        skills(1, use("a", "1", seen=True), use("b")),
        skills(2, use("a", "2"), use("c", None, listed=False)),
        skills(3, use("a", "2", seen=True)),
        skills(4, use("a", "2")),
    )
    with open_reader(path) as reader:
        found = {report.name: report for report in reader.skills_report()}
        assert list(found) == ["a", "b", "c"]
        assert found["a"] == SkillReport(
            name="a",
            listed=4,
            seen=2,
            outcomes={"failed": 1, "running": 1, "succeeded": 1, "unknown": 1},
            seen_outcomes={"running": 1, "succeeded": 1},
            versions=2,
            last_used_wall_ms=NOW + 3,
        )
        assert (found["c"].listed, found["c"].versions, found["c"].outcomes) == (0, 0, {})
        assert [report.name for report in reader.skills_report(since_wall_ms=NOW + 3)] == ["a"]
        assert reader.expired_runs(Retention(max_age_ms=-1), now_wall_ms=NOW) == ("r-1", "r-2")


def test_a_row_that_does_not_decode_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "j.db", claim(1), claim(2), run(1), event(1), comment(1))
    change(
        path,
        "UPDATE claims SET record = '{' WHERE issue_id = 'id-1'",
        "UPDATE runs SET record = x'ff00'",
        "UPDATE events SET at_wall_ms = 'soon'",
        "UPDATE comments SET at_wall_ms = 1.5",
    )
    with open_reader(path) as reader:
        for _ in range(2):
            assert reader.recovered_state() == RecoveredState(claims=(claim(2),)), (
                "and the file stays as it is"
            )
        assert reader.claims() == (claim(2),)
        assert (reader.runs(), reader.events("SYM-1"), reader.comments()) == ((), (), ())


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statements", "why", "hint"),
    [
        (["PRAGMA application_id = 7"], "another program", "move"),
        (["PRAGMA user_version = 99"], "a newer symphony wrote it (schema 99", "upgrade symphony"),
        (["PRAGMA user_version = 0"], "damaged (schema 0 is not known)", "the next start"),
    ],
)
def test_an_unreadable_journal_is_reported_with_a_hint(
    tmp_path: Path, statements: list[str], why: str, hint: str
) -> None:
    path = written(tmp_path / "j.db")
    change(path, *statements)
    with pytest.raises(UnusableError) as caught, open_reader(path):
        pass
    assert why in caught.value.failure.message
    assert hint in (caught.value.failure.hint or "")
    found = checkup(path)
    assert found.present
    assert found.failure == caught.value.failure


def test_a_missing_journal_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with pytest.raises(UnusableError, match="there is none"), open_reader(path):
        pass
    found = checkup(path)
    assert (found.present, found.failure, found.bytes) == (False, None, 0)


def test_a_checkup_reports_size_version_and_the_newest_record(tmp_path: Path) -> None:
    path = written(tmp_path / "j.db", claim(1), run(1), run(5), event(3))
    (tmp_path / "j.db.damaged-20260101T000000Z").write_bytes(b"x")
    (tmp_path / "j.db.damaged-20260101T000000Z-wal").write_bytes(b"x")
    found = checkup(path)
    assert (found.failure, found.version) == (None, VERSION)
    assert (found.claims, found.runs, found.events) == (1, 2, 1)
    assert found.newest_wall_ms == NOW + 5
    assert found.bytes >= path.stat().st_size > 0
    assert [aside.name for aside in found.aside] == ["j.db.damaged-20260101T000000Z"]
    assert checkup(written(tmp_path / "empty.db")).newest_wall_ms is None


def test_a_checkup_finds_damage(tmp_path: Path) -> None:
    path = written(tmp_path / "j.db", *(event(number) for number in range(300)))
    change(path, "DROP TABLE days")
    found = checkup(path)
    assert found.failure is not None
    assert "damaged (days is missing" in found.failure.message
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
    path.write_bytes(raw)
    found = checkup(path)
    assert found.failure is not None
    assert "damaged" in found.failure.message
    path.write_bytes(b"no database" * 100)
    found = checkup(path)
    assert found.failure is not None
    assert "damaged" in found.failure.message


def renamed(record: Any, identifier: str, **changes: Any) -> Any:
    change = structs.replace if isinstance(record, Struct) else replace
    return change(record, issue_identifier=identifier, **changes)


HISTORIES: dict[str, tuple[Any, ...]] = {
    "runs and events": (
        run(1),
        event(1),
        renamed(run(3), "OPS-9", issue_id="id-1"),
        renamed(event(3), "OPS-9"),
    ),
    "events and no run": (event(1, run_id=None), renamed(event(3, run_id=None), "OPS-9")),
    "a move, and nothing since": (
        run(1),
        event(1),
        event(3),
        with_claim(claim(1), issue=replace(claim(1).claim.issue, identifier="OPS-9")),
    ),
}


@pytest.mark.parametrize("records", HISTORIES.values(), ids=HISTORIES)
def test_an_issue_has_one_history_under_all_its_identifiers(tmp_path: Path, records: Any) -> None:
    path = written(tmp_path / "j.db", *records, run(2), event(2, issue=2))
    runs = sum(isinstance(record, RunRecord) for record in records)
    with open_reader(path) as reader:
        for identifier in ("SYM-1", "OPS-9"):
            assert reader.issue_id(identifier) == "id-1"
            assert messages_of(reader.events(identifier)) == ["message 1", "message 3"]
            assert messages_of(reader.latest_events(identifier, limit=1)) == ["message 3"]
            assert len(reader.runs(identifier)) == runs
        assert messages_of(reader.events("SYM-2")) == ["message 2"]


@pytest.mark.parametrize("is_known_by", ["a run", "an event", "a claim"])
def test_an_identifier_that_another_issue_has_now_shows_that_one_alone(
    tmp_path: Path, is_known_by: str
) -> None:
    second = {
        "a run": renamed(run(2), "SYM-1"),
        "an event": renamed(event(2, issue=2), "SYM-1"),
        "a claim": with_claim(claim(2), issue=replace(claim(2).claim.issue, identifier="SYM-1")),
    }[is_known_by]
    moved = renamed(event(3), "OPS-9")
    path = written(tmp_path / "j.db", run(1), event(1), moved, second)
    with open_reader(path) as reader:
        assert reader.issue_id("SYM-1") == "id-2"
        assert {one.issue_id for one in reader.runs("SYM-1")} <= {"id-2"}
        assert {one.event.issue_id for one in reader.events("SYM-1")} <= {"id-2"}
        assert messages_of(reader.events("OPS-9")) == ["message 1", "message 3"]
        assert messages_of(reader.latest_events("SYM-1", issue_id="id-1")) == ["message 1", "message 3"]


def test_the_history_of_an_issue_is_found_by_indexes(tmp_path: Path) -> None:
    path = written(tmp_path / "j.db", run(1), event(1))
    queries = list[str]()
    with open_reader(path) as reader:
        reader.connection.set_trace_callback(queries.append)
        reader.runs("SYM-1")
        reader.events("SYM-1")
        reader.latest_events("SYM-1")
        reader.connection.set_trace_callback(None)
        plans = [
            str(row[3])
            for query in queries
            if query.lstrip().startswith("SELECT")
            for row in reader.connection.execute(f"EXPLAIN QUERY PLAN {query}")
        ]
    assert sum("_by_issue_id (issue_id=?" in plan for plan in plans) == 3
    assert not [plan for plan in plans if re.match(r"SCAN (runs|events)\b", plan)]

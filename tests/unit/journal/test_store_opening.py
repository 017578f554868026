import json
import os
import sqlite3
from pathlib import Path

import pytest

from harness.journalling import NOW, claim, event, full_claim, opened, run
from kit.facts import changed
from symphony.domain import (
    Blame,
    Category,
    DeliveredBranch,
    Failure,
    RunFacts,
    Spent,
    Tokens,
    Usage,
    WorkSize,
)
from symphony.journal.model import (
    HealthState,
    IssueSpent,
    Record,
    RecoveredState,
    ResultRecord,
    SettingRecord,
    SkillsRecord,
)
from symphony.journal.store import Journal
from symphony.scheduler import IssueResult, Thread

FLAT_CLAIMS = "UPDATE claims SET record = json_patch(record -> '$.claim', json_remove(record, '$.claim'))"
"""Claims as versions before the fifth have them."""
CONTENT: tuple[Record, ...] = (claim(1), run(1), *(event(number) for number in range(300)))


async def failure_of(journal: Journal) -> Failure:
    """Why the journal keeps things in memory; it takes what is put all the same, and is closed."""
    assert journal.health.state is HealthState.MEMORY
    assert journal.health.failure is not None
    assert journal.health.failure.category is Category.JOURNAL
    assert journal.health.failure.hint
    assert journal.recovered_state == RecoveredState()
    journal.put(claim(2), event(1))
    await journal.flush()
    assert journal.health.state is HealthState.MEMORY
    await journal.close()
    return journal.health.failure


def state(journal: Journal) -> HealthState:
    return journal.health.state


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def overwrite(path: Path, begin: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(content)


def zero_the_end(path: Path) -> None:
    half = path.stat().st_size // 2
    overwrite(path, half, bytes(half))


def lose_the_main_file(path: Path) -> None:
    path.with_name(f"{path.name}-wal").write_bytes(b"left")
    path.unlink()


DAMAGES = {
    "no database": lambda path: overwrite(path, 0, b"garbage garbage garbage"),
    "short": lambda path: cut(path, 60),
    "only the header": lambda path: cut(path, 100),
    "one page": lambda path: cut(path, 4_096),
    "half": lambda path: cut(path, path.stat().st_size // 2),
    "zeroes at the end": zero_the_end,
    "table missing": lambda path: change(path, "DROP TABLE claims"),
    "another schema": lambda path: change(path, "PRAGMA user_version = 0"),
    "page size": lambda path: overwrite(path, 16, b"\x07\x07"),
    "format to write": lambda path: overwrite(path, 18, b"\x03"),
    "main file missing": lose_the_main_file,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.asyncio
async def test_a_damaged_journal_is_set_aside_and_replaced(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal.db"
    await opened_and_closed(path)
    DAMAGES[damage](path)
    journal = await opened(path)
    assert journal.health.state is HealthState.OK
    (notice,) = journal.take_notices()
    assert "damaged" in notice.message
    assert "journal.db.damaged-20231114T221320Z" in (notice.hint or "")
    assert journal.take_notices() == ()
    assert journal.recovered_state == RecoveredState()
    journal.put(claim(3))
    await journal.close()
    assert any(".damaged-20231114T221320Z" in name for name in names(tmp_path))
    again = await opened(path)
    assert again.recovered_state.claims == (claim(3),)
    assert again.take_notices() == ()
    await again.close()


async def opened_and_closed(path: Path) -> None:
    journal = await opened(path)
    journal.put(*CONTENT)
    await journal.close()


def names(place: Path) -> list[str]:
    return sorted(found.name for found in place.iterdir())


@pytest.mark.asyncio
async def test_only_the_newest_damaged_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for second in range(9):
        path.write_bytes(b"garbage %d" % second)
        journal = await opened(path, now_wall_ms=NOW + 1_000 * (second // 2))
        await journal.close()
    kept = [name.partition("-")[2] for name in names(tmp_path) if "damaged" in name]
    assert kept == [f"20231114T2213{end}" for end in ("22Z", "22Z.2", "23Z", "23Z.2", "24Z")]
    assert (tmp_path / f"journal.db.damaged-{kept[-1]}").read_bytes() == b"garbage 8"


@pytest.mark.asyncio
async def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    journal.put(*CONTENT)
    await journal.close()
    for statement in (
        "ALTER TABLE skill_runs DROP COLUMN document",
        "DROP TABLE told_comments",
        "DROP TABLE jobs",
        "ALTER TABLE skills_notes ADD COLUMN said INTEGER NOT NULL DEFAULT 0",
        "DROP INDEX runs_by_issue_id",
        "DROP INDEX events_by_issue_id",
        FLAT_CLAIMS,
        "PRAGMA user_version = 1",
    ):
        change(path, statement)
    again = await opened(path)
    assert again.health.state is HealthState.OK
    assert [one.claim.issue.id for one in again.recovered_state.claims] == ["id-1"]
    again.put(SkillsRecord(run_id="r-9", commit=None, skills=(), document="{}"))
    await again.close()
    assert names(tmp_path) == ["journal.db"], "nothing was set aside"
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT document FROM skill_runs").fetchall() == [("{}",)]
    assert connection.execute("SELECT count(*) FROM told_comments").fetchall() == [(0,)]
    assert connection.execute("SELECT count(*) FROM jobs").fetchall() == [(0,)]
    assert connection.execute("SELECT count(*) FROM skills_notes").fetchall() == [(0,)]
    connection.close()


@pytest.mark.parametrize(
    ("statement", "why", "hint"),
    [
        ("PRAGMA application_id = 7", "the database of another program", "move"),
        (
            "PRAGMA user_version = 99",
            "a newer symphony wrote it (schema 99, this one knows 5)",
            "upgrade symphony",
        ),
    ],
)
@pytest.mark.asyncio
async def test_a_file_of_another_program_or_a_newer_version_is_not_touched(
    tmp_path: Path, statement: str, why: str, hint: str
) -> None:
    path = tmp_path / "journal.db"
    await opened_and_closed(path)
    change(path, statement)
    before = path.read_bytes()
    failure = await failure_of(await opened(path))
    assert why in failure.message
    assert hint in (failure.hint or "")
    assert path.read_bytes() == before
    assert names(tmp_path) == ["journal.db"]


@pytest.mark.asyncio
async def test_a_newer_version_in_the_write_ahead_log_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await opened_and_closed(path)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA user_version = 99")
    failure = await failure_of(await opened(path))
    writer.close()
    assert "a newer symphony wrote it" in failure.message


@pytest.mark.asyncio
async def test_a_directory_a_link_and_a_fifo_are_refused(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "fifo")
    for name in ("directory", "link", "fifo"):
        failure = await failure_of(await opened(tmp_path / name))
        assert "not a regular file" in failure.message
    assert names(tmp_path) == ["directory", "fifo", "link"]


@pytest.mark.asyncio
async def test_the_file_of_another_user_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    await opened_and_closed(path)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    failure = await failure_of(await opened(path))
    assert f"belongs to another user (uid {mine})" in failure.message
    assert f"chown {mine + 1} " in (failure.hint or "")


@pytest.mark.asyncio
async def test_without_a_writable_directory_the_journal_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    failure = await failure_of(await opened(tmp_path / "file" / "journal.db"))
    assert "File exists" in failure.message


@pytest.mark.asyncio
async def test_a_file_that_other_users_can_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await opened_and_closed(path)
    path.chmod(0o644)
    await opened_and_closed(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_leftovers_of_a_killed_start_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    (tmp_path / ".journal.db.new").write_bytes(b"half")
    (tmp_path / ".journal.db.new-journal").write_bytes(b"half")
    path.write_bytes(b"")
    (tmp_path / "journal.db-wal").write_bytes(b"")
    await opened_and_closed(path)
    assert names(tmp_path) == ["journal.db"]


@pytest.mark.asyncio
async def test_a_lock_of_another_process_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await opened_and_closed(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    journal = await opened(path)
    assert journal.health.failure is not None
    assert "another process keeps it locked" in journal.health.failure.message
    journal.snapshot_from(lambda: (claim(2), run(2)))
    journal.put(claim(2), run(2))
    await journal.flush()
    assert state(journal) is HealthState.MEMORY
    holder.execute("ROLLBACK")
    holder.close()
    await journal.flush()
    assert state(journal) is HealthState.OK
    await journal.close()
    again = await opened(path)
    assert again.recovered_state.claims == (claim(2),), "the claims of now, and of nobody before"
    assert again.recovered_state.live_runs == (run(1), run(2))
    await again.close()


@pytest.mark.asyncio
async def test_rows_that_do_not_decode_are_skipped_and_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    journal.put(claim(1), claim(2), run(1), run(2), SettingRecord(name="paused", value="true"))
    journal.put(*(IssueSpent(issue_id=f"id-{number}", spent=Spent(tokens=1)) for number in (1, 2)))
    await journal.close()
    change(
        path,
        """UPDATE claims SET record = '{"issue": {}}' WHERE issue_id = 'id-1'""",
        "UPDATE runs SET record = CAST(x'ff' AS TEXT) WHERE run_id = 'r-1'",
        "UPDATE spent SET tokens = 'many' WHERE issue_id = 'id-1'",
        "UPDATE settings SET value = x'00'",
        "INSERT INTO days VALUES ('today', 1.5)",
    )
    journal = await opened(path)
    messages = [failure.message for failure in journal.take_notices()]
    assert [message.split(" could")[0] for message in messages] == [
        f"1 of the journal's {table}" for table in ("claims", "runs", "spent", "days", "settings")
    ]
    assert journal.recovered_state == RecoveredState(
        claims=(claim(2),), live_runs=(run(2),), spent={"id-2": Spent(tokens=1)}
    )
    await journal.close()
    again = await opened(path)
    assert again.take_notices() == ()
    await again.close()


OLD_ROWS = (
    """
    UPDATE runs SET record = '{"run_id": "r-1", "issue_id": "id-1", "issue_identifier": "SYM-1",
    "started_wall_ms": 5, "turns": 2, "commits": 1, "session_id": "s", "thread_id": "t",
    "input_tokens": 8, "total_tokens": 10,
    "cost_usd": 0.5, "unpriced_tokens": 3, "model": "m", "workspace_path": "/w", "branch": "b"}'
    WHERE run_id = 'r-1'
    """,
    """
    UPDATE results SET record = json_remove(json_set(record, '$.result.total_tokens', 7,
    '$.result.cost_usd', 0.25,
    '$.result.thread', json('{"thread_id": "t", "input_tokens": 1, "total_tokens": 2}')), '$.result.usage')
    """,
    FLAT_CLAIMS,
    """
    UPDATE claims SET record = json_set(record, '$.resume',
    json('{"reason": "interrupted", "thread": {"thread_id": "t", "total_tokens": 2}}'))
    """,
    """
    REPLACE INTO settings VALUES ('usage', '{"totals": {"tokens": {"total_tokens": 9}, "cost": {"usd": 1.5},
    "sessions": 4}, "day": "2026-01-02", "day_cost": {"usd": 0.75}}')
    """,
    "PRAGMA user_version = 3",
)


@pytest.mark.asyncio
async def test_the_facts_of_runs_in_a_file_of_the_third_version_are_moved_to_their_place(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    done = ResultRecord(result=IssueResult(issue=claim(1).claim.issue), ended_wall_ms=NOW)
    journal.put(claim(1), done, run(1))
    await journal.close()
    for statement in OLD_ROWS:
        change(path, statement)
    journal = await opened(path)
    assert journal.take_notices() == ()
    found = journal.recovered_state
    await journal.close()
    assert [one.facts for one in found.live_runs] == [
        RunFacts(
            work=WorkSize(commits=1),
            tokens=Tokens(8, 0, 10),
            cost_usd=0.5,
            unpriced_tokens=3,
            turn_count=2,
            session_id="s",
            thread_id="t",
            model="m",
            workspace_path="/w",
            branch="b",
        )
    ]
    (old,) = found.results
    assert old.result.usage == Usage(tokens=Tokens(total_tokens=7), cost_usd=0.25)
    assert old.result.thread == Thread(thread_id="t", tokens=Tokens(1, 0, 2))
    (claimed,) = found.claims
    assert claimed.claim.resume is not None
    assert claimed.claim.resume.thread == Thread(thread_id="t", tokens=Tokens(total_tokens=2))
    assert json.loads(found.settings["usage"]) == {
        "totals": {"usage": {"tokens": {"total_tokens": 9}, "cost_usd": 1.5}, "sessions": 4},
        "day": "2026-01-02",
        "day_cost": {"cost_usd": 0.75},
    }


ROWS_OF_THE_FOURTH_VERSION = (
    """
    UPDATE runs SET record = json_set(json_remove(record, '$.facts.work'), '$.facts.commits', 2,
    '$.facts.files_changed', 3)
    """,
    """
    UPDATE results SET record = json_set(json_remove(record, '$.result.delivered.work'),
    '$.result.delivered.commits', 2, '$.result.delivered.files_changed', 3,
    '$.result.delivered.insertions', 4, '$.result.delivered.deletions', 5)
    WHERE record -> '$.result.delivered' IS NOT NULL
    """,
    FLAT_CLAIMS,
    "PRAGMA user_version = 4",
)


@pytest.mark.asyncio
async def test_delivered_work_and_claims_in_a_file_of_the_fourth_version_are_moved_to_their_place(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    journal = await opened(path)
    work = WorkSize(commits=2, files_changed=3, insertions=4, deletions=5)
    failure = Failure(category=Category.PUSH_FAILED, blame=Blame.HOST, message="no way")
    delivered = DeliveredBranch(branch="b", head="abc", work=work, to_push=True, push_failure=failure)
    done = IssueResult(issue=full_claim().claim.issue, delivered=delivered)
    nothing = IssueResult(issue=claim(1).claim.issue)
    results = [ResultRecord(result=one, ended_wall_ms=NOW) for one in (nothing, done)]
    journal.put(claim(1), full_claim(), *results, changed(run(1), branch="b"))
    await journal.close()
    for statement in ROWS_OF_THE_FOURTH_VERSION:
        change(path, statement)
    journal = await opened(path)
    assert journal.take_notices() == ()
    found = journal.recovered_state
    await journal.close()
    facts = RunFacts(branch="b", work=WorkSize(commits=2, files_changed=3))
    assert [one.facts for one in found.live_runs] == [facts]
    assert sorted(found.claims, key=lambda one: one.claim.issue.id) == [claim(1), full_claim()]
    assert {one.result.issue.id: one.result for one in found.results} == {"id-1": nothing, "id-9": done}

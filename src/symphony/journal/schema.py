"""The tables of the journal, as the steps that led to them: step n takes a file of version n - 1 to n.

A step is never changed once it was released. What the program reads whole stands in a `record` as JSON; a
column of its own has only what is looked for or summed up.
"""

import sqlite3
from collections.abc import Callable, Sequence

__all__ = ["APPLICATION_ID", "STEPS", "VERSION", "difference", "migrate", "shape"]

APPLICATION_ID = 0x53594D50
"""`SYMP`: tells our file from any other of SQLite."""

_FIRST = """
CREATE TABLE claims (issue_id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, issue_id TEXT NOT NULL, issue_identifier TEXT NOT NULL,
    started_wall_ms INTEGER NOT NULL, ended_wall_ms INTEGER, outcome TEXT, record TEXT NOT NULL
);
CREATE INDEX runs_by_issue ON runs (issue_identifier, started_wall_ms);
CREATE INDEX runs_by_start ON runs (started_wall_ms);
CREATE INDEX runs_alive ON runs (run_id) WHERE ended_wall_ms IS NULL;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, issue_id TEXT NOT NULL, issue_identifier TEXT NOT NULL,
    run_id TEXT, at_wall_ms INTEGER NOT NULL, event TEXT NOT NULL, message TEXT NOT NULL
);
CREATE INDEX events_by_issue ON events (issue_identifier);
CREATE INDEX events_by_run ON events (run_id);
CREATE TABLE comments (
    issue_id TEXT NOT NULL, kind TEXT NOT NULL, comment_id TEXT NOT NULL, fingerprint TEXT NOT NULL,
    at_wall_ms INTEGER NOT NULL, PRIMARY KEY (issue_id, kind)
) WITHOUT ROWID;
CREATE TABLE skill_runs (run_id TEXT PRIMARY KEY, commit_id TEXT, at_wall_ms INTEGER NOT NULL);
CREATE TABLE skill_uses (
    run_id TEXT NOT NULL REFERENCES skill_runs (run_id) ON DELETE CASCADE, position INTEGER NOT NULL,
    name TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT, listed INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (run_id, position)
) WITHOUT ROWID;
CREATE TABLE spent (
    issue_id TEXT PRIMARY KEY, tokens INTEGER NOT NULL, turns INTEGER NOT NULL, at_wall_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE days (day TEXT PRIMARY KEY, tokens INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

Step = Callable[[sqlite3.Connection], None]


def _first(connection: sqlite3.Connection) -> None:
    for statement in _FIRST.split(";"):
        connection.execute(statement)


STEPS: tuple[Step, ...] = (_first,)
VERSION = len(STEPS)


def migrate(connection: sqlite3.Connection, steps: Sequence[Step] = STEPS) -> int:
    """Take the file to the newest version, all steps or none; the version that it had.

    Raises:
        sqlite3.Error: it could not be written, or is not what its version says.
    """
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found >= len(steps):
        return found
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[found:]:
            step(connection)
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return found


def shape(connection: sqlite3.Connection) -> dict[str, str]:
    """What the file consists of: each table and index with the words that make it, blanks joined."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {str(name): " ".join(str(sql).split()) for name, sql in rows}


def difference(connection: sqlite3.Connection) -> str | None:
    """The first table or index that is missing or is not ours; null where all is as it should be.

    What somebody added, such as an index for a report, is no difference.
    """
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(fresh)
        expected = shape(fresh)
    finally:
        fresh.close()
    found = shape(connection)
    wrong = [name for name, sql in expected.items() if found.get(name) != sql]
    return wrong[0] if wrong else None

"""Promise: what has to be done again and again becomes an issue at its time, once, and is worked on."""

import json
import sqlite3
from contextlib import closing
from typing import Any

from harness.project import Project
from published.schemas import conforms_to
from symphony.daemon.state_dir import JOURNAL_FILE

DAY_MS = 86_400_000
SCHEDULE: dict[str, Any] = {
    "name": "dependencies",
    "cron": "0 3 * * *",
    "timezone": "Europe/Berlin",
    "title": "Update dependencies{% if previous %} after {{ previous.identifier }}{% endif %}",
    "file": "dependencies.md",
    "labels": ["chore"],
}


def test_an_issue_is_filed_when_it_is_due_and_worked_on(project: Project) -> None:
    turn = [
        {"write": "a.txt", "text": "new\n"},
        {"commit": "work"},
        {"tool": "board_move", "arguments": {"state": "Done"}},
    ]
    body = f"Look for new versions.\n\n```scripted\n{json.dumps([turn])}\n```\n"
    project.write("dependencies.md", body)
    project.workflow(schedules=[SCHEDULE])
    first = json.loads(project.symphony("schedules", "run", "dependencies", "--json").stdout)
    conforms_to("schedules-run", first)
    assert (first["title"], first["state"]) == ("Update dependencies", "Todo")
    project.symphony("issue", "move", first["issue_identifier"], "Done")
    _pass_two_days(project)
    (row,) = json.loads(project.symphony("schedules", "--json").stdout)["schedules"]
    assert (row["due"], row["issue_identifier"], row["issue_state"]) == (True, "SYM-1", "Done")

    with project.daemon() as daemon:
        filed = daemon.wait_for("issue_filed", schedule="dependencies")
        assert filed["issue_identifier"] == "SYM-2"
        daemon.wait_for("run_ended", issue_identifier="SYM-2")
        again = json.loads(project.symphony("schedules", "--json").stdout)
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        asked = project.symphony("schedules", "run", "nightly")

    conforms_to("schedules", again)
    (row,) = again["schedules"]
    assert (row["due"], row["issue_identifier"], row["failure"]) == (False, "SYM-2", None)
    board = json.loads(project.symphony("issue", "list", "--json").stdout)["issues"]
    assert [(each["id"], each["title"], each["labels"]) for each in board] == [
        ("SYM-1", "Update dependencies", ["chore"]),
        ("SYM-2", "Update dependencies after SYM-1", ["chore"]),
    ]
    assert asked.returncode == 1
    assert "hint:" in asked.stderr


def _pass_two_days(project: Project) -> None:
    """Set back what the journal remembers of the schedule, as if two days had passed without a daemon."""
    with closing(sqlite3.connect(project.state_dir / JOURNAL_FILE)) as journal, journal:
        name = "schedule.dependencies"
        (text,) = journal.execute("SELECT value FROM settings WHERE name = ?", [name]).fetchone()
        record = json.loads(text)
        record["handled_ms"] -= 2 * DAY_MS
        journal.execute("UPDATE settings SET value = ? WHERE name = ?", [json.dumps(record), name])

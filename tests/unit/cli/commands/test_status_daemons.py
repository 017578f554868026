"""`symphony status --all` as people see it."""

from datetime import UTC, datetime
from io import StringIO
from typing import Any

import msgspec

from symphony.cli.commands.status import daemons_view
from symphony.cli.documents import DaemonRow, Daemons, SkippedDirectory
from symphony.cli.formatting import console_for, print_blocks

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
COUNTS = {"running": 2, "retrying": 1, "blocked": 0, "waiting": 14, "ready": 0}


def row(name: str, **changes: Any) -> DaemonRow:
    found = {
        "name": name,
        "status": "running",
        "state_dir": f"/var/lib/symphony/{name}",
        "user": "symphony",
        "workflow": f"/srv/{name}/WORKFLOW.md",
        "pid": 4711,
        "started_at": "2026-03-01T09:46:00Z",
        "health": "ok",
        "counts": COUNTS,
        "version": "0.1.0",
        "commit": None,
        "socket": None,
        "host": None,
        "port": None,
        "message": None,
        "hint": None,
        **changes,
    }
    return msgspec.convert(found, DaemonRow)


def drawn(*rows: DaemonRow, skipped: tuple[SkippedDirectory, ...] = ()) -> list[str]:
    out = StringIO()
    console = console_for(file=out, width=140)
    print_blocks(console, daemons_view(Daemons(daemons=rows, skipped=skipped), now=NOW))
    return out.getvalue().splitlines()


def cells(line: str) -> list[str]:
    return [cell for cell in line.split("  ") if cell.strip()]


def test_a_line_for_each_daemon() -> None:
    head, first, second, *rest = drawn(row("app"), row("web", health="degraded", version=None, workflow=None))
    assert head.split() == [
        *("DAEMON", "HEALTH", "RUNNING", "RETRYING", "BLOCKED", "WAITING"),
        *("UP", "PID", "VERSION", "USER", "WORKFLOW"),
    ]
    assert [cell.strip() for cell in cells(first)] == [
        *("app", "healthy", "2", "1", "0", "14"),
        *("2 h 14 min", "4711", "0.1.0", "symphony", "/srv/app/WORKFLOW.md"),
    ]
    trouble = [cell.strip() for cell in cells(second)]
    assert (trouble[1], trouble[-3], trouble[-1]) == ("in trouble", "-", "/var/lib/symphony/web")
    assert rest == []


def test_what_is_wrong_stands_below_with_what_to_do() -> None:
    silent = row("app", status="silent", health=None, counts=None, message="It hangs\x1b[2J", hint="wait")
    dead = row("web", status="dead", health=None, counts=None, message="It is gone", hint=None)
    _, first, second, *notes = drawn(silent, dead)
    assert "does not answer" in first
    assert second.split()[:7] == ["web", "dead", "-", "-", "-", "-", "-"]
    assert "2 h" not in second, "nobody knows since when"
    assert notes == ["", "app: It hangs", "  → wait", "web: It is gone"]


def test_a_health_of_another_version_is_shown_as_it_is() -> None:
    _, first, second = drawn(row("app", health="resting"), row("web", health=None))
    assert "resting" in first
    assert cells(second)[1].strip() == "?"


def test_nothing_found_and_places_left_out() -> None:
    assert drawn() == ["No daemon was found."]
    lines = drawn(skipped=(SkippedDirectory(path="/var/lib/symphony/x", reason="it belongs to ann"),))
    assert lines[2:] == ["1 place not looked at:", "  /var/lib/symphony/x: it belongs to ann"]

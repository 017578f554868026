"""Promise: before anything is merged, people see which finished branches go together."""

import json
from typing import Any

from harness.project import Project, until
from published.schemas import conforms_to

REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}


def work(text: str, name: str = "a.txt") -> list[dict[str, Any]]:
    return [{"write": name, "text": text}, {"commit": "work"}, REVIEW]


def test_conflicts_of_finished_branches_are_told_by_command_status_and_issue(project: Project) -> None:
    project.workflow()
    for name, script in (("SYM-1", work("one\n")), ("SYM-2", work("two\n")), ("SYM-3", work("x\n", "b.txt"))):
        project.issue(name, script)
    with project.daemon() as daemon:
        for name in ("SYM-1", "SYM-2", "SYM-3"):
            daemon.wait_for("work_ready", issue_identifier=name)

        shown = until(lambda: _told_by_status(project), daemon.log.read_text)
        assert shown["SYM-1"]["outcome"] == shown["SYM-3"]["outcome"] == "merges"
        (conflict,) = shown["SYM-2"]["conflicts"]
        assert conflict["issue_identifiers"] == ["SYM-1"]
        assert [(one["path"], one["kind"]) for one in conflict["files"]] == [("a.txt", "added")]
        issue = json.loads(project.symphony("explain", "SYM-2", "--json").stdout)
        assert issue["result"]["rehearsal"] == shown["SYM-2"]
        asked = project.symphony("rehearse", "--json")
        assert "conflicts with SYM-1 in a.txt" in project.symphony("status").stdout
    without_daemon = project.symphony("rehearse", "--json")
    table = project.symphony("rehearse", "SYM-1", "SYM-3")

    for done, source in ((asked, "daemon"), (without_daemon, "files")):
        found = json.loads(done.stdout)
        conforms_to("rehearse", found)
        assert (done.returncode, found["source"], found["merging"], found["conflicting"]) == (1, source, 2, 1)
        outcomes = {row["issue_identifier"]: row["outcome"] for row in found["branches"]}
        assert outcomes == {"SYM-1": "merges", "SYM-2": "conflicts", "SYM-3": "merges"}
    assert (table.returncode, "symphony/SYM-3" in table.stdout, "SYM-2" in table.stdout) == (0, True, False)
    refused = project.symphony("rehearse", "SYM-9")
    assert refused.returncode == 1
    assert "hint:" in refused.stderr


def _told_by_status(project: Project) -> dict[str, Any] | None:
    """What became of each ready branch, once all three were rehearsed."""
    rows = json.loads(project.symphony("status", "--json").stdout)["ready"]
    told = {row["issue_identifier"]: row["rehearsal"] for row in rows if row["rehearsal"]}
    return told if len(told) == 3 and told["SYM-2"]["outcome"] == "conflicts" else None

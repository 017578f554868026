"""Promise: before anything is merged, people see which finished branches go together."""

import json
from typing import Any

import psutil
import pytest

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


PARTS = ["SYM-1", "SYM-2", "SYM-3", "SYM-4"]
TOO_MANY = {"name": "parts", "run": "n=$(find . -name '*.part' | wc -l); echo $n parts; test $n -lt 3"}


def finished(project: Project, *, commands: list[Any], **sections: Any) -> None:
    """Four branches that go together, each of which passes the commands."""
    project.workflow(verify={"commands": commands, "where": "clean"}, **sections)
    for name in PARTS:
        project.issue(name, work("x\n", f"{name}.part"))
    ended = project.once()
    assert ended.returncode == 0, ended.stderr


def verified(project: Project, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = project.symphony("rehearse", "--verify", "--json", *arguments)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    conforms_to("rehearse", found)
    return done.returncode, found


@pytest.mark.slow
def test_the_first_branch_with_which_the_commands_fail_is_found(project: Project) -> None:
    finished(project, commands=[TOO_MANY, {"name": "docs", "run": "false", "paths": ["docs/"]}])
    code, found = verified(project)
    assert (code, found["verified"]["status"], found["verified"]["breaks"]) == (1, "failed", "SYM-3")
    assert [row["outcome"] for row in found["branches"]] == ["merges", "merges", "breaks", "merges"]
    (parts, docs) = found["verified"]["checks"]
    assert (parts["exit_code"], parts["output_tail"], parts["fails_on_base"]) == (1, "4 parts\n", False)
    assert docs["passed"], "no change touches its paths"
    table = project.symphony("rehearse", "--verify")
    assert (table.returncode, "4 parts" in table.stdout, "breaks" in table.stdout) == (1, True, True)
    code, found = verified(project, "SYM-2", "SYM-4")
    assert (code, found["verified"]["status"], found["merging"]) == (0, "passed", 2)

    def fails(*commands: Any, timeout_ms: int = 60_000) -> tuple[str, str | None]:
        project.workflow(verify={"commands": commands}, rehearse={"timeout_ms": timeout_ms})
        code, found = verified(project)
        assert code == 1
        return found["verified"]["status"], found["verified"]["breaks"]

    left = project.root / "home" / "left"
    assert fails("setsid sleep 1000 & echo $! >>~/left; exit 3") == ("base_failed", None)
    pids = [int(line) for line in left.read_text().split()]
    until(lambda: not any(map(psutil.pid_exists, pids)) or None, lambda: str(pids))
    assert fails("echo changed >README.md") == ("failed", None), "it changes what it checks"
    assert fails("sleep 1000", timeout_ms=300) == ("not_done", None)
    assert list((project.workspaces / ".symphony" / "staging").iterdir()) == [], "checkouts are deleted"
    project.workflow()
    refused = project.symphony("rehearse", "--verify")
    assert (refused.returncode, "verify.commands" in refused.stderr) == (1, True)


@pytest.mark.slow
def test_the_daemon_verifies_by_itself_what_merges_and_again_when_the_base_moves(project: Project) -> None:
    finished(project, commands=[TOO_MANY], rehearse={"verify": True})
    with project.daemon() as daemon:
        daemon.wait_for("merges_verified", breaks="SYM-3")
        rows = json.loads(project.symphony("status", "--json").stdout)["ready"]
        told = {row["issue_identifier"]: row["rehearsal"]["outcome"] for row in rows}
        assert told == {"SYM-1": "merges", "SYM-2": "merges", "SYM-3": "breaks", "SYM-4": "merges"}
        for name in ("SYM-1", "SYM-2"):
            project.git("merge", "-q", "--no-edit", f"symphony/{name}")
        project.git("rm", "-q", "SYM-1.part")
        project.git("commit", "-qm", "Make room")
        moved = project.git("rev-parse", "HEAD")
        until(lambda: _rehearsed_onto(project) == moved or None, daemon.log.read_text)
        daemon.wait_for("merges_verified", breaks="SYM-4")
        code, found = verified(project)
    assert (code, found["source"], found["verified"]["breaks"]) == (1, "daemon", "SYM-4")


def _rehearsed_onto(project: Project) -> str:
    """The commit of the base onto which the daemon has rehearsed the merges; it does so at most every 2 s."""
    base: str = json.loads(project.symphony("rehearse", "--json").stdout)["base_commit"]
    return base

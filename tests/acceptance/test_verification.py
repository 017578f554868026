"""Promise: what an agent says of its work is checked by the operator's commands before it counts."""

from typing import Any

import pytest

from harness.project import Ended, Project, scripted

BAD, GOOD = {"write": "a.txt", "text": "bad\n"}, {"write": "a.txt", "text": "good\n"}
COMMIT = {"commit": "Work"}
DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
CHECK = 'echo checked >>"$HOME/checked"; ! grep bad a.txt'


def verifying(project: Project, *commands: Any, **verify: Any) -> None:
    """The workflow with these commands, and an agent that remembers its conversation."""
    threads = scripted("--threads", str(project.root / "threads"))
    project.workflow(command=threads, verify={"commands": commands or (CHECK,), **verify})


def lines(ended: Ended, event: str) -> list[dict[str, Any]]:
    return [line for line in ended.events() if line["event"] == event]


def checks_made(project: Project) -> int:
    return len((project.root / "home" / "checked").read_text().splitlines())


@pytest.mark.parametrize("where", ["workspace", "clean"])
def test_a_failure_goes_back_to_the_same_conversation_which_fixes_it(project: Project, where: str) -> None:
    verifying(project, where=where)
    project.issue("SYM-1", [BAD, COMMIT, DONE], [GOOD, COMMIT, DONE])
    ended = project.once()
    assert ended.returncode == 0, ended.stderr
    assert project.written_state("SYM-1") == "Done"
    results = [line["result"] for line in lines(ended, "verified")]
    assert results == ["failed", "passed"], ended.stderr
    assert lines(ended, "thread_resumed")[0]["reason"] == "verify_failed"
    assert [(line["before"], line["state"]) for line in lines(ended, "issue_moved")] == [("Done", "Todo")]
    assert project.git("show", "symphony/SYM-1:a.txt") == "good"
    (comment,) = project.comments("SYM-1", kind="delivery")
    assert "Verified at" in comment


def test_after_the_rounds_a_person_is_asked_with_the_evidence(project: Project) -> None:
    verifying(project, "test ! -e a.txt || { echo the reason of it; exit 3; }", rounds=1)
    project.issue("SYM-1", [BAD, COMMIT, DONE], [GOOD, COMMIT, DONE], [COMMIT, DONE])
    ended = project.once()
    assert ended.returncode == 1
    assert len(lines(ended, "verify_failed")) == 2
    (comment,) = project.comments("SYM-1", kind="blocked")
    assert "the reason of it" in comment
    assert project.written_state("SYM-1") == "Todo"

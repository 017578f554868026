"""`status`, `explain` and `prompt` say the same with and without a daemon."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.project import Daemon, Project, until

LABEL = "labels: [agent]\n"
URGENT = f"{LABEL}priority: 1\n"


@pytest.fixture
def board(project: Project) -> Project:
    """SYM-1 runs until `release` is there, SYM-2 asks a person, SYM-3 and SYM-4 wait, SYM-5 is over."""
    project.workflow(tracker={"required_labels": ["agent"]}, agent={"max_concurrent_agents": 2})
    project.skill("release", description="When releasing.")
    project.skill("broken", description="")
    project.commit("Skills")
    wait = {"wait_for": str(project.root / "release")}
    project.issue(
        "SYM-1", [{"say": "Looking at the login page"}, wait], title="Fix [b]login[/b]", extra=URGENT
    )
    project.issue("SYM-2", [{"ask_input": "Which colour?"}], title="Pick a colour", extra=URGENT)
    project.issue("SYM-3", title="Write the docs", extra=f"{LABEL}blocked_by: [SYM-1]\n")
    project.issue("SYM-4", title="Ask Legal")
    project.issue("SYM-5", title="Over", state="Done", extra=LABEL)
    return project


def told(project: Project, *arguments: str, code: int = 0) -> str:
    done = project.symphony(*arguments)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def document(project: Project, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(project, *arguments, "--json"))
    return found


def settled(project: Project, daemon: Daemon) -> None:
    """The run of SYM-1 has said its word, and SYM-2 is blocked."""
    daemon.wait_for("issue_blocked", issue_identifier="SYM-2")

    def speaks() -> bool | None:
        rows = document(project, "status")["running"]
        return True if [row["last_message"] for row in rows] == ["Looking at the login page"] else None

    until(speaks, daemon.log.read_text)


def reasons(state: dict[str, Any]) -> dict[str, Any]:
    return {row["issue_identifier"]: row["reason"] for row in state["waiting"]}


def test_the_same_facts_with_and_without_a_daemon(board: Project) -> None:
    envelopes = {}
    with board.daemon() as daemon:
        settled(board, daemon)
        state = document(board, "status")
        assert (state["source"], state["daemon"]["pid"]) == ("daemon", daemon.process.pid)
        assert [row["issue_identifier"] for row in state["running"]] == ["SYM-1"]
        assert [row["issue_identifier"] for row in state["blocked"]] == ["SYM-2"]
        question = state["blocked"][0]["question"]
        spent = (state["budgets"]["day"], state["budgets"]["day_tokens"])
        asked = document(board, "explain", "SYM-2")["explanation"]
        live = reasons(state)
        for name in ("SYM-3", "SYM-4"):
            assert document(board, "explain", name)["waiting"]["reason"] == live[name]
        over = document(board, "explain", "SYM-5")["explanation"]
        for name in ("SYM-3", "SYM-5"):
            envelopes[name] = document(board, "prompt", name)
        assert envelopes["SYM-3"]["source"] == "daemon"
        daemon.signal(signal.SIGKILL)
        daemon.end()

    state = document(board, "status")
    assert (state["source"], state["daemon"], state["running"]) == ("files", None, [])
    dead = reasons(state)
    assert {name: dead[name] for name in ("SYM-3", "SYM-4")} == live
    assert [row["issue_identifier"] for row in state["retrying"]] == ["SYM-1"]
    (blocked,) = state["blocked"]
    assert (blocked["issue_identifier"], blocked["question"]) == ("SYM-2", question)
    assert (state["budgets"]["day"], state["budgets"]["day_tokens"]) == spent
    again = document(board, "explain", "SYM-2")["explanation"]
    assert (again["code"], again["answer"]) == (asked["code"], asked["answer"])
    assert document(board, "explain", "SYM-1")["explanation"]["code"] == "retrying"
    assert document(board, "explain", "SYM-3")["waiting"]["reason"] == live["SYM-3"]
    again = document(board, "explain", "SYM-5")["explanation"]
    assert (
        (again["code"], again["answer"])
        == (over["code"], over["answer"])
        == (
            "terminal",
            "It is not running: state 'Done' is terminal.",
        )
    )
    for name, before in envelopes.items():
        assert document(board, "prompt", name) == {**before, "source": "files"}


def test_people_read_it(board: Project) -> None:
    with board.daemon() as daemon:
        settled(board, daemon)
        shown = told(board, "status")
        assert shown.startswith("Daemon healthy")
        (line,) = [line for line in shown.splitlines() if line.startswith("SYM-1")]
        assert "Fix [b]login[/b]" in line
        assert "Looking at the login page" in line
        (line,) = [line for line in shown.splitlines() if line.startswith("SYM-2")]
        assert "Which colour?" in line
        why = told(board, "explain", "SYM-2")
        assert "It waits for a person: the agent asks: Which colour?" in why
        assert "change its state, labels, title or description" in why
        assert "malformed   .symphony/skills/broken/SKILL.md:3 (missing_description)" in why
        text = told(board, "prompt", "SYM-3")
        assert text == (
            told(board, "prompt", "SYM-3", "--envelope-only")
            + "\n----- prompt -----\n"
            + told(board, "prompt", "SYM-3", "--prompt-only")
            + "\n"
        )
        assert told(board, "refresh") in {
            "The tracker is polled now.\n",
            "A poll is running or due already; this refresh joins it.\n",
        }
        assert document(board, "refresh")["queued"] is True
    killed = told(board, "status")
    assert killed.startswith("No daemon is running for WORKFLOW.md.\nThe last daemon (pid ")
    assert "had no normal end; the next `symphony run`" in killed
    assert "hint: start one: symphony run" in told(board, "refresh", code=5)


def test_an_issue_that_nobody_knows_is_answered_with_those_that_may_be_meant(board: Project) -> None:
    for command in ("explain", "prompt"):
        complaint = told(board, command, "sym-33", code=1)
        assert complaint.startswith("error: there is no issue 'sym-33'\nhint: did you mean SYM-3")
        assert told(board, command, "sym-3") == told(board, command, "SYM-3")


@pytest.mark.conformance("O-1")
def test_a_workflow_that_became_invalid_is_shown_while_the_last_good_one_holds(board: Project) -> None:
    with board.daemon() as daemon:
        settled(board, daemon)
        board.write("WORKFLOW.md", "---\ntracker: [\n---\n")
        daemon.wait_for("workflow_rejected")
        shown = told(board, "status")
        assert shown.startswith("Daemon in trouble")
        assert "WORKFLOW.md cannot be used" in shown
        assert "SYM-1" in shown
        assert document(board, "explain", "SYM-4")["waiting"]["reason"]["code"] == "label_missing"
    assert "WORKFLOW.md:" in told(board, "status", code=3)


def test_a_daemon_that_is_frozen_is_unreachable_and_nothing_hangs(board: Project) -> None:
    with board.daemon() as daemon:
        settled(board, daemon)
        daemon.signal(signal.SIGSTOP)
        assert "did not answer within" in told(board, "status", code=5)
        daemon.signal(signal.SIGCONT)
        assert document(board, "status")["source"] == "daemon"


def test_no_look_leaves_a_trace(board: Project) -> None:
    before = _files(board.root)
    for arguments in (("status",), ("explain", "SYM-1"), ("prompt", "SYM-1"), ("explain", "SYM-5")):
        told(board, *arguments)
    after = _files(board.root)
    assert {path for path in after if before.get(path) != after[path]} <= {"home"}


def _files(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.lstat().st_mtime_ns for path in root.rglob("*")}

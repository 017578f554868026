"""Promise: logs are JSON or console lines with issue and run on each, and never a secret."""

import pytest

from harness.project import Project
from harness.shell import word

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
SECRET = "lin_api_0123456789abcdefghij"


@pytest.mark.conformance("O-2")
def test_json_lines_carry_issue_and_run(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    lines = daemon.events()
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    about = [line for line in lines if line["event"].startswith("run_")]
    assert {line["event"] for line in about} >= {"run_started", "run_ended"}
    for line in about:
        assert line["issue_id"] == line["issue_identifier"] == "SYM-1"
        if line["event"] in {"run_started", "run_ended"}:
            assert line["run_id"]
    within = [line for line in lines if line["event"] in {"turn_started", "tool_called", "turn_ended"}]
    assert {line["event"] for line in within} == {"turn_started", "tool_called", "turn_ended"}
    for line in within:
        assert (line["issue_id"], line["issue_identifier"]) == ("SYM-1", "SYM-1")
        assert line["run_id"]
        assert line["session_id"] not in {"", "n/a"}


def test_console_lines_are_for_people(project: Project) -> None:
    project.workflow()
    done = project.symphony("run", "--once", "--log-format", "console")
    assert done.returncode == 0
    assert "serving" in done.stderr
    assert "\x1b[" not in done.stderr, "no colour off a terminal"
    assert not done.stderr.lstrip().startswith("{")


@pytest.mark.conformance("O-7")
def test_no_secret_reaches_the_log_the_hooks_or_the_agent(project: Project) -> None:
    project.environment["BOARD_TOKEN"] = SECRET
    seen = project.root / "seen"
    project.workflow(
        tracker={"kind": "markdown", "provider": {"path": ".symphony/issues", "token": "$BOARD_TOKEN"}},
        hooks={"before_run": f"env > {word(seen)}.hook; echo $BOARD_TOKEN {SECRET} >&2; exit 1"},
        agent={"budget": {"max_attempts_without_progress": 1}},
    )
    project.issue("SYM-1", [DONE])
    done = project.symphony("run", "--once", "--log-level", "debug")
    assert "is blocked" in done.stderr, "the failing hook is told"
    assert SECRET not in done.stderr + done.stdout
    assert SECRET not in "".join(project.comments("SYM-1"))
    assert "BOARD_TOKEN" not in seen.with_suffix(".hook").read_text()


def test_the_agent_sees_an_allow_list_of_variables(project: Project) -> None:
    project.environment["SOME_PASSWORD"] = "hunter2hunter2"
    project.workflow()
    seen = project.root / "seen"
    project.issue("SYM-1", [{"run": f"env > {word(seen)}"}, DONE])
    assert project.symphony("run", "--once").returncode == 0
    text = seen.read_text()
    assert "SYMPHONY_RUN_ID=" in text
    assert "hunter2" not in text

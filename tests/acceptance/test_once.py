"""Promise: `run --once` says each time what is left, and waits a minute for an agent that is limited."""

import json
import signal
from typing import Any

import pytest

from harness.project import Project

OUTAGE = "unexpected status 500 Internal Server Error"
WORK: list[dict[str, Any]] = [
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


def told(text: str) -> dict[str, str]:
    """What the end says of each issue, in plain lines."""
    lines = [line for line in text.splitlines() if line.startswith("SYM-")]
    return dict(line.split(" ", 1) for line in lines)


def test_every_call_says_what_is_left_and_finished_work_is_not(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", [{"ask_input": "Which colour?"}])
    project.issue("SYM-2", WORK)
    first, second = project.once(), project.once()
    assert (first.returncode, second.returncode) == (1, 1)
    for ended in (first, second):
        left = {name: text for name, text in told(ended.stderr).items() if "commit" not in text}
        assert left.keys() == {"SYM-1"}
        assert "Which colour?" in left["SYM-1"]
    assert project.symphony("issue", "comment", "SYM-1", "Blue").returncode == 0
    project.issue("SYM-1", WORK)
    assert project.once().returncode == 0


def test_a_pause_is_said_and_a_board_without_work_is_not(project: Project) -> None:
    project.workflow()
    assert project.once().returncode == 0
    project.issue("SYM-1", WORK, state="Backlog")
    assert project.once().returncode == 0
    project.issue("SYM-2", WORK)
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        assert project.symphony("pause").returncode == 0
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    project.issue("SYM-3", WORK)
    ended = project.once()
    assert ended.returncode == 1
    assert "SYM-3" in told(ended.stderr)
    assert "SYM-1" not in told(ended.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 3])
def test_an_outage_ends_it_after_a_minute_with_a_code_of_its_own(project: Project, most: int) -> None:
    budget = {"max_attempts_without_progress": most}
    project.workflow(agent={"budget": budget}, polling={"interval_ms": 1_000})
    project.issue("SYM-1", [{"fail": OUTAGE}])
    project.issue("SYM-2", [{"ask_input": "Which colour?"}], extra="priority: 1\n")
    first, second = project.once(), project.once()
    for ended in (first, second):
        assert ended.returncode == 6, ended.stderr
        assert "SYM-1" in told(ended.stderr)
        waits = [line["delay_ms"] for line in ended.events() if line["event"] == "agent_limited"]
        assert sum(waits) >= 60_000, waits
        assert max(waits) <= 60_000
    project.issue("SYM-1", WORK)
    assert project.once().returncode == 1, "SYM-2 still asks"
    status = json.loads(project.symphony("status", "--json").stdout)
    assert [row["issue_identifier"] for row in status["blocked"]] == ["SYM-2"]

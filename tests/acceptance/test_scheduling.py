"""Promise: slots are filled at once, failures retried, an issue without progress blocked with a reason."""

import json

import pytest

from harness.project import Logged, Project, scripted
from harness.shell import word

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}


def _order(daemon: Logged) -> list[tuple[str, str]]:
    return [
        (line["event"], line["issue_identifier"])
        for line in daemon.events()
        if line["event"] in {"run_started", "run_ended"}
    ]


@pytest.mark.slow
def test_a_freed_slot_is_filled_without_waiting_for_the_next_poll(project: Project) -> None:
    project.workflow(agent={"max_concurrent_agents": 1}, polling={"interval_ms": 3_600_000})
    for number in (1, 2, 3):
        project.issue(f"SYM-{number}", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    started = [name for event, name in _order(daemon) if event == "run_started"]
    assert started == ["SYM-1", "SYM-2", "SYM-3"], "in order, one after the other, within one poll interval"


def test_priority_comes_first_and_the_limit_per_state_holds(project: Project) -> None:
    project.workflow(agent={"max_concurrent_agents": 3, "max_concurrent_agents_by_state": {"todo": 1}})
    project.issue("SYM-1", [DONE], extra="priority: 3\n")
    project.issue("SYM-2", [DONE], extra="priority: 1\n")
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    assert _order(daemon)[0] == ("run_started", "SYM-2")


def test_a_failing_attempt_is_retried_with_its_number(project: Project) -> None:
    marker = project.root / "failed-once"
    project.workflow(
        body="Attempt {{ attempt | default: 'first' }}\n{{ issue.description }}",
        hooks={"before_run": f"test -e {word(marker)} || {{ touch {word(marker)}; exit 7; }}"},
    )
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    retry = daemon.wait_for("run_retrying", issue_identifier="SYM-1")
    assert retry["attempt"] == 1
    assert "before_run" in retry["reason"]
    assert project.state("SYM-1") == "Done"


def test_three_attempts_without_a_trace_of_work_ask_a_person_on_the_issue(project: Project) -> None:
    project.workflow(command=scripted("--exit-on", "turn/start:2"))
    project.issue("SYM-1", [{"say": "never reached"}])
    project.issue("SYM-2", [{"say": "never reached"}], state="Backlog")
    done = project.once()
    assert done.returncode == 1
    assert "SYM-1 is blocked: 3 attempts left neither a new commit nor a changed tree" in done.stderr
    (comment,) = project.comments("SYM-1")
    assert "3 attempts left neither a new commit nor a changed tree" in comment
    assert project.state("SYM-1") == "Todo", "the daemon moves nothing by itself"


def test_a_changed_description_unblocks(project: Project) -> None:
    project.workflow(agent={"budget": {"max_attempts_without_progress": 1}, "max_retry_backoff_ms": 50})
    project.issue("SYM-1", [{"fail": "not like this"}])
    with project.daemon("--log-level", "debug") as daemon:
        daemon.wait_for("issue_blocked", issue_identifier="SYM-1")
        daemon.wait_for("block_settled", issue_identifier="SYM-1")
        project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE], text="Clearer words.")
        daemon.wait_for("issue_unblocked", issue_identifier="SYM-1")
        daemon.wait_for("workspace_removed", issue_identifier="SYM-1")
    assert project.state("SYM-1") == "Done"


def test_an_issue_that_a_person_moves_away_is_stopped_and_its_workspace_kept(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", [{"write": "half", "text": "done"}, {"wait_for": str(project.root / "never")}])
    with project.daemon() as daemon:
        daemon.wait_for("run_started", issue_identifier="SYM-1")
        half = project.workspaces / "SYM-1" / "half"
        while not half.exists():
            daemon.process.poll()
        assert project.symphony("issue", "move", "SYM-1", "Backlog").returncode == 0
        daemon.wait_for("claim_released", issue_identifier="SYM-1")
        assert half.exists()
    assert json.loads(project.symphony("issue", "show", "SYM-1", "--json").stdout)["state"] == "Backlog"


def test_turns_go_on_until_the_limit_and_then_another_attempt_begins(project: Project) -> None:
    project.workflow(agent={"max_turns": 2})
    project.issue(
        "SYM-1",
        [{"write": "one", "text": "1"}, {"commit": "One"}],
        [{"write": "two", "text": "2"}, {"commit": "Two"}, {"say": "still active"}],
    )
    with project.daemon() as daemon:
        ended = daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="succeeded")
        assert ended["turns"] == 2
        assert ended["reason"] == "max_turns"
        daemon.wait_for("run_started", issue_identifier="SYM-1", attempt=1)
        project.symphony("issue", "move", "SYM-1", "Done")
        daemon.wait_for("workspace_removed", issue_identifier="SYM-1")

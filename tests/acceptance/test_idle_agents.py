"""Promise: with the defaults an agent that does nothing costs at most six turns before a person is asked."""

import json
import shlex
from pathlib import Path

import pytest

from harness.project import Project, scripted
from harness.real import require_codex
from kit import model_server as models
from kit.codex_home import codex_home

MOST_TURNS = 6


def _as_init_writes_it(project: Project, command: str) -> None:
    """The workflow of `symphony init`, with another command and a poll that a test can wait for."""
    done = project.symphony("init")
    assert done.returncode == 0, done.stderr
    workflow = project.repo / "WORKFLOW.md"
    text = workflow.read_text()
    for before, after in (
        ("command: codex app-server", f"command: {json.dumps(command)}\n  read_timeout_ms: 30000"),
        ("interval_ms: 30000", "interval_ms: 300"),
    ):
        assert before in text
        text = text.replace(before, after)
    workflow.write_text(text)
    (project.repo / ".symphony" / "issues" / "SYM-1.md").unlink(missing_ok=True)
    project.commit("What init wrote")
    project.issue("SYM-1", text="Make it better.")


def _outcomes(events: list[dict[str, object]]) -> list[object]:
    return [event["outcome"] for event in events if event["event"] == "run_ended"]


@pytest.mark.real_codex
def test_a_real_codex_that_has_nothing_to_do_calls_the_model_six_times(project: Project) -> None:
    codex = require_codex()
    _as_init_writes_it(project, f"{shlex.quote(str(codex))} app-server")
    idle = (models.say("Nothing to do."),)
    with models.ModelServer({}, otherwise=idle) as server, codex_home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 1, daemon.log.read_text()
        calls = [request for request in server.requests if "input" in request.body]
    assert len(calls) <= MOST_TURNS
    assert _outcomes(daemon.events()) == ["no_progress"] * 3
    (comment,) = project.comments("SYM-1")
    assert "neither a new commit nor a changed tree" in comment


def test_a_session_that_only_talks_gets_six_turns(project: Project) -> None:
    _as_init_writes_it(project, scripted())
    daemon = project.once()
    assert daemon.returncode == 1, daemon.stderr
    turns = [event for event in daemon.events() if event["event"] == "turn_started"]
    assert len(turns) == MOST_TURNS
    assert _outcomes(daemon.events()) == ["no_progress"] * 3
    assert "attempts left neither" in daemon.wait_for("issue_blocked")["reason"]


def test_a_look_at_the_issue_is_no_trace_of_work_and_a_comment_is_one(project: Project) -> None:
    project.workflow(agent={"budget": {"max_attempts_without_progress": 1}})
    looks = [{"tool": "board_show", "arguments": {}}]
    says = [{"tool": "board_comment", "arguments": {"body": "I looked at it."}}]
    project.issue("SYM-1", looks, looks, looks, looks)
    project.issue("SYM-2", says, looks, looks, looks)
    daemon = project.once()
    ended = {
        event["issue_identifier"]: (event["outcome"], event["turns"])
        for event in daemon.events()
        if event["event"] == "run_ended"
    }
    assert ended == {"SYM-1": ("no_progress", 2), "SYM-2": ("succeeded", 3)}


@pytest.mark.slow
def test_a_command_that_ends_well_and_changes_nothing_is_started_six_times(
    project: Project, place: Path
) -> None:
    started = place / "started"
    agent = f"echo x >> {shlex.quote(str(started))}"
    front = {
        "tracker": {"kind": "markdown"},
        "polling": {"interval_ms": 300},
        "workspace": {"root": str(project.workspaces), "repo": "."},
        "agent": {"kind": "command"},
        "command": {"command": f"{agent}; cat {{prompt_file}} > /dev/null"},
    }
    project.write("WORKFLOW.md", f"---\n{json.dumps(front)}\n---\nWork on {{{{ issue.identifier }}}}.\n")
    project.issue("SYM-1", text="Make it better.")
    daemon = project.once(acknowledged=True)
    assert daemon.returncode == 1, daemon.stderr
    assert len(started.read_text().split()) == MOST_TURNS
    assert _outcomes(daemon.events()) == ["no_progress"] * 3

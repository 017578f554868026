"""Promise: a real Claude Code session edits, commits and moves its issue."""

import json
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.project import Project, scripted, until
from harness.real import require_claude
from kit import model_server as models
from kit.claude_home import claude_home

pytestmark = pytest.mark.real_claude

BODY = "The body of a skill is read by the agent and never put into a prompt."
WHEN = "Whenever a file is changed in this repository."
MOVE = models.tool("mcp__symphony__board_move", {"state": "Done"})


def bash(command: str) -> models.Answer:
    return models.tool("Bash", {"command": command, "description": "Do it"})


@pytest.fixture
def claude(project: Project) -> dict[str, Any]:
    """The sections of a workflow that gives every issue to Claude Code."""
    command = shlex.quote(str(require_claude()))
    sections: dict[str, Any] = {
        "agent": {"kind": "claude", "max_retry_backoff_ms": 50},
        "claude": {"command": command, "model": "sonnet"},
    }
    project.workflow(**sections)
    return sections


def test_a_real_session_does_the_whole_job(project: Project, claude: dict[str, Any]) -> None:
    """In the default posture: edits and commits are allowed, anything else of a shell is not."""
    del claude
    target = project.workspaces / "SYM-1" / "hello.txt"
    steps = (
        models.tool("Write", {"file_path": str(target), "content": "hello from claude\n"}),
        bash("git add --all && git commit --quiet --message 'Say hello'"),
        bash("python3 -c 'print(1)' > printed"),
        MOVE,
        models.say("Committed and moved."),
    )
    project.write(
        ".symphony/skills/style/SKILL.md",
        f"---\nname: style\ndescription: Style.\nwhen_to_use: {WHEN}\n---\n{BODY}\n",
    )
    project.commit("Add a skill")
    project.environment["TRACKER_TOKEN"] = "do-not-show-this-value"
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    with models.ModelServer({"work": steps}) as server, claude_home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
        requests = [item.body for item in server.requests]
    assert project.state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["Say hello"]
    assert project.git("show", "symphony/SYM-1:hello.txt") == "hello from claude"
    system = "\n".join(part["text"] for part in requests[0]["system"]).splitlines()
    assert system.count("## Available skills") == 1
    assert system.count(f"- style — {WHEN}") == 1
    everything = json.dumps(requests)
    assert "no person can approve it" in everything, "the command outside of the posture was declined"
    assert BODY not in everything
    assert "do-not-show-this-value" not in everything
    ended = daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="succeeded")
    assert (ended["turns"], ended["commits"]) == (1, 1)
    assert project.tokens() == [550], "five answers of the model"
    assert daemon.wait_for("turn_ended")["cost_usd"] > 0


def test_a_turn_that_breaks_a_test_is_told_so_as_data_and_the_next_one_fixes_it(
    project: Project, claude: dict[str, Any]
) -> None:
    check = {"name": "tests", "run": "if grep -sq wrong hello.txt; then echo 1 failed; exit 3; fi"}
    project.workflow(**claude, verify={"commands": [check]})
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    target = str(project.workspaces / "SYM-1" / "hello.txt")
    commit = bash("git add --all && git commit --quiet --message 'Say hello'")
    first = (
        models.tool("Write", {"file_path": target, "content": "wrong\n"}),
        commit,
        MOVE,
        models.say("Done."),
    )
    fix = models.tool("Edit", {"file_path": target, "old_string": "wrong", "new_string": "right"})
    second = (fix, commit, MOVE, models.say("Fixed."))
    with (
        models.ModelServer({"work": first}, otherwise=second) as server,
        claude_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
        last = json.dumps(server.requests[-1].body["messages"])
    before, after = (line["session_id"][:36] for line in daemon.events() if line["event"] == "turn_started")
    assert before == after, "it is the same conversation"
    assert "tests` failed with exit code 3" in last
    assert "```text\\n1 failed\\n```" in last, "its output is fenced data"
    assert [line["result"] for line in daemon.events() if line["event"] == "verified"] == ["failed", "passed"]
    assert project.state("SYM-1") == "Done"
    assert project.git("show", "symphony/SYM-1:hello.txt") == "right"


def test_after_kill_9_the_same_conversation_goes_on(project: Project, claude: dict[str, Any]) -> None:
    """One life ends by `kill -9` while the model thinks; the next one goes on where it was."""
    del claude
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    begun = (bash("echo hello > hello.txt"), models.Hang())
    finish = (bash("git add hello.txt && git commit --quiet -m 'Say hello'"), MOVE, models.say("Done."))
    with (
        models.ModelServer({"work": begun}, otherwise=finish) as server,
        claude_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon() as first:
            server.wait_for(2)
            until(lambda: project.tokens() == [110] or None, first.log.read_text)
            first.signal(signal.SIGKILL)
            first.end()
        with project.daemon("--once") as second:
            assert second.end() == 0, second.log.read_text()
        last = json.dumps(server.requests[-1].body["messages"])
    before, after = first.wait_for("turn_started"), second.wait_for("turn_started")
    assert after["session_id"][:36] == before["session_id"][:36]
    assert last.count("Write hello.txt and commit it.") == 1, "the task is told once"
    assert project.state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["Say hello"]


def test_a_missing_login_is_said_before_anything_is_claimed(
    project: Project, claude: dict[str, Any], tmp_path: Path
) -> None:
    del claude
    project.environment["HOME"] = str(tmp_path)
    done = project.symphony("run", "--once")
    assert done.returncode == 4
    assert "Claude Code is not logged in" in done.stderr
    assert "claude auth login" in done.stderr


def test_a_real_claude_reviews_the_work_of_another_agent(project: Project) -> None:
    """It refuses the first change and approves the second one, in read-only sessions of their own."""
    remark = {"file": "a.txt", "line": 1, "text": "it is bad"}
    name = "mcp__symphony__submit_review"
    refuse = models.tool(name, {"verdict": "request_changes", "comments": [remark]})
    approve = models.tool(name, {"verdict": "approve", "comments": []})
    command = shlex.quote(str(require_claude()))
    project.workflow(
        command=scripted("--threads", str(project.root / "threads")),
        agents={"critic": {"kind": "claude", "command": command, "model": "sonnet"}},
        verify={"reviewer": "critic"},
    )
    move = {"tool": "board_move", "arguments": {"state": "Done"}}
    turns: list[list[dict[str, Any]]] = [
        [{"write": "a.txt", "text": f"[[{text}]]\n"}, {"commit": "Work"}, move] for text in ("bad", "good")
    ]
    issue = project.issue("SYM-1", *turns)  # the marker of a scenario stands in the change alone
    text = issue.read_text(encoding="utf-8")
    issue.write_text(re.sub(r"\[\[(?=bad|good)", r"\\u005b[", text), encoding="utf-8")
    scenarios = {"bad": (refuse, models.say("It is bad.")), "good": (approve, models.say("It is good."))}
    with models.ModelServer(scenarios) as server, claude_home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
        requests = [item.body for item in server.requests]
    verdicts = [line["approves"] for line in daemon.events() if line["event"] == "reviewer_ended"]
    assert verdicts == [False, True]
    offered = {tool["name"] for tool in requests[0]["tools"]}
    assert name in offered
    assert not offered & {"Edit", "Write", "NotebookEdit", "mcp__symphony__board_move"}
    assert project.state("SYM-1") == "Done"
    assert project.git("show", "symphony/SYM-1:a.txt") == "[[good]]"
    assert project.tokens() != [0, 0], "what it uses counts"

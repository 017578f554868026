"""Promise: a real agent is told what its phase of the work needs, once, and the next phase when it comes."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from harness.project import Project
from harness.real import require_claude, require_codex
from kit import model_server as models
from kit.claude_home import claude_home
from kit.codex_home import codex_home

TRACKER = {"active_states": ["Todo", "Review"]}
AGENT = {
    "phases": {"default": "IMPLEMENT", "rules": [{"state": "Review", "phase": "REVIEW"}]},
    "instructions": {"source": "embedded"},
}
COMMON = ("# Safety", "# Environment", "# Status signals")


def _headings(texts: Iterable[str]) -> list[str]:
    """The headings of embedded modules, in their order."""
    own = {*COMMON, "# Planning", "# Implementing", "# Testing", "# Preparing a pull request", "# Reviewing"}
    return [line for text in texts for line in text.splitlines() if line in own]


def _developer_texts(request: Mapping[str, Any]) -> list[str]:
    messages = [item for item in request["input"] if item.get("role") == "developer"]
    return [part["text"] for message in messages for part in message["content"] if "text" in part]


@pytest.mark.real_codex
def test_codex_gets_each_phase_once(project: Project) -> None:
    command = f"{shlex.quote(str(require_codex()))} app-server"
    project.workflow(command=command, codex={"read_timeout_ms": 30_000}, agent=AGENT, tracker=TRACKER)
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    move, done = ((models.tool("board_move", {"state": state}),) for state in ("Review", "Done"))
    steps = models.edit_and_commit("hello.txt", "hello\n", "Say hello", last=move)
    with (
        models.ModelServer({"work": steps}, otherwise=(*done, models.say("Reviewed."))) as server,
        codex_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
        requests = [item.body for item in server.requests if "input" in item.body]
    assert project.state("SYM-1") == "Done"
    first = [*COMMON, "# Implementing", "# Testing"]
    assert _headings(_developer_texts(requests[0])) == first
    assert _headings(_developer_texts(requests[-1])) == [*first, *COMMON, "# Reviewing"]
    composed = [line for line in daemon.events() if line["event"] == "instructions_composed"]
    phases = [line["phase"] for line in composed]
    assert phases == ["IMPLEMENT", "REVIEW"]


@pytest.mark.real_claude
def test_claude_gets_each_phase_in_its_system_text(project: Project) -> None:
    project.workflow(
        agent={"kind": "claude", "max_retry_backoff_ms": 50, **AGENT},
        claude={"command": shlex.quote(str(require_claude())), "model": "sonnet"},
        tracker=TRACKER,
    )
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    command = "echo hello > hello.txt && git add hello.txt && git commit --quiet -m 'Say hello'"
    steps = (
        models.tool("Bash", {"command": command, "description": "Do it"}),
        models.tool("mcp__symphony__board_move", {"state": "Review"}),
        models.say("Done."),
    )
    finish = (models.tool("mcp__symphony__board_move", {"state": "Done"}), models.say("Reviewed."))
    with (
        models.ModelServer({"work": steps}, otherwise=finish) as server,
        claude_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
        systems = [[part["text"] for part in item.body["system"]] for item in server.requests]
    assert project.state("SYM-1") == "Done"
    own = ["# Environment"]  # a heading of Claude Code itself
    assert _headings(systems[0]) == [*own, *COMMON, "# Implementing", "# Testing"]
    assert _headings(systems[-1]) == [*own, *COMMON, "# Reviewing"]

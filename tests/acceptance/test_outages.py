"""Promise: an outage of a model is waited for; no issue is blocked by it, and people hear of it once."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

import pytest

from harness.project import Project
from harness.real import require_claude, require_codex
from harness.receiver import receiving
from kit import model_server as models
from kit.claude_home import claude_home
from kit.codex_home import codex_home

ISSUES = ("SYM-1", "SYM-2")
BUDGET = {"max_attempts_without_progress": 1}


def overloaded() -> models.HttpError:
    return models.api_error(529, "overloaded_error", "Overloaded")


def write_workflow(project: Project, url: str, **sections: Any) -> None:
    """The board, with a target that takes every notification about limits."""
    path = project.workflow(**sections)
    target = {"name": "hook", "kind": "webhook", "url": url, "on": ["agent_limited"], "gather_ms": 0}
    path.write_text(path.read_text().replace("---\n{", f'---\n{{"notify": [{json.dumps(target)}],', 1))


def works_over(project: Project, server: models.ModelServer, steps: Sequence[models.Step | None]) -> None:
    """Both issues are finished although the model answers like this first; people hear of it once."""
    for name in ISSUES:
        project.issue(name, text="[[work]] Write a file and commit it.")
    server.fail(*steps)
    ended = project.once()
    assert ended.returncode == 0, ended.stderr
    assert [project.written_state(name) for name in ISSUES] == ["Done", "Done"]
    events = [line["event"] for line in ended.events()]
    assert "issue_blocked" not in events
    assert events.count("agent_recovered") == 1
    assert "agent_limited" in events


@pytest.mark.real_codex
def test_a_real_codex_works_over_an_outage(project: Project) -> None:
    """Four requests are one failed turn: the home lets Codex try a request and a stream once more."""
    command = f"{shlex.quote(str(require_codex()))} app-server"
    last = (models.tool("board_move", {"state": "Done"}), models.say("Done."))
    edit = models.edit_and_commit("hello.txt", "hello\n", "Say hello", last=last)
    steps: list[models.Step] = [
        *[models.server_error()] * 8,
        *[overloaded()] * 4,
        *[models.Reset()] * 4,
        *[models.Cut()] * 4,
    ]
    with (
        receiving() as receiver,
        models.ModelServer({"work": edit}, otherwise=edit) as server,
        codex_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        codex = {"command": command, "read_timeout_ms": 30_000}
        write_workflow(project, receiver.url, codex=codex, agent={"budget": BUDGET})
        works_over(project, server, [*steps, models.Hang(after_start=True)])
        (told,) = receiver.wait_for(1)
        assert [each["event"] for each in told["notifications"]] == ["agent_limited"]
        assert len(receiver.requests) == 1


@pytest.mark.real_claude
def test_a_real_claude_works_over_an_outage(project: Project) -> None:
    edit = (
        models.tool("Bash", {"command": "git commit --allow-empty --quiet -m Work", "description": "Do it"}),
        models.tool("mcp__symphony__board_move", {"state": "Done"}),
        models.say("Done."),
    )
    steps: list[models.Step] = [*[models.server_error()] * 12, *[overloaded()] * 12, *[models.Reset()] * 6]
    with (
        receiving() as receiver,
        models.ModelServer({"work": edit}, otherwise=edit) as server,
        claude_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        claude = {"command": shlex.quote(str(require_claude())), "model": "sonnet"}
        write_workflow(project, receiver.url, claude=claude, agent={"kind": "claude", "budget": BUDGET})
        works_over(project, server, steps)
        (told,) = receiver.wait_for(1)
        assert [each["event"] for each in told["notifications"]] == ["agent_limited"]
        assert len(receiver.requests) == 1

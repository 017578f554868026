"""Promise: a person approves or denies exactly the request that an agent makes, with a word."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from harness.project import Project
from harness.real import require_claude, require_codex
from kit import model_server as models
from kit.claude_home import claude_home
from kit.codex_home import codex_home

COMMAND = "python3 -c \"open('approved', 'w').write('yes')\""
OTHER = "python3 -c \"open('other', 'w').write('no')\""


def answers(project: Project, run: int = -1) -> list[tuple[str, str | None, str | None]]:
    """The answers of people in the transcript of a run: text, who, and what was decided."""
    files = sorted((project.state_dir / "transcripts").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    entries = [json.loads(line) for line in files[run].read_text(encoding="utf-8").splitlines()]
    return [(one["text"], one["by"], one["decided"]) for one in entries if one["kind"] == "answer"]


# --- real agents -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Real:
    """A real agent that asks before the commands of its model."""

    project: Project
    kind: str

    def run(self, command: str) -> models.Answer:
        if self.kind == "claude":
            return models.tool("Bash", {"command": command, "description": "Do it"})
        return models.shell(command, sandbox_permissions="require_escalated", justification="because")

    @property
    def move(self) -> models.Answer:
        return models.tool(
            "mcp__symphony__board_move" if self.kind == "claude" else "board_move", {"state": "Done"}
        )

    @contextmanager
    def model(self, first: models.Scenario, then: models.Scenario) -> Iterator[models.ModelServer]:
        """Its model, which does `first` for the issue and `then` in a session that goes on."""
        home = claude_home if self.kind == "claude" else codex_home
        with models.ModelServer({"work": first}, otherwise=then) as server, home(server.base_url) as made:
            self.project.environment.update(made.env)
            yield server


@pytest.fixture(
    params=[
        pytest.param("codex", marks=pytest.mark.real_codex),
        pytest.param("claude", marks=pytest.mark.real_claude),
    ]
)
def real(project: Project, request: pytest.FixtureRequest) -> Real:
    kind = request.param
    project.issue("SYM-1", text="[[work]] Do it.")
    if kind == "claude":
        command = shlex.quote(str(require_claude()))
        section: dict[str, Any] = {"command": command, "model": "sonnet", "on_approval": "block"}
    else:
        command = f"{shlex.quote(str(require_codex()))} app-server"
        section = {"command": command, "read_timeout_ms": 30_000, "on_approval": "block"}
        section["approval_policy"] = "on-request"
    sections: dict[str, Any] = {"agent": {"kind": kind, "max_retry_backoff_ms": 50}, kind: section}
    project.workflow(**sections)
    return Real(project=project, kind=kind)


def test_a_real_agent_does_what_was_approved_and_asks_about_anything_else(real: Real) -> None:
    project = real.project
    work = project.workspaces / "SYM-1"
    first = (real.run(COMMAND), models.say("Ok."))
    then = (real.run(COMMAND), real.run(OTHER), models.say("Ok."))
    with real.model(first, then):
        assert project.once().returncode == 1
        assert not (work / "approved").exists()
        assert project.symphony("answer", "SYM-1", "--approve").returncode == 0, "no daemon runs"
        assert project.once().returncode == 1
        assert (work / "approved").read_text() == "yes"
        assert not (work / "other").exists()
    assert answers(project) == [("approve", "an operator", "approved")]
    (question,) = project.comments("SYM-1", kind="blocked")[-1:]
    assert "other" in question


def test_a_real_agent_goes_on_without_what_was_denied(real: Real) -> None:
    project = real.project
    first = (real.run(COMMAND), models.say("Ok."))
    then = (real.run(COMMAND), real.move, models.say("Ok."))
    with real.model(first, then):
        assert project.once().returncode == 1
        assert project.symphony("issue", "comment", "SYM-1", "No.", "--author", "ada").returncode == 0
        assert project.once().returncode == 0
    assert not (project.workspaces / "SYM-1" / "approved").exists()
    assert project.written_state("SYM-1") == "Done"
    assert answers(project) == [("No.", "ada", "denied")]


def test_an_outage_in_the_middle_of_an_approval_loses_neither(real: Real) -> None:
    project = real.project
    first = (real.run(COMMAND), models.say("Ok."))
    then = (real.run(COMMAND), real.move, models.say("Ok."))
    with real.model(first, then) as server:
        assert project.once().returncode == 1
        assert project.symphony("answer", "SYM-1", "--approve").returncode == 0
        server.fail(*[models.server_error()] * 8)
        ended = project.once()
        assert ended.returncode == 0, ended.stderr
        assert ended.wait_for("agent_limited")["times"] == 1
    assert (project.workspaces / "SYM-1" / "approved").read_text() == "yes"
    assert project.written_state("SYM-1") == "Done"

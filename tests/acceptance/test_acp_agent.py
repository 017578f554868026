"""Promise: any agent that speaks the Agent Client Protocol works here, told by keys of WORKFLOW.md alone."""

import json
from typing import Any

import pytest

from harness.project import Project
from kit.speakers import scripted_acp
from symphony.daemon.admission import ACKNOWLEDGEMENT
from symphony.testing.scripted_agent.script import block


def _workflow(project: Project, **acp: Any) -> None:
    path = project.workflow(agent={"kind": "acp"})
    _, front, body = path.read_text(encoding="utf-8").split("---\n")
    settings = {**json.loads(front), "acp": acp}
    path.write_text(f"---\n{json.dumps(settings, indent=2)}\n---\n{body}", encoding="utf-8")


def test_an_agent_told_by_keys_alone_reads_a_skill_commits_and_moves_its_issue(project: Project) -> None:
    _workflow(
        project,
        command=scripted_acp("--usage", "quota"),
        usage_path="_meta.quota.token_count",
        start_timeout_ms=30_000,
        env_values={"GREETING": "hello"},
    )
    project.skill("commit-style", description="How to commit.", body="commit-prefix: docs")
    project.commit("Add a skill")
    steps: list[dict[str, Any]] = [
        {"skill": "commit-style"},
        {"run": 'echo "$GREETING" > greeting.txt'},
        {"commit": "{skill_value}: greet"},
        {"tool": "board_move", "arguments": {"state": "Done"}},
    ]
    project.issue("SYM-1", text=block(steps))
    with project.daemon("--once", ACKNOWLEDGEMENT) as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    assert project.written_state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["docs: greet"]
    assert project.git("show", "symphony/SYM-1:greeting.txt").strip() == "hello"
    ended = daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="succeeded")
    assert (ended["turns"], ended["commits"], ended["agent"]) == (1, 1, "acp")


@pytest.mark.parametrize(
    ("acp", "words"),
    [
        ({"profile": "gemnii"}, "did you mean gemini?"),
        ({}, "acp.command"),
        ({"command": "no-such-agent"}, "no-such-agent"),
        ({"command": scripted_acp("--no-login")}, "Authentication required"),
        ({"command": scripted_acp(), "model": "larg"}, "did you mean large?"),
    ],
)
def test_an_agent_that_cannot_work_stops_the_start_with_a_hint(
    project: Project, acp: dict[str, str], words: str
) -> None:
    _workflow(project, **acp)
    project.commit("Add a workflow")
    project.issue("SYM-1", text="Write a file.")
    done = project.once(acknowledged=True)
    assert done.returncode != 0
    assert words in done.stderr
    assert "hint:" in done.stderr
    assert project.written_state("SYM-1") == "Todo"


def test_an_agent_that_nothing_holds_needs_a_person_to_say_so(project: Project) -> None:
    _workflow(project, command=scripted_acp())
    project.commit("Add a workflow")
    project.issue("SYM-1", text="Write a file.")
    done = project.once()
    assert done.returncode == 3
    assert ACKNOWLEDGEMENT in done.stderr
    assert "no sandbox confines it" in done.stderr

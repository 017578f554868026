"""Promise: people keep skills in a library by commands, also one that several daemons share."""

import json
from pathlib import Path
from typing import Any

from harness.project import Project, until
from symphony.library.model import SkillText

STEPS: list[dict[str, Any]] = [
    {"append": ".agents/skills/style/SKILL.md", "text": "Say why.\n"},
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


def skill(project: Project, content: str) -> str:
    text = SkillText(name="style", description="How we commit.", when_to_use="", content=content)
    return str(project.write("style.md", text.file().decode()))


def library(project: Project, *arguments: str) -> str:
    done = project.symphony("library", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def worked(project: Project, issue: str) -> dict[str, int]:
    """The versions of the library's skills that a session on a new issue found in its workspace."""
    project.issue(issue, STEPS)
    with project.daemon() as daemon:
        until(lambda: project.written_state(issue) == "Done" or None, daemon.log.read_text)
        versions = daemon.wait_for("library_skills_written", issue_identifier=issue)["versions"]
        daemon.wait_for("skills_synced", issue_identifier=issue)
    return dict(versions)


def test_what_one_team_accepts_the_next_session_of_another_finds(tmp_path: Path) -> None:
    shared = {"library": {"path": str(tmp_path / "shared" / "library.db")}}
    one, other = (Project(root=tmp_path / name).create() for name in ("one", "other"))
    for project in (one, other):
        project.workflow(agent=shared)
        project.commit("Workflow")
    library(one, "add", skill(one, "Be brief.\n"), "--reason", "agreed")
    assert worked(one, "SYM-1") == {"style": 1}
    (proposal,) = json.loads(library(other, "proposals", "--json"))["proposals"]
    assert (proposal["name"], proposal["issue_identifier"]) == ("style", "SYM-1")
    assert "+Say why." in library(other, "proposals", str(proposal["id"])).splitlines()
    library(other, "accept", str(proposal["id"]))
    assert worked(other, "SYM-1") == {"style": 2}
    library(other, "assign", "--issue", "SYM-2", "--none")
    other.issue("SYM-2", STEPS[1:])
    with other.daemon() as daemon:
        until(lambda: other.written_state("SYM-2") == "Done" or None, daemon.log.read_text)
    assert not (other.workspaces / "SYM-2" / ".agents").exists()
    assert not (one.state_dir / "library.db").exists()
    history = json.loads(library(one, "history", "style", "--json"))["versions"]
    assert [(one["version"], bool(one["run_id"])) for one in history] == [(2, True), (1, False)]

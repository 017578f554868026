"""Promise: sessions find the library's skills in their workspace; what they improve waits for a person."""

import json
import subprocess

from harness.project import Project, until
from symphony.library.model import Change, SkillText
from symphony.library.store import LIBRARY_FILE, Library

ADA = Change(author="ada")
PLACE = ".agents/skills"


def skill(name: str) -> SkillText:
    return SkillText(name=name, description=f"What {name} does.", when_to_use="", content="Be brief.\n")


def test_an_agent_finds_improves_and_never_commits_the_skills_of_the_library(project: Project) -> None:
    library = Library(project.state_dir / LIBRARY_FILE)
    for name in ("style", "tests", "theirs", "unassigned"):
        library.add(skill(name), ADA)
    project.skill("theirs")
    project.commit("Write a skill by hand")
    project.workflow()
    project.issue(
        "SYM-1",
        [
            {"append": f"{PLACE}/style/SKILL.md", "text": "Say why.\n"},
            {"write": "work.txt", "text": "work\n"},
            {"commit": "Work"},
            {"write": f"{PLACE}/how_to_log.md", "text": "# Log in one line\n"},
            {"tool": "board_move", "arguments": {"state": "Done"}},
        ],
        extra="labels: ['skill:style', 'skill:tests', 'skill:theirs', 'skill:missing']\n",
    )
    with project.daemon() as daemon:
        until(lambda: project.written_state("SYM-1") == "Done" or None, daemon.log.read_text)
        unknown = daemon.wait_for("library_skills_unknown", issue_identifier="SYM-1")
        assert unknown["names"] == ["missing"]
        written = daemon.wait_for("library_skills_written", issue_identifier="SYM-1")
        assert (written["versions"], written["shadowed"]) == ({"style": 1, "tests": 1}, ["theirs"])
        synced = daemon.wait_for("skills_synced", issue_identifier="SYM-1")
        assert (synced["created"], synced["updated"], synced["unchanged"]) == (
            ["how-to-log"],
            ["style"],
            ["tests"],
        )
        shown = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)["skills"]
        assert {one["name"]: one["library_version"] for one in shown["listed"]} == {
            "style": 1,
            "tests": 1,
            "theirs": None,
        }
        assert {"name": "theirs", "reason": "shadowed"} in shown["dropped"]
        assert shown["synced"]["proposals"] == synced["proposals"]
    workspace = project.workspaces / "SYM-1"
    status = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=workspace,
        check=True,
        capture_output=True,
        text=True,
    )
    assert status.stdout.split() == ["??", f"{PLACE}/how_to_log.md"]
    assert {one.text.name: one.base_version for one in library.proposals()} == {"style": 1, "how-to-log": 0}
    assert library.skill("style").version == 1


def test_a_damaged_library_holds_back_no_run(project: Project) -> None:
    project.workflow()
    project.issue(
        "SYM-1",
        [
            {"write": "work.txt", "text": "work\n"},
            {"commit": "Work"},
            {"tool": "board_move", "arguments": {"state": "Done"}},
        ],
    )
    project.state_dir.mkdir(parents=True, exist_ok=True)
    (project.state_dir / LIBRARY_FILE).write_bytes(b"damaged" * 1_000)
    with project.daemon() as daemon:
        until(lambda: project.written_state("SYM-1") == "Done" or None, daemon.log.read_text)
        assert daemon.wait_for("library_unavailable", issue_identifier="SYM-1")["hint"]
        assert daemon.wait_for("run_ended", issue_identifier="SYM-1")["outcome"] == "succeeded"

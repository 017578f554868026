"""Promise: skills are looked at, checked, written and exchanged without a daemon, as a run would see them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.project import Project

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}


@pytest.fixture
def alone(project: Project) -> Project:
    """Without a workflow, a tracker or a daemon, and with a home of its own."""
    project.environment["HOME"] = str(project.root / "home")
    return project


def as_json(project: Project, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = project.symphony("skills", *arguments, "--json")
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_new_skill_is_checked_listed_shown_and_found(alone: Project) -> None:
    when = 'A version: is "prepared" # soon'
    texts = ("--description", "Writes what has changed.", "--when", when)
    assert alone.symphony("skills", "new", "release-notes", *texts).returncode == 0
    assert alone.symphony("skills", "check", "--strict").returncode == 0
    (skill,) = as_json(alone, "list")["skills"]
    assert (skill["name"], skill["when_to_use"], skill["listed"]) == ("release-notes", when, True)
    assert as_json(alone, "show", "release-notes")["body"].startswith("# release-notes")
    assert [one["name"] for one in as_json(alone, "search", "versions")["hits"]] == ["release-notes"]
    refused = alone.symphony("skills", "new", "Release Notes")
    assert (refused.returncode, "for instance release-notes" in refused.stderr) == (2, True)


def test_a_malformed_skill_fails_the_check_and_the_list_at_its_line(alone: Project) -> None:
    alone.skill("good")
    alone.write(".symphony/skills/bad/SKILL.md", "---\n{name: bad\n---\n")
    done = alone.symphony("skills", "check")
    assert done.returncode == 1
    assert re.match(r"\.symphony/skills/bad/SKILL\.md:\d+:\d+: error invalid_yaml ", done.stdout)
    assert alone.symphony("skills", "check", "--github").stdout.startswith("::error file=.symphony/")
    assert alone.symphony("skills", "list").returncode == 1
    assert as_json(alone, "prompt")["listed"] == ["good"]


def test_the_block_is_the_one_that_a_session_gets(project: Project) -> None:
    project.workflow(agent={"skills": {"format": "full", "disabled_skills": ["off"], "user_path": None}})
    for name in ("greeting", "off"):
        project.skill(name, description="Grüße & <b>more</b>.")
    project.commit("Add skills")
    project.issue("SYM-1", [DONE])
    envelope = project.symphony("prompt", "SYM-1", "--envelope-only").stdout
    workspace = str(project.workspaces / "SYM-1")
    block = project.symphony("skills", "prompt").stdout.removesuffix("\n")
    assert block.replace(str(project.repo), workspace) in envelope
    assert "greeting" in block
    assert "off" not in re.findall(r"^- (\S+)", block, re.MULTILINE)


def test_the_skills_of_another_repository_come_over_and_go_out_unchanged(alone: Project, place: Path) -> None:
    other = Project(root=place / "other").create()
    text = other.write(".claude/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Reads: PDFs.\n---\nx\n")
    other.write(".claude/skills/flat-one.md", "Says much.\n")
    other.commit("Skills")
    done = as_json(alone, "import", other.repo.as_uri())
    assert [one["name"] for one in done["created"]] == ["pdf"]
    assert done["skipped"] == [], "a file that is no skill is not one to convert"
    assert done["source"]["commit"] == other.git("rev-parse", "HEAD")
    mine = alone.repo / ".symphony/skills/pdf/SKILL.md"
    assert mine.read_bytes() == text.read_bytes()
    mine.write_text("edited")
    assert alone.symphony("skills", "import", str(other.repo), "--name", "pdf").returncode == 1
    assert mine.read_text() == "edited"
    assert alone.symphony("skills", "import", str(other.repo), "--name", "pdf", "--force").returncode == 0
    assert alone.symphony("skills", "export", str(place / "out"), "--to", "agents").returncode == 0
    assert (place / "out/.agents/skills/pdf/SKILL.md").read_bytes() == text.read_bytes()

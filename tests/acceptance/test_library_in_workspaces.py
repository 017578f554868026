"""Promise: sessions find the library's skills in their workspace; what they improve waits for a person."""

import json
import shlex
import subprocess

import pytest

from harness.project import Project, until
from harness.real import require_claude, require_codex
from kit import model_server as models
from kit.claude_home import claude_home
from kit.codex_home import codex_home
from symphony.library.model import Authorship, SkillText
from symphony.library.store import LIBRARY_FILE, Library

ADA = Authorship(author="ada")
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


def given(project: Project, directory: str) -> None:
    """A skill of the library, and one of the repository in the same directory."""
    Library(project.state_dir / LIBRARY_FILE).add(skill("style"), ADA)
    project.write(f"{directory}/own/SKILL.md", skill("own").file().decode())
    project.commit("Write a skill for the agent")


def told(server: models.ModelServer, words: str) -> int:
    """How often the model was shown these words before it answered for the first time."""
    return json.dumps(next(one.body for one in server.requests if "[[work]]" in json.dumps(one.body))).count(
        words
    )


def native(project: Project) -> dict[str, int]:
    """The library's skills that the agent lists by itself, with their versions."""
    skills = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)["skills"]
    assert skills["listed"] == []
    return {one["name"]: one["library_version"] for one in skills["native"]}


@pytest.mark.real_codex
def test_a_real_codex_finds_a_skill_of_the_library_and_it_is_listed_once(project: Project) -> None:
    command = f"{shlex.quote(str(require_codex()))} app-server"
    given(project, PLACE)
    project.workflow(command=command, codex={"read_timeout_ms": 30_000})
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    last = (models.tool("board_move", {"state": "Done"}), models.say("Committed and moved."))
    work = models.edit_and_commit("hello.txt", "hello\n", "Say hello", last=last)
    with (
        models.ModelServer({"work": work}) as server,
        codex_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon() as daemon:
            until(lambda: project.written_state("SYM-1") == "Done" or None, daemon.log.read_text)
            assert native(project) == {"style": 1}
        assert (told(server, "What style does."), told(server, "What own does.")) == (1, 1)


@pytest.mark.real_claude
def test_a_real_claude_is_told_once_of_a_skill_where_it_looks_for_skills(project: Project) -> None:
    command = shlex.quote(str(require_claude()))
    given(project, ".claude/skills")
    project.workflow(
        agent={
            "kind": "claude",
            "max_retry_backoff_ms": 50,
            "library": {"directory": ".claude/skills"},
        },
        claude={"command": command, "model": "sonnet"},
    )
    project.issue("SYM-1", text="[[work]] Move the issue.")
    work = (models.tool("mcp__symphony__board_move", {"state": "Done"}), models.say("Moved."))
    with (
        models.ModelServer({"work": work}) as server,
        claude_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon() as daemon:
            until(lambda: project.written_state("SYM-1") == "Done" or None, daemon.log.read_text)
        assert told(server, "What style does.") == 1

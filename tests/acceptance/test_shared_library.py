"""Promise: several daemons share one library; feedback is learned from where it was given."""

import json
from pathlib import Path
from typing import Any

from harness.project import Daemon, Project, until
from symphony.library.model import Authorship, SkillText
from symphony.library.store import Library

STYLE = SkillText(name="style", description="How to commit.", when_to_use="Always.", content="Be brief.\n")
BETTER = "Run the tests before you commit."
LESSON = [[{"append": "skills/style/SKILL.md", "text": f"{BETTER}\n"}]]
WORK: list[dict[str, Any]] = [
    {"skill": "style"},
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


def version_written(project: Project, daemon: Daemon, name: str) -> int:
    project.issue(name, WORK)
    until(lambda: project.written_state(name) == "Done" or None, daemon.log.read_text)
    written = daemon.wait_for("library_skills_written", issue_identifier=name)
    return int(written["versions"]["style"])


def test_what_is_learned_beside_one_daemon_serves_the_other(place: Path) -> None:
    library = Library(place / "shared" / "team.db")
    library.add(STYLE, Authorship(author="ada"))
    first = Project(root=place / "first").create()
    elsewhere = place / "second" / "another-state"
    second = Project(root=place / "second", environment={"SYMPHONY_STATE_DIR": str(elsewhere)}).create()
    for project in (first, second):
        project.workflow(agent={"library": {"path": str(library.path)}})
    with first.daemon() as one, second.daemon() as other:
        assert version_written(first, one, "SYM-1") == version_written(second, other, "SYM-1") == 1
        comment = f"{BETTER}\n\n```scripted\n{json.dumps(LESSON)}\n```\n"
        assert first.symphony("feedback", "SYM-1", "--stars", "2", "--comment", comment).returncode == 0
        one.wait_for("learning_ended", issue_identifier="SYM-1")
        assert json.loads(second.symphony("explain", "SYM-1", "--json").stdout)["feedback"] == []
        (proposal,) = library.proposals()
        library.accept(proposal.id, "ada")
        assert version_written(second, other, "SYM-2") == 2
        assert all(line["event"] != "learning_started" for line in other.events())
    listed = json.loads(second.symphony("library", "list", "--json").stdout)["skills"]
    assert [(one["name"], one["version"]) for one in listed] == [("style", 2)]
    assert json.loads(first.symphony("explain", "SYM-1", "--json").stdout)["feedback"]
    assert not (first.state_dir / "library.db").exists()

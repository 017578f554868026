"""Promise: past issues show what a change of a skill would have done, with the agents that people use."""

import json
import shlex
import signal

import pytest
from msgspec import structs

from harness.nightly import NIGHTLY
from harness.project import Project, until
from harness.real import require_claude, require_codex
from kit import model_server as models
from kit.claude_home import claude_home
from kit.codex_home import codex_home
from symphony.library.model import Authorship, Evidence, SkillText
from symphony.library.store import LIBRARY_FILE, Library

STYLE = SkillText(name="style", description="How to end.", when_to_use="Always.", content="word: plain\n")
COMMIT = "git add --force {0} && git commit --quiet --message Answer"


def judged(project: Project) -> None:
    """A real agent works on SYM-1, and then again, without the change and with it."""
    library = Library(project.state_dir / LIBRARY_FILE)
    library.add(STYLE, Authorship(author="ada"))
    with project.daemon() as daemon:
        until(lambda: project.written_state("SYM-1") == "Done" or None, daemon.log.read_text)
        daemon.wait_for("run_ended", issue_identifier="SYM-1")
        daemon.signal(signal.SIGTERM)
        daemon.end()
    branch = project.branch_log("SYM-1")
    proposal = library.propose(structs.replace(STYLE, content="word: good\n"), Evidence(), base_version=1)
    assert proposal is not None
    done = project.symphony("library", "evaluate", str(proposal.id), "--json")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["evaluation"]["comparisons"]
    assert (one["without"]["passed"], one["changed"]["passed"]) == (False, True), one
    assert one["without"]["tokens"] > 0 < one["changed"]["tokens"]
    assert (project.branch_log("SYM-1"), project.written_state("SYM-1")) == (branch, "Done")
    assert not (project.state_dir / "evaluations").exists()


@pytest.mark.real_codex
def test_a_real_codex_is_judged_on_a_past_issue(project: Project) -> None:
    command = f"{shlex.quote(str(require_codex()))} app-server"
    library = {"check": "git show HEAD:answer.txt | grep -q good"}
    copy = f"cp .agents/skills/style/SKILL.md answer.txt && {COMMIT.format('answer.txt')}"
    project.workflow(
        command=command, codex={"read_timeout_ms": 30_000}, agent={"max_turns": 1, "library": library}
    )
    project.issue("SYM-1", text="[[work]] Write answer.txt and commit it.")
    work = (
        models.shell(copy),
        models.tool("board_move", {"state": "Done"}),
        models.say("Committed."),
    )
    with models.ModelServer({"work": work}) as server, codex_home(server.base_url) as home:
        project.environment.update(home.env)
        judged(project)


if NIGHTLY:  # the same promise with the other agent

    @pytest.mark.real_claude
    def test_a_real_claude_is_judged_on_a_past_issue(project: Project) -> None:
        command = shlex.quote(str(require_claude()))
        skill = ".claude/skills/style/SKILL.md"  # nothing but git runs without a person
        library = {"check": f"git show HEAD:{skill} | grep -q good", "directory": ".claude/skills"}
        project.workflow(
            agent={"kind": "claude", "max_turns": 1, "library": library},
            claude={"command": command, "model": "sonnet"},
        )
        project.issue("SYM-1", text="[[work]] Write answer.txt and commit it.")
        work = (
            models.tool("Bash", {"command": COMMIT.format(skill), "description": "Answer"}),
            models.tool("mcp__symphony__board_move", {"state": "Done"}),
            models.say("Committed."),
        )
        with models.ModelServer({"work": work}) as server, claude_home(server.base_url) as home:
            project.environment.update(home.env)
            judged(project)

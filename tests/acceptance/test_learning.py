"""Promise: feedback becomes a better skill: a learning run proposes it, a person accepts it."""

import json
import shlex
import signal
from typing import Any

import pytest

from harness.project import Daemon, Project, until
from harness.real import require_claude, require_codex
from kit import model_server as models
from kit.claude_home import claude_home
from kit.codex_home import codex_home
from symphony.library.model import Authorship, ProposalState, SkillText
from symphony.library.store import LIBRARY_FILE, Library

STYLE = SkillText(name="style", description="How to commit.", when_to_use="Always.", content="Be brief.\n")
BETTER = "Run the tests before you commit."
WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]
LEARN: list[dict[str, Any]] = [
    {"append": "skills/style/SKILL.md", "text": f"{BETTER}\n"},
    {"write": "work.txt", "text": "this is no skill\n"},
]


@pytest.fixture
def library(project: Project) -> Library:
    """The library of the daemon, with one skill."""
    library = Library(project.state_dir / LIBRARY_FILE)
    library.add(STYLE, Authorship(author="ada"))
    return library


def lesson(*steps: dict[str, Any]) -> str:
    """What a person writes, and what a scripted learner makes of it."""
    return f"{BETTER}\n\n```scripted\n{json.dumps([list(steps)])}\n```\n"


def rate(project: Project, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = project.symphony("feedback", "SYM-1", *arguments, "--json")
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout)) if code == 0 else {}


def feedback(project: Project) -> list[dict[str, Any]]:
    done = project.symphony("explain", "SYM-1", "--json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["feedback"])


def listed_version(project: Project) -> int | None:
    """The version of the library's skill that the session of SYM-2 lists."""
    skills = json.loads(project.symphony("explain", "SYM-2", "--json").stdout)["skills"]
    listed = skills["listed"] if skills else ()
    return next((one["library_version"] for one in listed if one["name"] == "style"), None)


def worked(project: Project, daemon: Daemon, *, agent: str = "codex") -> None:
    """SYM-1 is done."""
    until(lambda: project.written_state("SYM-1") == "Done" or None, daemon.log.read_text)
    assert daemon.wait_for("run_ended", issue_identifier="SYM-1")["outcome"] == "succeeded", agent


def test_feedback_becomes_a_proposal_and_what_a_person_accepts_a_version(
    project: Project, library: Library
) -> None:
    project.workflow()
    project.issue("SYM-1", WORK)
    with project.daemon() as daemon:
        worked(project, daemon)
        before = project.branch_log("SYM-1")
        assert rate(project, "--stars", "2", "--comment", lesson(*LEARN))["learning"]["state"] == "waiting"
        ended = daemon.wait_for("learning_ended", issue_identifier="SYM-1")
        assert (ended["updated"], ended["created"], ended["proposals"]) == (["style"], [], [1])
        (shown,) = feedback(project)
        assert (shown["stars"], shown["learning"]["state"], shown["learning"]["proposals"]) == (
            2,
            "done",
            [1],
        )
        assert shown["learning"]["total_tokens"] > 0
        explained = " ".join(project.symphony("explain", "SYM-1").stdout.split())
        assert "updated style" in explained
        assert "`symphony library proposals 1`" in explained
        told = project.symphony("transcript", "SYM-1", "--run", "learn-1").stdout
        assert BETTER in told, "what the learner was sent"
        assert project.symphony("transcript", "SYM-1", "--run", "learn-2").returncode == 1
        assert (project.written_state("SYM-1"), project.branch_log("SYM-1")) == ("Done", before)
        assert len(project.tokens()) == 1, "a learning run is no run of the issue"
        (proposal,) = library.proposals()
        assert proposal.evidence.run_id == shown["run_ids"][0]
        assert proposal.evidence.transcript_seq is not None
        accepted = library.accept(proposal.id, "ada")
        assert (accepted.version, accepted.content) == (2, f"Be brief.\n{BETTER}\n")
        seen = project.root / "seen"
        project.issue("SYM-2", [{"skill": "style"}, {"wait_for": str(seen)}, *WORK])
        until(lambda: listed_version(project) == 2 or None, daemon.log.read_text)
        assert BETTER in (project.workspaces / "SYM-2/.agents/skills/style/SKILL.md").read_text()
        seen.touch()  # the workspace is deleted after its work
        until(lambda: project.written_state("SYM-2") == "Done" or None, daemon.log.read_text)
        assert not (project.workspaces / ".symphony" / "learning" / "1").exists()


def test_the_status_shows_the_stars_of_work_that_is_ready(project: Project) -> None:
    def stars() -> list[int | None]:
        return [row["stars"] for row in json.loads(project.symphony("status", "--json").stdout)["ready"]]

    project.workflow()
    project.issue("SYM-1", [*WORK[:2], {"tool": "board_move", "arguments": {"state": "Human Review"}}])
    with project.daemon() as daemon:
        daemon.wait_for("work_ready", issue_identifier="SYM-1")
        assert stars() == [None]
        for number in ("2", "4"):
            rate(project, "--stars", number, "--no-learn")
        assert stars() == [4]
        assert json.loads(project.symphony("explain", "SYM-1", "--json").stdout)["result"]["stars"] == 4
        assert "4 of 5" in project.symphony("status").stdout


def test_feedback_during_the_run_waits_and_a_learning_run_takes_no_slot(
    project: Project, library: Library
) -> None:
    project.workflow(agent={"max_concurrent_agents": 1})
    project.skill("style")
    project.commit("Write a skill of the same name by hand")
    project.issue("SYM-1", [{"write": "begun", "text": "1"}, {"wait_for": "go"}, *WORK])
    with project.daemon() as daemon:
        until(lambda: (project.workspaces / "SYM-1" / "begun").exists() or None, daemon.log.read_text)
        slow = lesson({"wait_for": str(project.root / "learned")}, *LEARN)
        assert rate(project, "--stars", "1", "--comment", slow)["learning"]["state"] == "waiting"
        rate(project, "--stars", "5", "--no-learn")
        (project.workspaces / "SYM-1" / "go").touch()
        daemon.wait_for("learning_started", issue_identifier="SYM-1")
        project.issue("SYM-2", WORK)
        until(lambda: project.written_state("SYM-2") == "Done" or None, daemon.log.read_text)
        assert [one["learning"]["state"] for one in feedback(project)] == ["off", "running"]
        assert listed_version(project) is None, "the skill of the repository wins"
        (project.root / "learned").touch()
        daemon.wait_for("learning_ended", issue_identifier="SYM-1")
        assert len(library.proposals()) == 1
        assert project.symphony("feedback", "SYM-77", "--stars", "1").returncode == 1
        assert project.symphony("feedback", "SYM-1", "--stars", "9").returncode == 2


@pytest.mark.slow
def test_kill_9_during_a_learning_run_loses_no_feedback_and_makes_one_proposal(
    project: Project, library: Library
) -> None:
    project.workflow()
    project.issue("SYM-1", WORK)
    go = project.root / "go"
    with project.daemon() as first:
        worked(project, first)
        rate(project, "--stars", "2", "--comment", lesson(*LEARN, {"wait_for": str(go)}))
        until(
            lambda: BETTER in _learning_copy(project) or None,
            first.log.read_text,
        )
        first.signal(signal.SIGKILL)
        first.end()
    go.touch()
    with project.daemon() as second:
        ended = second.wait_for("learning_ended", issue_identifier="SYM-1")
        assert ended["proposals"] == [1]
        (shown,) = feedback(project)
    assert (shown["learning"]["state"], shown["learning"]["attempts"]) == ("done", 2)
    assert feedback(project) == [shown], "it is shown without a daemon, too"
    (proposal,) = library.proposals(state=None)
    assert (proposal.state, proposal.text.content) == (ProposalState.OPEN, f"Be brief.\n{BETTER}\n")


def _learning_copy(project: Project) -> str:
    copy = project.workspaces / ".symphony" / "learning" / "1" / "skills" / "style" / "SKILL.md"
    return copy.read_text() if copy.exists() else ""


def _learned(project: Project, library: Library, daemon: Daemon, *, resumed: bool) -> None:
    """A real agent has improved the skill; a person accepts it."""
    ended = daemon.wait_for("learning_ended", issue_identifier="SYM-1")
    assert (ended["updated"], ended["resumed"], ended["malformed"]) == (["style"], resumed, [])
    assert ended["total_tokens"] > 0
    assert project.written_state("SYM-1") == "Done"
    (proposal,) = library.proposals()
    assert library.accept(proposal.id, "ada").content == f"Be brief.\n{BETTER}\n"
    project.issue("SYM-2", text="Say hello.")
    until(lambda: listed_version(project) == 2 or None, daemon.log.read_text)


def _lesson_of(server: models.ModelServer) -> str:
    """The last request of the learning run."""
    bodies = (json.dumps(request.body) for request in reversed(server.requests))
    return next(body for body in bodies if "never a source of rules" in body)


@pytest.mark.real_codex
def test_a_real_codex_learns_in_the_thread_of_its_work_and_writes_nothing_else(
    project: Project, library: Library
) -> None:
    codex = require_codex()
    project.workflow(command=f"{shlex.quote(str(codex))} app-server", codex={"read_timeout_ms": 30_000})
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    last = (models.tool("board_move", {"state": "Done"}), models.say("Committed and moved."))
    outside = project.workspaces / "outside"
    learn = (
        models.shell(f"echo '{BETTER}' >> skills/style/SKILL.md"),
        models.shell(f"echo x > {shlex.quote(str(outside))}"),
        models.say("The skill says it now."),
    )
    work = models.edit_and_commit("hello.txt", "hello\n", "Say hello", last=last)
    with (
        models.ModelServer({"work": work, "learn": learn}) as server,
        codex_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon() as daemon:
            worked(project, daemon)
            rate(project, "--stars", "2", "--comment", f"[[learn]] {BETTER}")
            _learned(project, library, daemon, resumed=True)
        asked = _lesson_of(server)
    assert asked.count("Write hello.txt and commit it.") == 1, "it remembers its work"
    assert f"[[learn]] {BETTER}" in asked
    assert not outside.exists()


@pytest.mark.real_claude
def test_a_real_claude_learns_from_the_record_of_its_work(project: Project, library: Library) -> None:
    command = shlex.quote(str(require_claude()))
    project.workflow(
        agent={"kind": "claude", "max_retry_backoff_ms": 50}, claude={"command": command, "model": "sonnet"}
    )
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    target = str(project.workspaces / "SYM-1" / "hello.txt")
    commit = "git add --all && git commit --quiet --message 'Say hello'"
    work = (
        models.tool("Write", {"file_path": target, "content": "hello\n"}),
        models.tool("Bash", {"command": commit, "description": "Commit"}),
        models.tool("mcp__symphony__board_move", {"state": "Done"}),
        models.say("Committed and moved."),
    )
    skill = str(project.workspaces / ".symphony" / "learning" / "1" / "skills" / "style" / "SKILL.md")
    edit = {"file_path": skill, "old_string": "Be brief.", "new_string": f"Be brief.\n{BETTER}"}
    learn = (
        models.tool("Read", {"file_path": skill}),
        models.tool("Edit", edit),
        models.say("The skill says it now."),
    )
    with (
        models.ModelServer({"work": work}) as server,
        claude_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon() as daemon:
            worked(project, daemon)
            server.learn("work", learn)  # the record of the work ends with the marker of the issue
            rate(project, "--stars", "2", "--comment", BETTER)
            _learned(project, library, daemon, resumed=False)
        asked = _lesson_of(server)
    assert "Write hello.txt and commit it." in asked, "the record says what the work was"

"""A proposal is judged by past issues: real git, the real worker and the scripted agent."""

import json
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import structs

from harness.other_user import as_ordinary_user
from harness.project import Project, marked_processes, until
from harness.real import require_bubblewrap
from harness.shell import word
from symphony.library.model import Authorship, Evidence, SkillText
from symphony.library.store import LIBRARY_FILE, Library

pytestmark = pytest.mark.slow

STYLE = SkillText(name="style", description="How to end.", when_to_use="Always.", content="word: plain\n")
WORK: list[dict[str, Any]] = [
    {"skill": "style", "value_of": "word"},
    {"write": "answer.txt", "text": "{skill_value}\n"},
    {"commit": "Answer"},
    {"tool": "board_move", "arguments": {"state": "Done"}, "may_fail": True},
]
CHECK = "grep -q good answer.txt"


@pytest.fixture
def library(project: Project) -> Library:
    library = Library(project.state_dir / LIBRARY_FILE)
    library.add(STYLE, Authorship(author="ada"))
    return library


def propose(library: Library, word: str, *, base_version: int = 1) -> int:
    text = structs.replace(STYLE, content=f"word: {word}\n")
    proposal = library.propose(text, Evidence(), base_version=base_version)
    assert proposal is not None
    return proposal.id


def deliver(project: Project, *names: str, steps: list[dict[str, Any]] = WORK) -> None:
    """Let a daemon work on issues until they are done."""
    for name in names:
        project.issue(name, steps)
    with project.daemon() as daemon:
        for name in names:
            daemon.wait_for("run_ended", issue_identifier=name)
        daemon.signal(signal.SIGTERM)
        daemon.end()


def evaluate(project: Project, *arguments: str, code: int) -> dict[str, Any]:
    done = project.symphony("library", "evaluate", *arguments, "--json")
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout)["evaluation"])


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def evaluations(project: Project) -> Path:
    return project.state_dir / "evaluations"


def test_a_change_that_makes_the_check_pass_is_recommended_and_leaves_only_a_table(
    project: Project, library: Library
) -> None:
    project.workflow(agent={"library": {"check": CHECK}})
    deliver(project, "SYM-1", "SYM-2")
    branches, runs, state = project.git("branch", "--list"), project.tokens(), project.written_state("SYM-2")
    project.git("merge", "--quiet", "symphony/SYM-1")
    number = propose(library, "good")

    found = evaluate(project, str(number), "--issues", "5", code=0)

    assert found["recommended"] is True
    assert {one["issue_identifier"] for one in found["comparisons"]} == {"SYM-1", "SYM-2"}
    for one in found["comparisons"]:
        assert (one["verdict"], one["base_commit"]) == ("better", project.git("rev-parse", "main~1"))
        assert (one["without"]["passed"], one["changed"]["passed"]) == (False, True)
        assert one["changed"]["tokens"] > 0
        assert one["without"]["problem"] is not None
    assert (found["without"]["passed"], found["changed"]["passed"]) == (0, 2)
    stored = library.proposal(number).evaluation
    assert stored is not None
    assert stored.recommended
    assert not evaluations(project).exists()
    assert project.git("branch", "--list") == branches
    assert (project.tokens(), project.written_state("SYM-2")) == (runs, state)
    assert library.skill("style").version == 1
    assert library.assignments() == ()


@pytest.mark.slow
def test_a_change_that_makes_the_check_fail_is_not(project: Project, library: Library) -> None:
    project.workflow(agent={"library": {"check": "grep -q plain answer.txt"}})
    deliver(project, "SYM-1")
    found = evaluate(project, str(propose(library, "worse")), code=1)
    (one,) = found["comparisons"]
    assert (found["recommended"], one["verdict"]) == (False, "worse")
    assert (one["without"]["passed"], one["changed"]["passed"]) == (True, False)
    assert one["changed"]["turns"] == 3, "the check failed after each turn"
    (listed,) = json.loads(project.symphony("library", "proposals", "--json").stdout)["proposals"]
    assert listed["recommended"] is False
    shown = project.symphony("library", "proposals", "1").stdout
    assert ["SYM-1", "worse", "passed,"] in [line.split()[:3] for line in shown.splitlines()]


@pytest.mark.slow
def test_a_new_skill_is_compared_with_none_and_reaches_issues_that_are_assigned_others(
    project: Project,
) -> None:
    library = Library(project.state_dir / LIBRARY_FILE)
    agents = {"fast": {"kind": "codex", "library": []}}
    project.workflow(agent={"kind": "fast", "library": {"check": CHECK}}, agents=agents)
    plain = [{"write": "answer.txt", "text": "x\n"}, {"commit": "Answer"}, WORK[-1]]
    deliver(project, "SYM-1", steps=plain)
    project.issue("SYM-1", [WORK[0], *WORK[1:]], state="Done")
    found = evaluate(project, str(propose(library, "good", base_version=0)), code=0)
    (one,) = found["comparisons"]
    assert (found["base_version"], one["agent"], one["verdict"]) == (0, "fast", "better")
    assert library.skills() == ()


def test_the_check_sees_what_was_delivered_and_the_agent_does_not(project: Project, library: Library) -> None:
    check = (
        'git --git-dir="$SYMPHONY_DELIVERED_REPOSITORY" show "$SYMPHONY_DELIVERED_COMMIT:answer.txt"'
        " > delivered.txt && grep -q plain delivered.txt && grep -q good answer.txt && test ! -e seen.txt"
    )
    project.workflow(agent={"library": {"check": check}})
    deliver(project, "SYM-1")
    look = {"run": "test ! -e delivered.txt && ! git log --all --format=%s | grep Answer || touch seen.txt"}
    project.issue("SYM-1", [look, *WORK], [look], state="Done")
    found = evaluate(project, str(propose(library, "good")), code=0)
    assert found["comparisons"][0]["without"]["problem"] is not None


@pytest.mark.slow
def test_the_branch_in_the_repository_counts_once_the_workspace_root_is_gone(
    project: Project, library: Library
) -> None:
    project.workflow(agent={"library": {"check": CHECK}})
    deliver(project, "SYM-1", "SYM-2")
    shutil.rmtree(project.workspaces)
    project.git("branch", "-D", "symphony/SYM-2")
    done = project.symphony("library", "evaluate", str(propose(library, "good")), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["evaluation"]
    assert [one["issue_identifier"] for one in found["comparisons"]] == ["SYM-1"]
    assert "SYM-2: left out" in done.stderr


def test_the_check_is_confined_like_the_agent_and_still_sees_what_was_delivered(
    project: Project, library: Library
) -> None:
    require_bubblewrap()
    outside = project.root / "outside"
    check = (
        f'git --git-dir="$SYMPHONY_DELIVERED_REPOSITORY" cat-file -e "$SYMPHONY_DELIVERED_COMMIT"'
        f" && touch here && {{ touch {word(outside)} || true; }}"
        f" && test ! -e {word(project.state_dir / 'journal.db')} && {CHECK}"
    )
    project.workflow(agent={"library": {"check": check}}, workspace={"isolation": "bwrap"})
    deliver(project, "SYM-1")
    assert evaluate(project, str(propose(library, "good")), code=0)["changed"]["passed"] == 1
    assert not outside.exists()


@pytest.mark.parametrize("isolation", ["none", "bwrap"])
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")
def test_what_an_agent_wrote_is_run_with_what_an_agent_gets(isolation: str) -> None:
    """It sees what `codex.env` names and no other secret, not in its parents' environments either."""
    root = Path(tempfile.mkdtemp(prefix="symphony-check-", dir="/var/tmp"))
    root.chmod(0o755)
    secrets = ("AWS_SECRET_ACCESS_KEY", "GH_TOKEN", "NPM_TOKEN", "SSH_AUTH_SOCK", "OPENAI_API_KEY", "FORGE_X")
    script = (
        f'test "$NEEDED-$HOME" = needed-{root}/home || exit 3\n'
        f'test -z "{"".join(f"${name}" for name in secrets)}" || exit 4\n'
        "cat /proc/[0-9]*/environ 2>/dev/null | grep -qa out-of-reach && exit 5\n"
        "grep -q good answer.txt\n"
    )
    try:
        project = Project(root=root).create()
        library = Library(project.state_dir / LIBRARY_FILE)
        library.add(STYLE, Authorship(author="ada"))
        (root / "home").mkdir(exist_ok=True)
        (root / "home" / ".profile").write_text("export OPENAI_API_KEY=of-the-agent\n")
        project.issue("SYM-1", [WORK[0], WORK[1], {"write": "test.sh", "text": script}, *WORK[2:]])
        command = as_ordinary_user(project)
        project.workflow(
            command=command,
            agent={"library": {"check": "sh ./test.sh"}},
            codex={"env": ["NEEDED"]},
            workspace={"isolation": isolation},
        )
        number = propose(library, "good")
        as_ordinary_user(project)
        with project.daemon() as daemon:
            daemon.wait_for("run_ended", issue_identifier="SYM-1")
            daemon.signal(signal.SIGTERM)
            daemon.end()
        project.environment.update(
            dict.fromkeys(secrets, "out-of-reach"), NEEDED="needed", OPENAI_API_KEY="of-the-agent"
        )
        found = evaluate(project, str(number), code=0)
        (one,) = found["comparisons"]
        assert (one["without"]["passed"], one["changed"]["passed"]) == (False, True), one
        assert "status 1" in one["without"]["problem"], "it came to its last line"
    finally:
        shutil.rmtree(root)


def test_a_session_that_uses_too_many_tokens_or_changes_nothing_does_not_pass(
    project: Project, library: Library
) -> None:
    project.workflow(agent={"library": {"check": "true"}})
    deliver(project, "SYM-1")
    project.issue("SYM-1", [{"say": "done"}], state="Done")
    number = propose(library, "good")
    (idle,) = evaluate(project, str(number), code=1)["comparisons"]
    assert not idle["without"]["passed"]
    project.workflow(agent={"library": {"check": "true", "max_evaluation_tokens": 1}})
    (large,) = evaluate(project, str(number), code=1)["comparisons"]
    assert "tokens" in large["changed"]["problem"]
    project.workflow(agent={"library": {"check": "true"}}, command="exit 7")
    assert project.symphony("library", "evaluate", str(number)).returncode == 1
    stored = library.proposal(number).evaluation
    assert stored is not None
    assert stored.comparisons[0].changed.problem == large["changed"]["problem"], "a failed one stores nothing"


def test_what_cannot_be_evaluated_is_refused_with_a_hint(project: Project, library: Library) -> None:
    number = str(propose(library, "good"))

    def refused(number: str) -> str:
        done = project.symphony("library", "evaluate", number)
        assert (done.returncode, done.stdout, "hint: " in done.stderr) == (1, "", True)
        return done.stderr

    project.workflow()
    assert "agent.library.check" in refused(number)
    project.workflow(agent={"library": {"check": "true"}})
    assert "no past issue" in refused(number)
    assert "no proposal 99" in refused("99")
    library.reject(int(number), "ada")
    assert "rejected" in refused(number)
    project.workflow(agent={"library": {"check": "true"}, "skills": {"enabled": False}})
    assert "agent.skills.enabled" in refused(number)
    project.environment["SYMPHONY_RUN_ID"] = "a run"
    assert "agent" in refused(number)


def agents_of(project: Project) -> list[psutil.Process]:
    """The agents of evaluations in this project; processes of other tests come and go."""
    found = []
    for process in marked_processes():
        with suppress(psutil.Error):
            is_evaluation = process.environ().get("SYMPHONY_RUN_ID", "").startswith("evaluation-")
            if is_evaluation and Path(process.cwd()).is_relative_to(project.root):
                found.append(process)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_evaluation_that_is_interrupted_leaves_nothing(
    project: Project, library: Library, number: signal.Signals
) -> None:
    project.workflow(agent={"library": {"check": "true"}})
    deliver(project, "SYM-1")
    begun = project.root / "begun"
    wait: list[dict[str, Any]] = [{"run": ["touch", str(begun)]}, {"wait_for": "never"}]
    project.issue("SYM-1", wait, state="Done")
    proposal = propose(library, "good")
    process = project.start("library", "evaluate", str(proposal))
    until(lambda: begun.exists() or None, lambda: "the agent did not begin")
    agents = agents_of(project)
    assert agents
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "")
    assert not evaluations(project).exists()
    assert not any(one.is_running() for one in agents)
    assert library.proposal(proposal).evaluation is None


@pytest.mark.slow
def test_what_a_killed_evaluation_left_ends_with_it_or_with_the_next_one(
    project: Project, library: Library
) -> None:
    project.workflow(agent={"library": {"check": CHECK}})
    deliver(project, "SYM-1")
    begun = project.root / "begun"
    project.issue("SYM-1", [{"run": ["touch", str(begun)]}, {"wait_for": "never"}], state="Done")
    proposal = str(propose(library, "good"))
    process = project.start("library", "evaluate", proposal)
    until(lambda: begun.exists() or None, lambda: "the agent did not begin")
    second = project.symphony("library", "evaluate", proposal)
    assert (second.returncode, "another evaluation" in second.stderr) == (1, True)
    agents = agents_of(project)
    assert agents
    process.kill()
    process.communicate()
    until(lambda: True if not any(map(alive, agents)) else None, lambda: f"left: {agents}")
    assert evaluations(project).exists()
    project.issue("SYM-1", WORK, state="Done")
    assert evaluate(project, proposal, code=0)["recommended"]
    assert not evaluations(project).exists()


@pytest.mark.slow
def test_it_works_beside_a_daemon_that_works(project: Project, library: Library) -> None:
    project.workflow(agent={"library": {"check": CHECK}})
    deliver(project, "SYM-1")
    project.issue("SYM-2", [{"write": "begun", "text": "1"}, {"wait_for": "go"}, *WORK])
    with project.daemon() as daemon:
        until(lambda: (project.workspaces / "SYM-2" / "begun").exists() or None, daemon.log.read_text)
        found = evaluate(project, str(propose(library, "good")), code=0)
        assert [one["issue_identifier"] for one in found["comparisons"]] == ["SYM-1"]
        (project.workspaces / "SYM-2" / "go").touch()
        assert daemon.wait_for("run_ended", issue_identifier="SYM-2")["outcome"] == "succeeded"
        problems = {line["event"] for line in daemon.events() if line["level"] in {"warning", "error"}}
        assert problems <= {"agent_notice"}

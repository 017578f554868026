"""Promise: any shell command is an agent; its exit code and its work in the workspace are the result."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import symphony
from harness.project import Project, dedent
from harness.shell import word
from symphony.daemon.admission import ACKNOWLEDGEMENT

SOURCE = Path(symphony.__file__).parents[1]


def _workflow(project: Project, command: str, *, hook: str | None = None, **agent: Any) -> None:
    path = project.workflow(agent={"kind": "command", **agent}, hooks={"after_run": hook})
    _, front, body = path.read_text(encoding="utf-8").split("---\n")
    settings = {**json.loads(front), "command": {"command": command}}
    path.write_text(f"---\n{json.dumps(settings, indent=2)}\n---\n{body}", encoding="utf-8")


def _agent(project: Project, script: str) -> str:
    """A shell script outside of the repository, and the command of a turn of it."""
    path = project.root / "agent.sh"
    path.write_text(dedent(script), encoding="utf-8")
    return f"sh {word(path)} {{prompt_file}} {{envelope_file}} {{issue}} {{title}}"


def _if_committed(project: Project, state: str) -> str:
    """A hook that moves the issue, as the agent is given no tools to do so."""
    move = f"PYTHONPATH={word(SOURCE)} {word(sys.executable)} -m symphony -C {word(project.repo)} issue move"
    return f'[ -z "$(git log --oneline origin/HEAD..HEAD)" ] || {move} "$SYMPHONY_ISSUE_IDENTIFIER" "{state}"'


def test_a_shell_script_reads_its_files_commits_and_its_issue_is_moved(project: Project) -> None:
    script = """\
        set -eu
        echo "working on $3"
        cp "$1" prompt.txt
        cp "$2" envelope.txt
        printf '%s' "$4" > title.txt
        git add . && git commit --quiet -m "Work on $3"
    """
    _workflow(project, _agent(project, script), hook=_if_committed(project, "Human Review"), max_turns=1)
    project.skill("greeting", description="How to greet.", body="SECRET BODY")
    project.commit("Add a skill")
    title = "Say 'hello' $(touch /tmp/symphony-made) & `id`"
    project.issue("SYM-1", title=title, text="Write a file.")
    with project.daemon("--once", ACKNOWLEDGEMENT) as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    assert project.written_state("SYM-1") == "Human Review"
    assert project.branch_log("SYM-1") == ["Work on SYM-1"]
    assert "Write a file." in project.git("show", "symphony/SYM-1:prompt.txt")
    envelope = project.git("show", "symphony/SYM-1:envelope.txt")
    assert "- greeting — How to greet." in envelope
    assert "SECRET BODY" not in envelope
    assert project.git("show", "symphony/SYM-1:title.txt") == title
    ended = daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="succeeded")
    assert (ended["turns"], ended["commits"]) == (1, 1)
    assert project.git("status", "--porcelain", cwd=project.workspaces / "SYM-1") == ""


def test_a_command_that_does_nothing_is_not_started_for_ever(project: Project) -> None:
    budget = {"max_attempts_without_progress": 2}
    _workflow(project, "echo I had a look at it", max_turns=1, budget=budget)
    project.commit("Add a workflow")
    project.issue("SYM-1", text="Write a file.")
    daemon = project.once(acknowledged=True)
    assert daemon.returncode == 1, daemon.stderr
    (comment,) = project.comments("SYM-1")
    assert "neither a new commit nor a changed tree" in comment


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-agent {prompt_file}", "the login shell finds no program no-such-agent"),
        ("cat {promtfile}", "{promtfile}"),
    ],
)
def test_a_command_that_cannot_run_stops_the_start_with_a_hint(
    project: Project, command: str, words: str
) -> None:
    _workflow(project, command)
    project.commit("Add a workflow")
    project.issue("SYM-1", text="Write a file.")
    done = project.once(acknowledged=True)
    assert done.returncode != 0
    assert words in done.stderr
    assert "hint:" in done.stderr
    assert project.written_state("SYM-1") == "Todo"

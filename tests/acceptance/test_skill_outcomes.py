"""Promise: the report tells two versions of a skill apart by what became of the work with each."""

import json
import signal
from typing import Any

import pytest

from harness.project import Project, until

WORK: list[dict[str, Any]] = [
    {"skill": "greeting", "value_of": "word"},
    {"write": "out.txt", "text": "{skill_value}"},
    {"commit": "Use it"},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]
ASK: list[dict[str, Any]] = [{"ask_input": "which greeting?"}]


def versions(project: Project) -> dict[str, dict[str, Any]]:
    """The versions of the skill by their digests, the one used last first."""
    done = project.symphony("skills", "report", "--json")
    assert done.returncode == 0, done.stderr
    return {one["sha256"]: one for one in json.loads(done.stdout)["outcomes"]["versions"]}


def test_two_versions_of_a_skill_are_told_apart_by_what_became_of_their_runs(project: Project) -> None:
    project.workflow(tracker={"comment_on_delivery": False})
    project.skill("greeting", description="How to greet.", body="Nothing to read.")
    project.commit("Add a skill")
    project.issue("SYM-1", ASK)
    project.issue("SYM-2", ASK)
    project.once()
    (old,) = versions(project)
    project.skill("greeting", description="How to greet.", body="word: salut")
    project.commit("Improve the skill")
    project.issue("SYM-3", WORK)
    project.once()
    found = versions(project)
    second, first = found.values()
    assert (first["sha256"], len(found)) == (old, 2)
    assert (first["runs"], first["opened"], first["delivered"], first["blocked"]) == (2, 0, 0, 2)
    assert (second["runs"], second["opened"], second["delivered"]) == (1, 1, 1)
    assert (second["ready"], second["blocked"]) == (1, 0)
    assert second["agents"][0]["agent"] == first["agents"][0]["agent"]
    assert "DELIVERED" in project.symphony("skills", "report").stdout


@pytest.mark.slow
def test_what_became_of_a_run_outlives_a_kill_and_counts_once(project: Project) -> None:
    def counts() -> tuple[int, ...]:
        found = [one for one in versions(project).values() if one["runs"]]
        return tuple(sum(one[name] for one in found) for name in ("delivered", "ready"))

    project.workflow(tracker={"comment_on_delivery": False})
    project.skill("greeting", description="How to greet.", body="word: salut")
    project.commit("Add a skill")
    project.issue("SYM-1", WORK)
    with project.daemon() as daemon:
        daemon.wait_for("run_ended", issue_identifier="SYM-1")
        until(lambda: counts()[0] or None, daemon.log.read_text)
        daemon.signal(signal.SIGKILL)
        daemon.end()
    with project.daemon() as daemon:
        project.issue("SYM-2", WORK)
        daemon.wait_for("work_ready", issue_identifier="SYM-2")
        until(lambda: counts() == (2, 2) or None, daemon.log.read_text)
    (found,) = versions(project).values()
    assert (found["runs"], counts()) == (2, (2, 2))

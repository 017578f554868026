"""Orders from the command line to a real daemon with scripted agents."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.project import DEADLINE_S, SYMPHONY, Daemon, Project, until
from harness.scraping import scrape


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A repository with a workflow of one slot."""
    made = Project(root=tmp_path).create()
    made.workflow(agent={"max_concurrent_agents": 1})
    return made


def told(project: Project, *arguments: str, code: int = 0) -> str:
    done = project.symphony(*arguments)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def document(project: Project, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(project, *arguments, "--json"))
    return found


def waits(project: Project, go: str) -> list[dict[str, Any]]:
    """A turn that says so, waits for a file, and ends its issue."""
    return [
        {"write": "begun.txt", "text": "begun\n"},
        {"wait_for": str(project.root / go)},
        {"commit": "Work"},
        {"tool": "board_move", "arguments": {"state": "Done"}},
    ]


def begun(project: Project, name: str) -> None:
    path = project.workspaces / name / "begun.txt"
    until(lambda: path.exists() or None, lambda: f"{name} did not begin")


def rows(project: Project, kind: str) -> list[str]:
    return [row["issue_identifier"] for row in document(project, "status")[kind]]


def is_done(project: Project, daemon: Daemon, name: str) -> None:
    until(lambda: project.state(name) == "Done" or None, daemon.log.read_text)


def test_a_stopped_issue_stays_blocked_until_it_is_retried_and_then_finishes(project: Project) -> None:
    project.issue("SYM-1", waits(project, "go"))
    with project.daemon() as daemon:
        begun(project, "SYM-1")
        answer = told(project, "stop", "sym-1")
        assert answer.startswith("SYM-1: the run is being stopped; the issue stays blocked"), "by any case"
        daemon.wait_for("run_ended", issue_identifier="SYM-1")
        until(lambda: rows(project, "blocked") or None, daemon.log.read_text)
        shown = told(project, "status")
        assert "symphony retry SYM-1" in shown or "symphony unblock SYM-1" in shown
        refused = told(project, "stop", "SYM-1", code=1)
        assert [line.partition(":")[0] for line in refused.splitlines()] == ["error", "hint"]
        (project.root / "go").touch()
        assert told(project, "retry", "SYM-1") == "SYM-1: it is tried now, or as soon as a slot is free.\n"
        is_done(project, daemon, "SYM-1")


def test_a_paused_daemon_starts_nothing_and_goes_on_when_it_is_resumed(project: Project) -> None:
    project.issue("SYM-1", waits(project, "go-1"))
    with project.daemon() as daemon:
        begun(project, "SYM-1")
        assert "1 running agent may go on" in told(project, "pause")
        assert document(project, "status")["paused"] is True
        assert told(project, "pause") == "The daemon is paused already.\n"
        assert document(project, "pause")["changed"] is False
        project.issue("SYM-2", waits(project, "go-2"))
        (project.root / "go-1").touch()
        is_done(project, daemon, "SYM-1")

        def held() -> bool | None:
            waiting = document(project, "status")["waiting"]
            return [row["reason"]["code"] for row in waiting] == ["paused"] or None

        until(held, lambda: told(project, "status"))
        paused = "\nPaused: nothing new starts, and running sessions continue.\n  → symphony resume\n"
        assert paused in told(project, "status")
        assert "run: symphony resume" in told(project, "explain", "SYM-2")
        assert not (project.workspaces / "SYM-2").exists()
        (project.root / "go-2").touch()
        found = document(project, "resume")
        assert (found["verb"], found["issue_identifier"]) == ("resume", None)
        is_done(project, daemon, "SYM-2")
        assert told(project, "resume") == "The daemon is not paused.\n"


@pytest.mark.slow
def test_a_drain_lets_the_turn_end_and_can_be_waited_for(project: Project) -> None:
    project.issue("SYM-1", waits(project, "go"))
    project.issue("SYM-2", waits(project, "go"))
    with project.daemon() as daemon:
        begun(project, "SYM-1")
        with subprocess.Popen(
            [*SYMPHONY, "drain", "--wait"],
            cwd=project.repo,
            env=project.env(),
            stdout=subprocess.PIPE,
            text=True,
        ) as waiting:
            daemon.wait_for("draining")
            assert told(project, "drain") == "The daemon is shutting down already.\n"
            assert waiting.poll() is None
            (project.root / "go").touch()
            said, _ = waiting.communicate(timeout=DEADLINE_S)
        assert (waiting.returncode, said.splitlines()) == (
            0,
            [
                "Nothing new is started; the daemon ends after the present turns (1 running).",
                "The daemon has ended.",
            ],
        )
        assert daemon.end() == 0
    assert (project.state("SYM-1"), project.state("SYM-2")) == ("Done", "Todo")
    assert told(project, "drain", "--wait", code=5).endswith("hint: nothing is left to drain\n")


def test_a_drain_of_an_idle_daemon_ends_it_at_once(project: Project) -> None:
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        until(lambda: document(project, "status")["health"].get("polls") or None, daemon.log.read_text)
        done = project.symphony("drain", "--wait", "--json")
        assert (done.returncode, done.stderr) == (0, "The daemon has ended.\n")
        assert json.loads(done.stdout)["verb"] == "drain"
        assert daemon.end() == 0


def test_what_a_daemon_does_not_have_is_answered_with_what_it_has(project: Project) -> None:
    project.issue("SYM-1", waits(project, "go"))
    with project.daemon():
        begun(project, "SYM-1")
        refused = told(project, "stop", "SYM-11", code=1)
        assert refused == "error: there is no issue 'SYM-11'\nhint: did you mean SYM-1?\n"
        refused = told(project, "answer", "SYM-1", "Blue", code=1)
        assert refused.startswith("error: the issue waits for no answer\nhint: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("stop", "SYM-1"),
        ("retry", "SYM-1"),
        ("unblock", "SYM-1"),
        ("answer", "SYM-1", "Blue"),
        ("pause",),
        ("resume",),
    ],
)
def test_without_a_daemon_there_is_nobody_to_order(project: Project, arguments: tuple[str, ...]) -> None:
    refused = told(project, *arguments, code=5)
    assert refused == ("error: no daemon is running for WORKFLOW.md\nhint: start one: symphony run\n"), (
        "the files are never asked instead"
    )
    assert not project.state_dir.exists()


def test_a_daemon_that_cannot_remember_says_so_wherever_people_look(project: Project) -> None:
    (project.state_dir / "journal.db").mkdir(parents=True)
    project.issue("SYM-1", waits(project, "go"))
    with project.daemon() as daemon:
        reason = daemon.wait_for("journal_degraded")["reason"]
        begun(project, "SYM-1")
        found = document(project, "status")
        assert (found["journal"]["state"], found["journal"]["reason"]) == ("memory", reason)
        assert found["health"]["status"] == "degraded"
        assert scrape(project).value("symphony_journal_ok") == 0
        for shown in (told(project, "status"), told(project, "explain", "SYM-1")):
            assert reason[1:] in " ".join(shown.split())

"""A board that the real Backlog.md makes and edits, and a daemon that works on it at the same time."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.project import Project, until
from harness.real import require_backlog

pytestmark = [pytest.mark.conformance("T-1", "T-6", "T-8"), pytest.mark.slow]


class Backlog:
    """Backlog.md in a repository; `tasks` are its files."""

    def __init__(self, project: Project, program: Path) -> None:
        self.project, self.program = project, program
        self.tasks = project.repo / "backlog" / "tasks"
        home = project.root / "home"
        home.mkdir()
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1"}

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.program), *arguments],
            cwd=self.project.repo,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout

    def file(self, task: str) -> Path:
        (found,) = self.tasks.glob(f"{task} - *.md")
        return found

    def status(self, task: str) -> str:
        match = re.search(r"^Status: \W*(.+)$", self("task", "view", task, "--plain"), re.MULTILINE)
        assert match is not None
        return match[1].strip()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "place").create()
    project.write(".gitignore", "/backlog/\n")
    project.commit("Keep the board out of workspaces")
    project.workflow(tracker={"kind": "markdown", "provider": {"layout": "backlog.md"}})
    return project


@pytest.fixture
def backlog(project: Project) -> Backlog:
    backlog = Backlog(project, require_backlog())
    backlog("init", "demo", "--defaults")
    settings = project.repo / "backlog" / "config.yml"
    slow = re.compile(r"^(remote_operations|check_active_branches): true$", re.MULTILINE)
    settings.write_text(slow.sub(r"\1: false", settings.read_text()))
    return backlog


def script(*steps: dict[str, Any]) -> str:
    move = {"tool": "board_move", "arguments": {"state": "Done"}}
    return f"Do it.\n\n```scripted\n{json.dumps([[*steps, move]])}\n```"


def listed(project: Project) -> dict[str, dict[str, Any]]:
    done = project.symphony("issue", "list", "--json")
    assert done.returncode == 0, done.stderr
    return {issue["id"]: issue for issue in json.loads(done.stdout)["issues"]}


def test_what_it_writes_is_read_and_an_edit_of_ours_keeps_every_other_byte(
    project: Project, backlog: Backlog
) -> None:
    backlog(
        "task", "create", "Fix: the 'login' page", "-d", "Words", "--ac", "It works",
        "-l", "Bug,ui", "--priority", "high", "-a", "@ann",
    )  # fmt: skip
    backlog("task", "create", "Second", "--dep", "task-1", "--priority", "low", "-s", "In Progress")
    backlog("task", "create", "A part", "-p", "task-2")
    backlog("draft", "create", "Not yet a task")
    found = listed(project)
    assert set(found) == {"TASK-1", "TASK-2", "TASK-2.1"}
    first, second = found["TASK-1"], found["TASK-2"]
    assert (first["title"], first["state"], first["priority"]) == ("Fix: the 'login' page", "To Do", 1)
    assert (first["labels"], first["assignee"]) == (["bug", "ui"], "ann")
    assert first["created"].endswith("+00:00")
    assert (second["state"], second["priority"]) == ("In Progress", 3)
    assert "TASK-1" in second["reason"]
    shown = project.symphony("issue", "show", "task-1").stdout
    assert "It works" in shown
    assert "<!--" not in shown

    before = backlog.file("task-1").read_bytes()
    assert project.symphony("issue", "move", "TASK-1", "done").returncode == 0
    assert backlog.file("task-1").read_bytes() == before.replace(b"status: To Do", b"status: Done")
    assert backlog.status("task-1") == "Done"
    assert listed(project)["TASK-2"]["dispatchable"]
    assert project.symphony("issue", "comment", "TASK-1", "Well done.", "--author", "ann").returncode == 0
    assert backlog.file("task-1").read_bytes() == before.replace(b"status: To Do", b"status: Done")
    assert "Well done." in project.symphony("issue", "show", "TASK-1").stdout

    backlog("task", "edit", "1", "--append-notes", "Seen", "-t", "Another title")
    assert listed(project)["TASK-1"]["title"] == "Another title"
    backlog("task", "complete", "1")
    assert set(listed(project)) == {"TASK-2", "TASK-2.1"}
    assert listed(project)["TASK-2"]["dispatchable"], "what is completed blocks nobody"
    refused = project.symphony("issue", "new", "Not here")
    assert refused.returncode != 0
    assert "backlog task create" in refused.stderr


@pytest.mark.conformance("T-12")
def test_a_daemon_works_on_it_while_people_go_on_with_backlog_md(project: Project, backlog: Backlog) -> None:
    project.write(".symphony/skills/broken/SKILL.md", "---\ndescription: No name.\n---\n")
    project.commit("Add a malformed skill")
    steps: list[dict[str, Any]] = [{"write": "done.txt", "text": "done"}, {"commit": "Do it"}]
    backlog("task", "create", "First", "-d", script(*steps), "--priority", "low")
    backlog("task", "create", "After it", "-d", script(), "--dep", "task-1", "--priority", "high")
    done = project.symphony("run", "--once")
    assert done.returncode == 0, done.stderr
    assert project.git("show", "symphony/TASK-1:done.txt") == "done"
    assert backlog.status("task-1") == "Done"
    again = project.symphony("run", "--once")
    assert again.returncode == 0, again.stderr
    assert backlog.status("task-2") == "Done"
    notes = [path.read_text() for path in sorted(project.repo.glob("backlog/.symphony/TASK-1/comments/*.md"))]
    assert sum(".symphony/skills/broken/SKILL.md" in note for note in notes) == 1

    project.workflow(
        tracker={"kind": "markdown", "provider": {"layout": "backlog.md"}}, polling={"interval_ms": 600_000}
    )
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        backlog("task", "create", "While it runs", "-d", script())
        made = backlog.file("task-3")
        until(lambda: True if "status: Done" in made.read_text() else None, daemon.log.read_text)
    assert backlog.status("task-3") == "Done"

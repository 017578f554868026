"""The reading commands on a real terminal of a given size."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.project import Project
from harness.shell import word
from harness.terminals import DEADLINE_S, terminal


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(root=tmp_path).create()
    made.workflow()
    made.skill("release", description="When releasing.")
    made.commit("Skills")
    made.issue("SYM-1", title="Fix \x07[b]login[/b]", text="The page is blank.")
    return made


def test_the_status_fits_the_terminal(project: Project) -> None:
    with terminal(project, "status", columns=60) as shown:
        text = shown.end()
    assert shown.process.returncode == 0
    assert max(map(len, text.splitlines())) <= 60
    assert "SYM-1     Fix [b]login[/b]\n" in text
    assert "\x07" not in shown.text
    assert "\x1b[" in shown.text, "a terminal has colours"


def test_a_terminal_that_cannot_redraw_gets_one_picture_below_the_other(project: Project) -> None:
    with terminal(project, "status", "--watch", "--interval", "0.1", term="dumb") as shown:
        shown.until("No daemon is running", count=2)
        shown.process.send_signal(signal.SIGINT)
        shown.end()
    assert shown.process.returncode == 0
    assert "\x1b[?1049h" not in shown.text


def test_a_person_sees_which_text_is_which(project: Project) -> None:
    with terminal(project, "prompt", "SYM-1") as shown:
        text = shown.end()
    assert text.startswith("Envelope: the system-level text ")
    assert "\nPrompt of the first turn " in text
    assert "SYM-1: Fix [b]login[/b]" in text
    assert "skills: 1 listed, 0 dropped, 0 malformed\n" in text
    assert "\x07" not in shown.text


def test_a_person_sees_how_many_skills_would_be_searched(project: Project) -> None:
    project.skill("another")
    project.commit("Another")
    project.workflow(agent={"skills": {"search_above": 1, "user_path": None}})
    with terminal(project, "prompt", "SYM-1") as shown:
        assert "skills: 0 listed, 2 to be searched, 0 dropped, 0 malformed\n" in shown.end()


def test_a_person_sees_that_there_is_no_envelope(project: Project) -> None:
    project.workflow(agent={"skills": {"enabled": False}})
    with terminal(project, "prompt", "SYM-1") as shown:
        assert "(none)\n" in shown.end()
    with terminal(project, "explain", "SYM-1", columns=50) as shown:
        assert "It is not running: it would start now, and no daemon is running." in shown.end()


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_watch_quietly(project: Project) -> None:
    command = f"{word(sys.executable)} -m symphony status --watch --interval 0.1 --json | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=project.repo,
        env=project.env(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert json.loads(done.stdout)["source"] == "files"
    assert done.stderr == ""


def test_following_an_issue_without_events_waits_until_ctrl_c(project: Project) -> None:
    with terminal(project, "logs", "SYM-1", "-f") as shown:
        shown.until("waiting for the first event of SYM-1")
        shown.process.send_signal(signal.SIGINT)
        shown.end()
    assert shown.process.returncode == 130
    assert "Traceback" not in shown.text


# --- symphony run ---


def test_a_run_is_told_in_lines_for_people(project: Project) -> None:
    project.workflow(agent={"max_retry_backoff_ms": 1, "budget": {"max_attempts_without_progress": 2}})
    move = {"tool": "board_move", "arguments": {"state": "Done"}}
    project.issue("SYM-1", [{"write": "a", "text": "b"}, {"commit": "c"}], [move], title="Two \x07 turns")
    project.issue("SYM-2", [{"fail": "the model said no"}], title="Fails")
    with terminal(project, "run", "--once", columns=200) as shown:
        text = shown.end()
    assert shown.process.returncode == 1, "SYM-2 is blocked"
    assert "\x07" not in shown.text
    assert "\x1b[" in shown.text, "a terminal has colours"
    lines = [line for line in text.splitlines() if re.match(r"\d\d:\d\d:\d\d  ", line)]

    def about(name: str) -> list[str]:
        return [line[20:] for line in lines if line[10:18].strip() == name]

    assert [words.split(":")[0] for words in about("SYM-1")] == [
        *("started", "turn 1", "turn 2", "ended", "is in Done now; no more work here")
    ]
    assert "ended: 2 turns, 1 commit" in about("SYM-1")
    assert [words.split(":")[0] for words in about("SYM-2")] == [
        *("started", "turn 1", "failed after 1 turn, 0 commits", "retry in 1 s (attempt 2 of 2)"),
        *("started", "turn 1", "failed after 1 turn, 0 commits", "blocked"),
    ]
    assert "(attempt 2 of 2)" in about("SYM-2")[4]
    assert "run_id" not in text, "ids are for the log"


@pytest.mark.slow
def test_verbose_shows_the_whole_log(project: Project) -> None:
    project.issue("SYM-1", [{"tool": "board_move", "arguments": {"state": "Done"}}])
    with terminal(project, "run", "--once", "-v", columns=200) as shown:
        text = shown.end()
    assert re.search(r"run_started +issue_identifier=SYM-1", text)
    assert re.search(r"attempt='?1 of \d", text)
    assert "tool_called" in text


def test_init_asks_for_what_is_missing_and_asks_again_where_an_answer_does_not_fit(project: Project) -> None:
    (project.repo / "WORKFLOW.md").unlink()
    project.git("remote", "add", "origin", "https://ann:t0ken@github.com/octo-team/website.git")
    with terminal(project, "init") as asked:
        for question, answer in (
            ("Tracker [markdown]:", "github"),
            ("Address of GitHub [https://github.com]:", ""),
            ("Repository (owner/name) [octo-team/website]:", "nonsense"),
            ("must be owner/name, like octo-team/website", ""),
            ("Agent [codex]:", "command"),
            ("Shell command", "make {odd}"),
            ("no placeholder", "make {issue}"),
        ):
            asked.until(question)
            os.write(asked.master, f"{answer}\n".encode())
        text = asked.end()
    assert asked.process.returncode == 0
    assert "created  WORKFLOW.md" in text
    assert "t0ken" not in text
    written = (project.repo / "WORKFLOW.md").read_text()
    assert "    repo: octo-team/website\n" in written
    assert '  command: "make {issue}"\n' in written
    with terminal(project, "init") as again:
        assert "kept     WORKFLOW.md" in again.end(), "a file that is there leaves nothing to ask"


def test_init_with_every_option_asks_nothing_and_ctrl_c_writes_nothing(project: Project) -> None:
    (project.repo / "WORKFLOW.md").unlink()
    with terminal(project, "init") as asked:
        asked.until("Tracker [markdown]:")
        while asked.process.poll() is None:  # an interrupt just before Python waits for a line is lost
            asked.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        asked.end()
    assert asked.process.returncode != 0
    assert not (project.repo / "WORKFLOW.md").exists()
    with terminal(project, "init", "--tracker", "linear", "--project", "x-1", "--agent", "codex") as told:
        text = told.end()
    assert told.process.returncode == 0
    assert "]:" not in text
    assert "  kind: linear\n" in (project.repo / "WORKFLOW.md").read_text()

"""What a daemon that was killed hands on: threads with their totals, retries with their times, and blocks.

Each life is a real process that ends by `kill -9`, with real agents that remember their threads.
"""

import json
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.project import Daemon, Ended, Project, remembering, until

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}


@pytest.fixture
def threads(project: Project) -> Path:
    """Where agents remember their threads."""
    folder = project.root / "threads"
    project.workflow(command=remembering(folder))
    return folder


def _waits(project: Project, name: str, *more: Mapping[str, Any]) -> None:
    """An issue whose agent works, waits for `go`, and then finishes."""
    project.issue(
        name,
        [
            {"write": "work.txt", "text": "begun\n"},
            {"wait_for": str(project.root / "go")},
            {"commit": "Work"},
            *more,
            DONE,
        ],
    )


def _kill_in_mid_turn(project: Project, name: str) -> dict[str, Any]:
    """One life that ends while the agent works; what was logged when its turn began."""
    with project.daemon() as daemon:
        began = daemon.wait_for("turn_started", issue_identifier=name)
        work = project.workspaces / name / "work.txt"
        until(lambda: work.exists() or None, daemon.log.read_text)
        _until_kept(project, daemon, "SELECT 1 FROM runs WHERE record LIKE '%total_tokens%'")
        daemon.signal(signal.SIGKILL)
        daemon.end()
    return began


def _rows(project: Project, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(project.state_dir / "journal.db")) as journal:
        return journal.execute(query).fetchall()


def _runs(project: Project) -> list[dict[str, Any]]:
    return [
        json.loads(text) for (text,) in _rows(project, "SELECT record FROM runs ORDER BY started_wall_ms")
    ]


def _until_kept(project: Project, daemon: Daemon, query: str) -> None:
    until(lambda: _rows(project, query) or None, daemon.log.read_text)


def _thread_of(line: Mapping[str, Any]) -> str:
    return str(line["session_id"])[:36]


def _once(project: Project) -> Ended:
    (project.root / "go").touch()
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    return daemon


@pytest.mark.conformance("A-18")
def test_after_kill_9_the_same_thread_goes_on_and_no_token_is_counted_twice(
    project: Project, threads: Path
) -> None:
    _waits(project, "SYM-1")
    before = _kill_in_mid_turn(project, "SYM-1")
    (project.workspaces / "SYM-1" / "half.txt").write_text("half done")
    after = _once(project)
    assert after.wait_for("thread_resumed")["reason"] == "interrupted"
    assert _thread_of(after.wait_for("turn_started")) == _thread_of(before)
    assert project.state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["Work"]
    assert project.git("show", "symphony/SYM-1:half.txt") == "half done", "work in progress is kept"
    (thread,) = (json.loads(path.read_text()) for path in threads.glob("*.json"))
    assert "```scripted" in thread["script"], "the task was told once, at the beginning"
    assert thread["turns_done"] == 1
    first, second = _runs(project)
    assert (first["outcome"], second["outcome"]) == ("interrupted", "succeeded")
    first, second = first["facts"], second["facts"]
    assert first["thread_id"] == second["thread_id"]
    assert first["tokens"]["total_tokens"] > 0
    assert (
        first["tokens"]["total_tokens"] + second["tokens"]["total_tokens"] == thread["usage"]["totalTokens"]
    )
    ((tokens,),) = _rows(project, "SELECT sum(tokens) FROM days")
    assert tokens == thread["usage"]["totalTokens"]


def test_an_agent_that_has_forgotten_the_thread_starts_cold(project: Project, threads: Path) -> None:
    _waits(project, "SYM-1")
    before = _kill_in_mid_turn(project, "SYM-1")
    for path in threads.iterdir():
        path.unlink()
    after = _once(project)
    failed = after.wait_for("resume_failed", thread_id=_thread_of(before))
    assert "no rollout found" in failed["reason"]
    assert _thread_of(after.wait_for("turn_started")) != _thread_of(before)
    assert project.state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["Work"]


@pytest.mark.slow
@pytest.mark.conformance("S-19")
def test_without_its_journal_the_daemon_starts_cold_and_loses_nothing(
    project: Project, threads: Path
) -> None:
    """A newer version wrote it; `tests/acceptance/test_durability.py` has one that is damaged."""
    del threads
    _waits(project, "SYM-1")
    _kill_in_mid_turn(project, "SYM-1")
    with closing(sqlite3.connect(project.state_dir / "journal.db")) as file:
        file.execute("PRAGMA user_version = 99")
    after = _once(project)
    assert project.state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["Work"]
    events = [line["event"] for line in after.events()]
    assert "thread_resumed" not in events
    assert "journal_degraded" in events


@pytest.mark.conformance("S-19")
def test_a_retry_keeps_its_time_and_its_number(project: Project, threads: Path) -> None:
    project.workflow(command=remembering(threads), agent={"max_retry_backoff_ms": 300_000})
    project.issue("SYM-1", [{"fail": "once"}])
    with project.daemon() as first:
        first.wait_for("run_retrying", attempt=1)
        _until_kept(project, first, "SELECT 1 FROM claims WHERE record LIKE '%retrying%'")
        first.signal(signal.SIGKILL)
        first.end()
    ((kept,),) = _rows(project, "SELECT record FROM claims")
    with project.daemon() as second:
        recovered = second.wait_for("claim_recovered")
        assert (recovered["kind"], recovered["attempt"]) == ("retrying", 1)
        _until_kept(project, second, "SELECT 1 FROM events WHERE event = 'claim_recovered'")
        ((again,),) = _rows(project, "SELECT record FROM claims")
        moved_ms = json.loads(again)["due_wall_ms"] - json.loads(kept)["due_wall_ms"]
        assert abs(moved_ms) < 1_000, "due when it was due, but for the flicker of two clocks"
        assert not [line for line in second.events() if line["event"] == "run_started"]


@pytest.mark.conformance("S-19")
def test_a_block_is_kept_with_its_question_and_its_comment_is_not_repeated(
    project: Project, threads: Path
) -> None:
    del threads
    project.issue("SYM-1", [{"ask_input": "Which colour?"}, {"write": "colour", "text": "red"}, DONE])
    with project.daemon() as first:
        first.wait_for("comment_posted", kind="blocked")
        _until_kept(project, first, "SELECT 1 FROM comments")
        first.signal(signal.SIGKILL)
        first.end()
    (comment,) = project.comments("SYM-1")
    assert "Which colour?" in comment
    with project.daemon() as second:
        assert second.wait_for("claim_recovered")["kind"] == "blocked"
        explained = project.symphony("explain", "SYM-1")
        assert "Which colour?" in explained.stdout, explained.stderr
        second.signal(signal.SIGTERM)
        assert second.end() == 0
    assert project.comments("SYM-1") == [comment]
    ((kept,),) = _rows(project, "SELECT record FROM claims")
    assert "Which colour?" in json.loads(kept)["claim"]["question"]
    assert not [line for line in second.events() if line["event"].startswith("comment")]


@pytest.mark.slow
def test_a_drain_hands_the_interrupted_thread_to_the_next_daemon(project: Project, threads: Path) -> None:
    project.workflow(command=remembering(threads), agent={"drain_timeout_ms": 0})
    _waits(project, "SYM-1")
    with project.daemon() as first:
        before = first.wait_for("turn_started")
        first.signal(signal.SIGTERM)
        assert first.end() == 0
    after = _once(project)
    assert after.wait_for("thread_resumed")["thread_id"] == _thread_of(before)
    assert project.branch_log("SYM-1") == ["Work"]


@pytest.fixture(autouse=True)
def nothing_left(project: Project) -> Iterator[None]:
    """Agents of a daemon that was killed end at the latest when they are let go on."""
    yield
    (project.root / "go").touch()

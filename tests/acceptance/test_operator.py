"""Promise: an operator stops, retries, answers, pauses and drains, and every surface shows why."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from harness.project import DEADLINE_S, Daemon, Project, scripted, until

TURN: list[dict[str, Any]] = [
    {"write": "begun.txt", "text": "begun\n"},
    {"wait_for": "go"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


@pytest.fixture
def board(project: Project) -> Project:
    """One slot, and a budget that nothing here reaches."""
    return _served(project, scripted())


def _served(project: Project, command: str) -> Project:
    budget = {"max_tokens_per_day": 1_000_000}
    project.workflow(command=command, agent={"max_concurrent_agents": 1, "budget": budget})
    return project


@contextmanager
def client_of(project: Project, daemon: Daemon) -> Iterator[tuple[httpx.Client, dict[str, str]]]:
    """A client of the daemon's port, and the header that proves who orders."""
    port = daemon.wait_for("http_serving")["port"]
    transport = httpx.HTTPTransport(verify=False)
    token = (project.state_dir / "operator.token").read_text().strip()
    with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S) as client:
        yield client, {"authorization": f"Bearer {token}"}


def told(project: Project, *arguments: str, code: int = 0) -> str:
    done = project.symphony(*arguments)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def state(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(project, "status", "--json"))
    return found


def becomes(project: Project, daemon: Daemon, name: str, status: str) -> dict[str, Any]:
    """The issue's row, once it has that status."""

    def found() -> dict[str, Any] | None:
        rows = {row["issue_identifier"]: row for row in state(project)[status]}
        return rows.get(name)

    return until(found, daemon.log.read_text)


def leaves(project: Project, daemon: Daemon, name: str, status: str) -> None:
    def gone() -> bool | None:
        return name not in {row["issue_identifier"] for row in state(project)[status]} or None

    until(gone, daemon.log.read_text)


def is_done(project: Project, daemon: Daemon, name: str) -> None:
    until(lambda: project.state(name) == "Done" or None, daemon.log.read_text)


def begins(project: Project, daemon: Daemon, name: str) -> None:
    path = project.workspaces / name / "begun.txt"
    until(lambda: path.exists() or None, daemon.log.read_text)


def test_an_agent_asks_a_person_answers_and_the_issue_is_finished(project: Project) -> None:
    board = _served(project, scripted("--threads", str(project.root / "threads")))
    board.issue(
        "SYM-1",
        [
            {"ask_input": "Which colour, red or blue?"},
            {"commit": "Work"},
            {"tool": "board_move", "arguments": {"state": "Done"}},
        ],
    )
    with board.daemon("--port", "0") as daemon, client_of(board, daemon) as (client, bearer):
        daemon.wait_for("issue_blocked")
        row = becomes(board, daemon, "SYM-1", "blocked")
        assert row["question"] == "Which colour, red or blue?"
        assert (
            "Which colour, red or blue?"
            in client.get("/api/v1/SYM-1", headers=bearer).json()["blocked"]["question"]
        )
        for shown in (told(board, "status"), told(board, "explain", "SYM-1")):
            assert "Which colour, red or blue?" in shown
            assert 'symphony answer SYM-1 "…"' in shown
        until(lambda: board.comments("SYM-1") or None, daemon.log.read_text)
        (comment,) = board.comments("SYM-1")
        assert "\n\nThe agent asks:\n\n```text\nWhich colour, red or blue?\n```" in comment
        assert "symphony answer SYM-1" in comment

        refused = client.post("/api/v1/SYM-1/answer", json={"text": "Red"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
        assert told(board, "answer", "SYM-1", "Blue, please").startswith("SYM-1: ")
        assert daemon.wait_for("thread_resumed", issue_identifier="SYM-1")["reason"] == "answered"
        is_done(board, daemon, "SYM-1")
        late = client.post("/api/v1/SYM-1/answer", json={"text": "Red"}, headers=bearer)
        assert late.status_code in {404, 409}
        assert [line["event"] for line in daemon.events()].count("run_started") == 2
    assert len(board.comments("SYM-1")) == 1, "an answer is no comment"


def test_stop_and_retry_over_http(board: Project) -> None:
    board.issue("SYM-1", TURN)
    with board.daemon("--port", "0") as daemon, client_of(board, daemon) as (client, bearer):
        begins(board, daemon, "SYM-1")
        assert client.post("/api/v1/SYM-1/stop").status_code == 401
        foreign = {**bearer, "origin": "https://evil.example"}
        assert client.post("/api/v1/SYM-1/stop", headers=foreign).status_code == 403
        assert client.post("/api/v1/SYM-9/stop", headers=bearer).status_code == 404
        stopped = client.post("/api/v1/SYM-1/stop", headers=bearer)
        assert (stopped.status_code, stopped.json()["verb"]) == (202, "stop")
        row = becomes(board, daemon, "SYM-1", "blocked")
        assert row["failure"]["code"] == "stopped_by_operator"
        again = client.post("/api/v1/SYM-1/stop", headers=bearer)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "not_running")
        (board.workspaces / "SYM-1" / "go").touch()
        assert client.post("/api/v1/SYM-1/retry", headers=bearer).status_code == 202
        is_done(board, daemon, "SYM-1")


def test_an_issue_is_moved_by_the_api_and_by_the_form_of_its_page(board: Project) -> None:
    for name in ("SYM-1", "SYM-2", "SYM-3"):
        board.issue(name, TURN)

    with board.daemon("--port", "0") as daemon, client_of(board, daemon) as (client, bearer):
        begins(board, daemon, "SYM-1")
        becomes(board, daemon, "SYM-2", "waiting")
        done = {"state": "done"}
        assert client.post("/api/v1/SYM-2/move", json=done).status_code == 401
        refused = client.post("/api/v1/SYM-2/move", json={"state": "Dnoe"}, headers=bearer)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "tracker_status")
        assert "Todo" in refused.json()["error"]["hint"]
        moved = client.post("/api/v1/SYM-2/move", json=done, headers=bearer)
        assert (moved.status_code, moved.json()["changed"]) == (202, True)
        assert board.state("SYM-2") == "Done"
        leaves(board, daemon, "SYM-2", "waiting")

        control = json.loads((board.state_dir / "control.json").read_text())
        owner = httpx.HTTPTransport(uds=control["socket"])
        with httpx.Client(transport=owner, base_url="http://symphony", timeout=DEADLINE_S) as browser:
            page = browser.get("/issues/SYM-3").text
            assert "<option>Done</option>" in page
            (csrf,) = set(re.findall(r'name="csrf" value="([^"]+)"', page))
            fields = {"csrf": csrf, "issue": "SYM-3", "next": "/issues/SYM-3"}
            for target, notice in (("Dnoe", "there is no state"), ("Done", "moved from Todo to Done")):
                answer = browser.post("/actions/move", data={**fields, "state": target})
                assert answer.status_code == 303
                assert notice in browser.get(answer.headers["location"]).text
        assert board.state("SYM-3") == "Done"
        leaves(board, daemon, "SYM-3", "waiting")

        assert client.post("/api/v1/SYM-1/move", json=done, headers=bearer).status_code == 202
        leaves(board, daemon, "SYM-1", "running")
        assert [line["event"] for line in daemon.events()].count("run_started") == 1


def test_a_pause_is_shown_wherever_people_look_and_ends_when_they_say(board: Project) -> None:
    with board.daemon() as daemon:
        daemon.wait_for("serving")
        until(lambda: state(board)["health"].get("polls") or None, daemon.log.read_text)
        told(board, "pause")
        board.issue("SYM-1", [TURN[0], TURN[2], TURN[3]])
        row = becomes(board, daemon, "SYM-1", "waiting")
        assert row["reason"]["code"] == "paused"
        shown = told(board, "status")
        assert "Paused: nothing new starts, and running sessions continue.\n  → symphony resume\n" in shown
        assert "0 of 1.0M today" in shown
        assert "symphony resume" in told(board, "explain", "SYM-1")
        assert told(board, "resume") == "Issues are started again.\n"
        is_done(board, daemon, "SYM-1")


def test_a_drain_ends_the_daemon_in_order_once_its_turn_has(board: Project) -> None:
    board.issue("SYM-1", TURN)
    with board.daemon() as daemon:
        begins(board, daemon, "SYM-1")
        assert "1 running" in told(board, "drain")
        assert daemon.process.poll() is None
        (board.workspaces / "SYM-1" / "go").touch()
        assert daemon.end() == 0
    assert board.branch_log("SYM-1") == ["Work"]


def test_without_a_daemon_an_order_is_an_error_and_changes_nothing(board: Project) -> None:
    board.issue("SYM-1", TURN)
    for arguments in (("stop", "SYM-1"), ("answer", "SYM-1", "Blue"), ("pause",), ("drain",)):
        assert told(board, *arguments, code=5).startswith(
            "error: no daemon is running for WORKFLOW.md\nhint: "
        )
    assert not board.state_dir.exists()

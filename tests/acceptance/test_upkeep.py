"""`doctor`, `logs`, `clean`, `skills report` and `replay` on a daemon's own traces, with and without one."""

import json
import signal
import stat
from typing import Any

import pytest

from harness.project import Daemon, Project, scripted, until

SECRET = "correct-horse-battery"


@pytest.fixture
def board(project: Project) -> Project:
    """SYM-1 is done by its agent; SYM-2 waits in mid-turn until `release` is there."""
    project.environment["SYMPHONY_TEST_TOKEN"] = SECRET
    project.workflow(agent={"max_concurrent_agents": 2})
    project.skill("release", description="When releasing.")
    project.commit("Begin")
    work: list[dict[str, Any]] = [
        {"write": "done.txt", "text": "done\n"},
        {"commit": "Do it"},
        {"tool": "board_move", "arguments": {"state": "Done"}},
    ]
    project.issue("SYM-1", work, title="Finish it")
    wait = {"wait_for": str(project.root / "release")}
    project.issue("SYM-2", [{"say": f"Looking at the login page with {SECRET}"}, wait], title="Wait")
    return project


def told(project: Project, *arguments: str, code: int = 0) -> str:
    done = project.symphony(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def document(project: Project, *arguments: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(project, *arguments, "--json", code=code))
    return found


def settled(daemon: Daemon) -> None:
    daemon.wait_for("run_ended", issue_identifier="SYM-1")
    daemon.wait_for("turn_started", issue_identifier="SYM-2")


def statuses(project: Project) -> dict[str, str]:
    return {check["name"]: check["status"] for check in document(project, "doctor")["checks"]}


@pytest.mark.slow
def test_the_doctor_finds_no_error_before_beside_and_after_a_daemon(board: Project) -> None:
    # Behind a pipe the agent is no child of the daemon, so the kernel does not end it when the daemon dies.
    board.workflow(command=f"cat | {scripted('--ignore-eof')}", agent={"max_concurrent_agents": 2})
    assert "error" not in statuses(board).values()
    with board.daemon() as daemon:
        settled(daemon)
        found = {check["name"]: check for check in document(board, "doctor")["checks"]}
        assert found["lock"]["message"] == f"a daemon (pid {daemon.process.pid}) has it, and answers"
        daemon.kill_with_subreapers()
        daemon.end()
    after = {check["name"]: check for check in document(board, "doctor")["checks"]}
    assert (after["lock"]["status"], after["processes"]["status"]) == ("warning", "warning")
    assert "error" not in {check["status"] for check in after.values()}
    with board.daemon() as daemon:
        daemon.wait_for("predecessor_reaped")
        daemon.wait_for("turn_started", issue_identifier="SYM-2")
        assert statuses(board)["processes"] == "ok"
        daemon.signal(signal.SIGINT)
        daemon.end()


def test_the_doctor_says_what_it_is(board: Project) -> None:
    (ours,) = [check for check in document(board, "doctor")["checks"] if check["name"] == "version"]
    assert ours["message"].startswith(f"{told(board, '--version').strip()}, Python 3.")


@pytest.mark.parametrize("kind", ["codex", "claude"])
def test_the_doctor_says_how_to_mend_what_is_broken(board: Project, kind: str) -> None:
    broken = {"command": "symphony-no-such-agent"}
    board.workflow(agent={"kind": kind}, codex=broken, claude=broken)
    lines = told(board, "doctor", code=3).splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("error")]
    assert "symphony-no-such-agent" in lines[place]
    assert "symphony-no-such-agent" not in "".join(lines[:place]), "it is told once"
    assert lines[place + 1].strip().startswith("hint: ")


@pytest.mark.slow
def test_a_daemons_decisions_can_be_taken_again(board: Project) -> None:
    recording = board.root / "night.jsonl"
    with board.daemon("--record", str(recording)) as daemon:
        settled(daemon)
        (board.root / "release").touch()
        board.issue("SYM-2", title="Wait", state="Done")
        daemon.wait_for("run_ended", issue_identifier="SYM-2")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600
    assert SECRET not in recording.read_text(encoding="utf-8")
    assert told(board, "replay", str(recording)).splitlines()[-1].endswith("the same decisions as recorded")
    found = document(board, "replay", str(recording))
    assert {step["same"] for step in found["steps"]} == {True}
    said = [command["command"] for step in found["steps"] for command in step["commands"]]
    assert said.count("StartRun") == 2
    assert said[-1] == "Exit"
    damaged = recording.read_bytes().replace(b'"input": "Polled"', b'"input": "Pol', 1)
    (board.root / "damaged.jsonl").write_bytes(damaged)
    complaint = board.symphony("replay", str(board.root / "damaged.jsonl"))
    assert complaint.returncode == 1
    assert complaint.stderr.startswith(f"error: {board.root}/damaged.jsonl: line ")
    assert complaint.stderr.count("\n") == 2


def test_only_what_is_finished_and_safe_is_cleaned(board: Project) -> None:
    with board.daemon() as daemon:
        settled(daemon)
        (row,) = [item for item in document(board, "clean")["items"] if item["name"] == "SYM-2"]
        assert row["outcome"] == "kept"
        daemon.signal(signal.SIGINT)
        daemon.signal(signal.SIGINT)
        daemon.end()
    workspace = board.workspaces / "SYM-2"
    draft = workspace / "draft.txt"
    draft.write_text("work")
    board.issue("SYM-2", title="Wait", state="Done")
    for arguments in (("clean", "--dry-run"), ("clean",)):
        (row,) = [item for item in document(board, *arguments)["items"] if item["name"] == "SYM-2"]
        assert row["outcome"] == "kept"
    assert draft.is_file()


def test_what_happened_is_told_with_and_without_the_daemon(board: Project) -> None:
    with board.daemon() as daemon:
        settled(daemon)
        known = "claim released"
        until(lambda: True if known in told(board, "logs", "SYM-1") else None, daemon.log.read_text)
        live = told(board, "logs", "SYM-1")
        assert "── run " in live
        assert " succeeded after " in live
        told_as_json = [json.loads(line) for line in told(board, "logs", "SYM-1", "--json").splitlines()]
        assert {line["type"] for line in told_as_json} == {"event", "run_began", "run_ended"}
        (release,) = document(board, "skills", "report")["skills"]
        assert (release["name"], release["listed"], release["seen"]) == ("release", 2, 0)
        assert release["outcomes"] == {"succeeded": 1, "running": 1}
        until(lambda: True if "Looking" in told(board, "logs", "SYM-2") else None, daemon.log.read_text)
        assert "Looking at the login page with ***" in told(board, "logs", "SYM-2")
        following = board.start("logs", "SYM-2", "-f")
        assert following.stdout is not None
        first = following.stdout.readline()
        (board.root / "release").touch()
        board.issue("SYM-2", title="Wait", state="Done")
        daemon.wait_for("run_ended", issue_identifier="SYM-2")
        daemon.signal(signal.SIGTERM)
        daemon.end()
        rest, _ = following.communicate(timeout=60)
        assert following.returncode == 0
        assert "succeeded after" in first + rest or "stopped: the issue is closed" in first + rest
    assert told(board, "logs", "SYM-1") == live
    assert "no stderr" in board.symphony("logs", "SYM-1", "--stderr").stderr

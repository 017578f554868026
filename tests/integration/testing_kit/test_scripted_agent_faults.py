import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kit.raw_client import RawClient
from symphony.testing.scripted_agent.protocol import GARBAGE
from symphony.testing.scripted_agent.script import block

Start = Callable[..., RawClient]


def test_it_can_ignore_the_end_of_its_input(scripted: Start, workspace: Path) -> None:
    client = scripted("--ignore-eof")
    client.start_turn(client.open_thread(workspace), block([{"wait_for": "go"}]))
    client.close_stdin()
    (workspace / "go").touch()
    assert client.until_method("turn/completed")["params"]["turn"]["status"] == "completed"
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(60) == 0


def test_it_can_ignore_sigterm(scripted: Start, workspace: Path) -> None:
    client = scripted("--ignore-sigterm")
    client.open_thread(workspace)
    client.process.send_signal(signal.SIGTERM)
    assert "result" in client.call("account/read")
    client.process.kill()
    assert client.process.wait(60) == -signal.SIGKILL


def test_it_can_write_garbage_between_frames(scripted: Start, workspace: Path) -> None:
    client = scripted("--garbage")
    assert client.run_turn(client.open_thread(workspace), "x")["status"] == "completed"
    unreadable = [line for line in GARBAGE if not line.startswith((b'{"method": 7', b'{"id"'))]
    assert client.noise == unreadable * 2


def test_it_can_cut_lines_into_pieces(scripted: Start, workspace: Path) -> None:
    client = scripted("--split-lines")
    text = "ä€😀" * 50
    ended = client.run_turn(client.open_thread(workspace), block([{"say": text}]))
    assert ended["items"][0]["text"] == text
    assert client.noise == []


def test_it_can_write_a_huge_line(scripted: Start, workspace: Path) -> None:
    client = scripted("--huge-line", "10000000")
    assert client.run_turn(client.open_thread(workspace), "x")["status"] == "completed"
    assert max(len(item["text"]) for item in client.items("agentMessage")) == 10_000_000


@pytest.mark.parametrize("method", ["turn/start", "turn/started"])
def test_it_can_fall_silent(scripted: Start, workspace: Path, method: str) -> None:
    client = scripted("--silent-after", method)
    thread = client.open_thread(workspace)
    asked = {"threadId": thread, "input": [{"type": "text", "text": block([{"write": "done", "text": ""}])}]}
    client.send({"method": "turn/start", "id": 99, "params": asked})
    if method == "turn/started":
        client.until_method("turn/started")
    client.process.send_signal(signal.SIGTERM)
    with pytest.raises(EOFError):
        client.until_method("turn/completed")
    assert any(frame.get("id") == 99 for frame in client.frames) == (method == "turn/started")


@pytest.mark.parametrize(("switch", "code"), [("turn/start:7", 7), ("turn/started", 1)])
def test_it_can_end_in_the_middle(scripted: Start, workspace: Path, switch: str, code: int) -> None:
    client = scripted("--exit-on", switch)
    thread = client.open_thread(workspace)
    client.send({"method": "turn/start", "id": 99, "params": {"threadId": thread, "input": []}})
    with pytest.raises(EOFError):
        client.until_method("turn/completed")
    assert client.process.wait(60) == code


def test_it_can_flood_stderr(scripted: Start, workspace: Path) -> None:
    client = scripted("--stderr-flood", "1000000")
    client.open_thread(workspace)
    assert (workspace.parent / "stderr.log").stat().st_size == 1_000_000


@pytest.mark.parametrize(
    ("answer", "status"),
    [({"error": {"code": -32601, "message": "unknown"}}, "completed"), ({"result": {}}, "failed")],
)
def test_it_can_ask_what_nobody_knows_and_only_an_error_is_right(
    scripted: Start, workspace: Path, answer: dict[str, object], status: str
) -> None:
    client = scripted("--unknown-request")
    client.start_turn(client.open_thread(workspace), "x")
    asked = client.until_method("scripted/unknownRequest")
    client.send({"id": asked["id"], **answer})
    assert client.until_method("turn/completed")["params"]["turn"]["status"] == status


def test_it_can_leave_a_child_of_its_own_session_and_notes_both(
    scripted: Start, workspace: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "pids"
    client = scripted("--own-session-child", "--pid-file", str(notes), "--slow-start", "1")
    client.open_thread(workspace)
    noted = {each["role"]: each for each in (json.loads(path.read_text()) for path in notes.glob("*.json"))}
    child = psutil.Process(noted["child"]["pid"])
    try:
        assert noted["agent"]["pid"] == client.process.pid
        assert noted["agent"]["run_id"] == noted["child"]["run_id"] == f"run-{os.getpid()}"
        assert "--own-session-child" in noted["agent"]["argv"]
        assert noted["agent"]["cwd"] == str(workspace)
        assert child.environ()["SYMPHONY_RUN_ID"] == f"run-{os.getpid()}"
        assert os.getsid(child.pid) == child.pid
        ignored = Path(f"/proc/{child.pid}/status").read_text().split("SigIgn:")[1].split()[0]
        assert int(ignored, 16) & 1 << (signal.SIGTERM - 1)
        client.close_stdin()
        assert client.process.wait(60) == 0
        assert child.is_running()
    finally:
        child.kill()

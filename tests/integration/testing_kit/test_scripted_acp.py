"""The scripted agent's side of the Agent Client Protocol, talked to line by line."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import symphony
from kit.raw_client import RawClient
from symphony.testing.scripted_agent.script import block

PATH = f"{Path(__file__).parents[2]}:{Path(symphony.__file__).parents[1]}"
Start = Callable[..., RawClient]


@pytest.fixture
def speaker(workspace: Path, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(*switches: str, **variables: str) -> RawClient:
            argv = [sys.executable, "-P", "-m", "kit.speakers.acp", *switches]
            env = {**os.environ, "PYTHONPATH": PATH, **variables}
            client = RawClient(argv, cwd=workspace, env=env, stderr=tmp_path / "stderr.log")
            return stack.enter_context(client)

        yield start


def opened(client: RawClient, workspace: Path, **more: Any) -> str:
    client.call("initialize", {"protocolVersion": 1})
    answer = client.call("session/new", {"cwd": str(workspace), "mcpServers": [], **more})
    return str(answer["result"]["sessionId"])


def prompted(client: RawClient, session: str, text: str) -> dict[str, Any]:
    prompt = [{"type": "text", "text": text}]
    return client.call("session/prompt", {"sessionId": session, "prompt": prompt})


def updates(client: RawClient, kind: str) -> list[dict[str, Any]]:
    told = [frame["params"]["update"] for frame in client.frames if frame.get("method") == "session/update"]
    return [update for update in told if update["sessionUpdate"] == kind]


def test_a_turn_is_told_in_updates_and_ends_with_its_tokens(speaker: Start, workspace: Path) -> None:
    client = speaker()
    session = opened(client, workspace)
    answer = prompted(
        client, session, block([{"write": "a.txt", "text": "a"}, {"run": ["true"]}, {"say": "done"}])
    )
    assert answer["result"]["stopReason"] == "end_turn"
    usage = answer["result"]["usage"]
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"] > 0
    assert all(frame["jsonrpc"] == "2.0" for frame in client.frames)
    assert [each["kind"] for each in updates(client, "tool_call")] == ["edit", "execute"]
    assert [each["status"] for each in updates(client, "tool_call_update")] == ["completed", "completed"]
    assert "done" in "".join(each["content"]["text"] for each in updates(client, "agent_message_chunk"))
    assert (workspace / "a.txt").read_text("utf-8") == "a"
    again = prompted(client, session, block([{"say": "x"}]))["result"]["usage"]
    assert again["totalTokens"] < usage["totalTokens"]


@pytest.mark.parametrize(
    ("option", "ran", "stop"),
    [("yes-once", True, "end_turn"), ("no", False, "end_turn"), ("", False, "cancelled")],
)
def test_a_permission_is_asked_for_and_heeded(
    speaker: Start, workspace: Path, *, option: str, ran: bool, stop: str
) -> None:
    client = speaker()
    session = opened(client, workspace)
    prompt = [{"type": "text", "text": block([{"ask_approval": "touch made"}])}]
    client.send({"id": 90, "method": "session/prompt", "params": {"sessionId": session, "prompt": prompt}})
    asked = client.until_method("session/request_permission")
    assert {each["kind"] for each in asked["params"]["options"]} == {
        "allow_once",
        "allow_always",
        "reject_once",
    }
    outcome = {"outcome": "selected", "optionId": option} if option else {"outcome": "cancelled"}
    client.send({"id": asked["id"], "result": {"outcome": outcome}})
    ended = client.until(lambda frame: frame.get("id") == 90 and "result" in frame)
    assert ended["result"]["stopReason"] == stop
    assert (workspace / "made").exists() is ran


def test_a_cancelled_turn_says_so(speaker: Start, workspace: Path) -> None:
    client = speaker("--usage", "quota")
    session = opened(client, workspace)
    prompt = [{"type": "text", "text": block([{"run": "touch began; sleep 1000"}])}]
    client.send({"method": "session/cancel", "params": {"sessionId": session}})
    client.send({"id": 90, "method": "session/prompt", "params": {"sessionId": session, "prompt": prompt}})
    client.until(lambda _: bool(updates(client, "tool_call")))
    client.send({"method": "session/cancel", "params": {"sessionId": session}})
    ended = client.until(lambda frame: frame.get("id") == 90 and "result" in frame)
    assert ended["result"]["stopReason"] == "cancelled"
    assert "token_count" in ended["result"]["_meta"]["quota"]


def test_it_can_be_like_agents_that_refuse(speaker: Start, workspace: Path) -> None:
    locked = speaker("--no-login")
    locked.call("initialize", {})
    assert locked.call("session/new", {"cwd": str(workspace)})["error"]["code"] == -32_000
    assert locked.call("what/is/this")["error"]["code"] == -32_601
    stubborn = speaker("--refuse-prompt", "429")
    refused = prompted(stubborn, opened(stubborn, workspace), "x")
    assert refused["error"]["data"] == {"details": "429"}
    failing = speaker("--usage", "none")
    session = opened(failing, workspace)
    failed = prompted(failing, session, block([{"fail": "no"}]))
    assert failed["error"]["data"]["details"] == "no"
    asked = block([{"tool": "t", "may_fail": True}, {"say": "on"}])
    assert prompted(failing, session, asked)["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize("by", ["load", "resume"])
def test_a_session_is_remembered(speaker: Start, workspace: Path, tmp_path: Path, by: str) -> None:
    threads = ("--threads", str(tmp_path / "threads"), "--resume-by", by)
    first = speaker(*threads)
    session = opened(first, workspace, _meta={"systemPrompt": {"append": "old"}})
    prompted(first, session, block([{"say": "1"}], [{"say": "2"}]))
    second = speaker(*threads)
    greeting = second.call("initialize", {})["result"]["agentCapabilities"]
    assert greeting["loadSession"] is (by == "load")
    asked = {"cwd": str(workspace), "mcpServers": [], "sessionId": session}
    assert second.call(f"session/{by}", asked)["result"]["sessionId"] == session
    assert prompted(second, session, "go on")["result"]["stopReason"] == "end_turn"
    assert "2" in "".join(each["content"]["text"] for each in updates(second, "agent_message_chunk"))
    asked["sessionId"] = "unknown"
    assert "no rollout" in second.call(f"session/{by}", asked)["error"]["data"]["details"]
    broken = speaker("--resume-by", "broken-load")
    broken.call("initialize", {})
    assert "error" in broken.call("session/load", asked)


def test_system_text_may_come_by_a_file_and_files_may_be_asked_for(
    speaker: Start, workspace: Path, tmp_path: Path
) -> None:
    skill = workspace / "greet" / "SKILL.md"
    skill.parent.mkdir()
    skill.write_text("value: hello\n", "utf-8")
    told = tmp_path / "told.md"
    told.write_text(f"## Available skills\n\nRead {workspace}/<name>/SKILL.md.\n\n- greet: when\n", "utf-8")
    client = speaker("--asks-for-files", SCRIPTED_ACP_INSTRUCTIONS=str(told))
    session = opened(client, workspace)
    steps = [{"skill": "greet", "value_of": "value"}, {"write": "a.txt", "text": "{skill_value}"}]
    assert prompted(client, session, block(steps))["result"]["stopReason"] == "end_turn"
    assert "fs/write_text_file" in client.methods()
    assert (workspace / "a.txt").read_text("utf-8") == "hello"
    assert client.call("session/set_mode", {"modeId": "careful"})["result"] == {}

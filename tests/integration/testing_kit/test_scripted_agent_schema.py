from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.app_server_schema import AppServerSchema
from kit.raw_client import RawClient
from symphony.testing.scripted_agent.script import block

pytestmark = pytest.mark.real_codex

EVERYTHING = block(
    [
        {"say": "hello"},
        {"write": "a.txt", "text": "one\n"},
        {"write": "a.txt", "text": "two\n"},
        {"append": "a.txt", "text": "three\n"},
        {"run": "echo out; exit 3", "may_fail": True},
        {"run": ["no-such-program"], "may_fail": True},
        {"commit": "all"},
        {"tool": "board_move", "arguments": {"state": "Done"}},
        {"tool": "no_such_tool", "may_fail": True},
        {"ask_approval": "true"},
        {"ask_approval": "true"},
        {"ask_input": "Which one?"},
        {"sleep_ms": 1},
        {"fail": "enough"},
    ]
)
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "item/tool/call": [
        {"result": {"success": True, "contentItems": [{"type": "inputText", "text": "moved"}]}},
        {"error": {"code": -32000, "message": "no such tool"}},
    ],
    "item/commandExecution/requestApproval": [
        {"result": {"decision": "accept"}},
        {"result": {"decision": "decline"}},
    ],
    "item/tool/requestUserInput": [{"result": {"answers": {"q1": {"answers": ["A"]}}}}],
}


def test_every_frame_of_the_scripted_agent_is_one_that_codex_could_send(
    scripted: Callable[..., RawClient], workspace: Path, schema: AppServerSchema
) -> None:
    client = scripted()
    handshake = {"clientInfo": {"name": "t", "version": "0"}, "capabilities": {"experimentalApi": True}}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("initialize", handshake),
        ("account/read", {}),
        ("command/exec", {"command": ["echo", "hi"]}),
        ("thread/start", {"cwd": str(workspace), "approvalPolicy": "never", "sandbox": "workspace-write"}),
    ]
    differences: list[str] = []
    for method, params in asked:
        differences += schema.of_server(client.call(method, params), answers=method)
    thread = next(
        frame["result"]["thread"]["id"] for frame in client.frames if "thread" in frame.get("result", {})
    )
    content = [{"type": "text", "text": EVERYTHING}]
    started = client.call("turn/start", {"threadId": thread, "input": content})
    differences += schema.of_server(started, answers="turn/start")
    answers = {method: iter(each) for method, each in ANSWERS.items()}
    while True:
        frame = client.until(lambda frame: "method" in frame)
        if "id" in frame:
            client.send({"id": frame["id"], **next(answers[frame["method"]])})
        if frame["method"] == "turn/completed":
            break
    differences += [note for frame in client.frames for note in schema.of_server(frame)]

    assert differences == []
    assert frame["params"]["turn"]["error"]["message"] == "enough"
    assert all(next(left, None) is None for left in answers.values())


def test_the_client_frames_of_these_tests_are_ones_that_codex_understands(schema: AppServerSchema) -> None:
    content = [{"type": "text", "text": "x"}]
    frames: list[dict[str, Any]] = [
        {"method": "turn/start", "id": 1, "params": {"threadId": "t", "input": content}},
        {"method": "initialized"},
    ]
    assert [schema.of_client(frame) for frame in frames] == [(), ()]


def test_a_frame_that_codex_would_never_send_is_noticed(schema: AppServerSchema) -> None:
    wrong = {"method": "turn/completed", "params": {"threadId": 7, "turn": {"id": "x", "items": []}}}
    assert schema.of_server(wrong) == (
        "$.params.threadId: int instead of string",
        "$.params.turn: no 'status'",
    )

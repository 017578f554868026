import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.shell import word
from kit.raw_client import RawClient
from symphony.testing.scripted_agent import NO_MODEL
from symphony.testing.scripted_agent.script import block

Start = Callable[..., RawClient]


def turn_of(client: RawClient) -> dict[str, Any]:
    turn: dict[str, Any] = client.until_method("turn/completed")["params"]["turn"]
    return turn


def statuses(client: RawClient) -> list[object]:
    changes = [frame for frame in client.frames if frame.get("method") == "thread/status/changed"]
    return [change["params"]["status"].get("activeFlags", "ended") for change in changes]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"fail": "enough"}], "enough"),
        ([{"skill": "tidy"}], "skill 'tidy' is not listed under '## Available skills'"),
        ([{"write": "../outside", "text": ""}], "'../outside' is not below the workspace"),
        ([{"write": "/etc/outside", "text": ""}], "'/etc/outside' is not below the workspace"),
        ([{"run": "echo why >&2; exit 3"}], "ended with 3: why"),
        ([{"run": ["no-such-program"]}], "no-such-program ended with 127: "),
        ([{"say": "{skill_value}"}], "{skill_value} is used before a skill with a value was read"),
        ([{"wrong": 1}], "scripted block: turn 1, step 1 needs exactly one of"),
        ([{"write": ".git", "text": ""}], "Is a directory"),
    ],
)
def test_a_step_that_cannot_be_done_fails_the_turn_and_says_why(
    scripted: Start, workspace: Path, steps: list[dict[str, Any]], message: str
) -> None:
    client = scripted()
    ended = client.run_turn(client.open_thread(workspace), block(steps))
    assert ended["status"] == "failed"
    assert message in ended["error"]["message"]
    errors = [frame["params"] for frame in client.frames if frame.get("method") == "error"]
    assert [(each["error"], each["willRetry"]) for each in errors] == [(ended["error"], False)]
    assert not (workspace.parent / "outside").exists()


def test_a_listed_skill_that_is_not_there_fails_the_turn(scripted: Start, workspace: Path) -> None:
    listed = f"## Available skills\nRead `{workspace}/s/<directory>/SKILL.md`.\n- tidy — always\n"
    client = scripted()
    thread = client.open_thread(workspace, developerInstructions=listed)
    ended = client.run_turn(thread, block([{"skill": "tidy"}]))
    assert ended["status"] == "failed"
    assert "skill 'tidy' cannot be read: cat: " in ended["error"]["message"]
    assert f"{workspace}/s/tidy/SKILL.md" in ended["error"]["message"]


def test_a_skill_without_the_wanted_line_fails_the_turn_and_without_a_wish_is_only_read(
    scripted: Start, workspace: Path
) -> None:
    listed = f"## Available skills\nRead `{workspace}/s/<directory>/SKILL.md`.\n- tidy — always\n"
    (workspace / "s/tidy").mkdir(parents=True)
    (workspace / "s/tidy/SKILL.md").write_text("---\nname: tidy\n---\nBe tidy.\n")
    client = scripted()
    thread = client.open_thread(workspace, developerInstructions=listed)
    assert client.run_turn(thread, block([{"skill": "tidy"}]))["status"] == "completed"
    assert client.items("commandExecution")[-1]["aggregatedOutput"].endswith("Be tidy.\n")
    ended = client.run_turn(thread, block([{"skill": "tidy", "value_of": "scope"}]))
    assert "has no line 'scope: …'" in ended["error"]["message"]


def test_without_a_script_it_says_so_and_does_nothing(scripted: Start, workspace: Path) -> None:
    client = scripted()
    ended = client.run_turn(client.open_thread(workspace), "Please fix it.")
    assert ended["status"] == "completed"
    assert ended["items"][0]["text"] == (
        f"{NO_MODEL} The prompt has no ```scripted block, so there is nothing to do."
    )
    assert client.items("commandExecution") == client.items("fileChange") == []


def test_token_totals_grow_from_turn_to_turn_and_are_sums(scripted: Start, workspace: Path) -> None:
    client = scripted()
    thread = client.open_thread(workspace)
    client.run_turn(thread, block([{"say": "one"}], [{"say": "two"}]))
    client.run_turn(thread, "Go on.")
    updates = [frame for frame in client.frames if frame.get("method") == "thread/tokenUsage/updated"]
    usages = [update["params"]["tokenUsage"] for update in updates]
    assert len(usages) == 4
    assert [usage["total"]["totalTokens"] for usage in usages] == [
        sum(usage["last"]["totalTokens"] for usage in usages[: place + 1]) for place in range(4)
    ]


@pytest.mark.parametrize("step", [{"wait_for": "never"}, {"sleep_ms": 100_000}, {"run": "sleep 100"}])
def test_an_interrupt_ends_the_turn_and_the_next_one_works(
    scripted: Start, workspace: Path, step: dict[str, Any]
) -> None:
    client = scripted()
    thread = client.open_thread(workspace)
    turn = client.start_turn(thread, block([step], [{"say": "here"}]))
    client.until_method("account/rateLimits/updated")
    assert client.call("turn/interrupt", {"threadId": thread, "turnId": "other"})["error"]["code"] == -32600
    assert client.call("turn/interrupt", {"threadId": thread, "turnId": turn})["result"] == {}
    assert turn_of(client)["status"] == "interrupted"
    assert client.run_turn(thread, "Go on.")["items"][0]["text"] == "here"


def test_waiting_for_a_path_ends_when_it_exists(scripted: Start, workspace: Path) -> None:
    client = scripted()
    client.start_turn(client.open_thread(workspace), block([{"wait_for": "../go"}]))
    client.until_method("account/rateLimits/updated")
    (workspace.parent / "go").touch()
    assert turn_of(client)["status"] == "completed"


@pytest.mark.parametrize(
    ("answer", "item", "turn"),
    [
        ({"result": {"decision": "acceptForSession"}}, "completed", "completed"),
        ({"result": {"decision": "decline"}}, "declined", "completed"),
        ({"result": {"decision": "cancel"}}, "declined", "interrupted"),
        ({"error": {"code": -32601, "message": "no"}}, "declined", "completed"),
    ],
)
def test_an_approval_is_asked_for_and_obeyed(
    scripted: Start, workspace: Path, answer: dict[str, Any], item: str, turn: str
) -> None:
    client = scripted()
    client.start_turn(client.open_thread(workspace), block([{"ask_approval": "touch granted"}]))
    asked = client.until_method("item/commandExecution/requestApproval")
    client.send({"id": asked["id"], **answer})
    assert turn_of(client)["status"] == turn
    assert [each["status"] for each in client.items("commandExecution")] == [item]
    assert (workspace / "granted").exists() == (item == "completed")
    assert statuses(client) == [[], ["waitingOnApproval"], [], "ended"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"result": {"answers": {"q1": {"answers": ["A", "B"]}}}}, "Answered: A, B"),
        ({"error": {"code": -32601, "message": "no"}}, "Nobody answered."),
    ],
)
def test_a_person_is_asked(scripted: Start, workspace: Path, answer: dict[str, Any], said: str) -> None:
    client = scripted()
    client.start_turn(client.open_thread(workspace), block([{"ask_input": "Which?"}]))
    asked = client.until_method("item/tool/requestUserInput")
    assert asked["params"]["questions"][0]["question"] == "Which?"
    client.send({"id": asked["id"], **answer})
    assert turn_of(client)["items"][0]["text"] == said


def test_an_unanswered_question_is_left_by_an_interrupt(scripted: Start, workspace: Path) -> None:
    client = scripted()
    thread = client.open_thread(workspace)
    turn = client.start_turn(thread, block([{"ask_input": "Which?"}]))
    client.until_method("item/tool/requestUserInput")
    client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
    assert turn_of(client)["status"] == "interrupted"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"result": {"success": False, "contentItems": [{"type": "inputText", "text": "no state X"}]}},
            "tool 'board_move' failed: no state X",
        ),
        ({"error": {"code": -32000, "message": "broken"}}, "tool 'board_move' failed: broken"),
    ],
)
def test_a_tool_that_fails_fails_the_turn_unless_it_may(
    scripted: Start, workspace: Path, answer: dict[str, Any], message: str
) -> None:
    client = scripted()
    thread = client.open_thread(workspace)
    step = {"tool": "board_move", "arguments": {"state": "X", "n": 1}}
    for may_fail, error in ((False, message), (True, None)):
        client.start_turn(thread, block([{**step, "may_fail": may_fail}]))
        client.send({"id": client.until_method("item/tool/call")["id"], **answer})
        ended = turn_of(client)
        assert (ended["error"] or {"message": None})["message"] == error
    assert [item["status"] for item in client.items("dynamicToolCall")] == ["failed", "failed"]


def test_the_script_can_end_the_process(scripted: Start, workspace: Path) -> None:
    client = scripted()
    client.start_turn(client.open_thread(workspace), block([{"exit": 9}]))
    with pytest.raises(EOFError):
        client.until_method("turn/completed")
    assert client.process.wait(60) == 9


@pytest.mark.parametrize("how", ["close stdin", "SIGTERM"])
def test_the_end_of_the_process_ends_what_it_runs(scripted: Start, workspace: Path, how: str) -> None:
    fifo = workspace.parent / "held"
    os.mkfifo(fifo)
    client = scripted()
    client.start_turn(
        client.open_thread(workspace), block([{"run": f"exec 3>{word(fifo)}; sleep 1000 & wait"}])
    )
    with fifo.open("rb") as held:
        client.close_stdin() if how == "close stdin" else client.process.send_signal(signal.SIGTERM)
        assert held.read() == b""
    assert client.process.wait(60) == 0


def test_requests_out_of_order_are_refused(scripted: Start, workspace: Path) -> None:
    client = scripted()
    start = {"cwd": str(workspace), "approvalPolicy": "never"}

    def refusal(method: str, params: dict[str, Any] | None = None) -> str:
        answer = client.call(method, params)
        assert answer["error"]["code"] == -32600
        return str(answer["error"]["message"])

    assert refusal("thread/start", start) == "Not initialized"
    assert "unknown variant `nope`" in refusal("nope")
    agent = client.call("initialize", {"clientInfo": {"name": "t", "version": "0"}})["result"]["userAgent"]
    assert agent.startswith("symphony-scripted-agent/")
    assert refusal("initialize") == "Already initialized"
    assert "requires experimentalApi" in refusal("thread/start", {**start, "dynamicTools": [{"name": "x"}]})
    assert "unknown variant `on-failure`" in refusal(
        "thread/start", {**start, "approvalPolicy": "on-failure"}
    )
    assert "unknown variant `none`" in refusal("thread/start", {**start, "sandbox": "none"})
    assert "thread not found" in refusal("turn/start", {"threadId": "x", "input": []})
    assert refusal("turn/interrupt", {"threadId": "x", "turnId": "y"}) == "no active turn to interrupt"
    assert "authentication required" in refusal("account/rateLimits/read")
    assert refusal("command/exec", {"command": []}) == "command must not be empty"
    assert "failed to spawn" in refusal("command/exec", {"command": ["no-such-program"]})
    client.send_bytes(b"no json\n[]\n{}\n" + b'{"id": "text", "result": {}}\n')
    assert client.call("account/read")["result"] == {"account": None, "requiresOpenaiAuth": False}


def test_a_turn_start_during_a_turn_joins_it(scripted: Start, workspace: Path) -> None:
    client = scripted()
    thread = client.open_thread(workspace, sandbox="danger-full-access")
    turn = client.start_turn(thread, block([{"wait_for": "go"}]))
    assert client.start_turn(thread, "And this.") == turn
    (workspace / "go").touch()
    assert turn_of(client)["status"] == "completed"
    assert client.methods().count("turn/started") == 1


def test_it_warns_that_there_is_no_sandbox_and_commands_really_run_without(
    scripted: Start, workspace: Path
) -> None:
    client = scripted()
    client.open_thread(workspace)
    warning = next(frame for frame in client.frames if frame.get("method") == "configWarning")
    assert warning["params"]["summary"].startswith(NO_MODEL)
    assert "no sandbox" in warning["params"]["summary"]
    outside = workspace.parent / "outside"
    asked = {"command": ["sh", "-c", f"echo hi; touch {word(outside)}; exit 4"], "cwd": str(workspace)}
    assert client.call("command/exec", asked)["result"] == {"exitCode": 4, "stdout": "hi\n", "stderr": ""}
    assert outside.exists()

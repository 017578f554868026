import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.app_server_schema import AppServerSchema
from kit.codex_home import CodexHome, codex_home
from kit.model_server import (
    Answer,
    Cut,
    FunctionCall,
    Hang,
    ModelServer,
    Recorded,
    Scenario,
    Step,
    Text,
    context_full,
    edit_and_commit,
    patch,
    rate_limit_headers,
    rate_limited,
    say,
    server_error,
    shell,
    tool,
    unauthorized,
    usage_limit,
)
from kit.raw_client import RawClient

pytestmark = pytest.mark.real_codex
Git = Callable[..., str]
BLOCK = (
    "## Available skills\nRead `/ws/.symphony/skills/<directory>/SKILL.md` first.\n- tidy — before a commit"
)


def start(codex: Path, home: CodexHome, workspace: Path) -> RawClient:
    argv = [str(codex), "app-server"]
    return RawClient(argv, cwd=workspace, env=home.env, stderr=workspace.parent / "codex.log")


def recipe(workspace: Path) -> dict[str, Any]:
    """The sandbox that allows a commit and closes the temp directories."""
    return {
        "type": "workspaceWrite",
        "writableRoots": [str(workspace / ".git")],
        "networkAccess": False,
        "excludeTmpdirEnvVar": True,
        "excludeSlashTmp": True,
    }


def run(
    codex: Path, workspace: Path, scenario: Scenario, **thread: Any
) -> tuple[RawClient, dict[str, Any], tuple[Recorded, ...]]:
    """One turn of the real agent with one scenario."""
    headers = rate_limit_headers(primary_used_percent=42.5)
    with ModelServer({"it": scenario}, headers=headers) as server, codex_home(server.base_url) as home:
        with start(codex, home, workspace) as client:
            thread_id = client.open_thread(workspace, **thread)
            ended = client.run_turn(thread_id, "Please [[it]].", sandboxPolicy=recipe(workspace))
        return client, ended, server.requests


def test_a_turn_writes_a_file_and_commits_inside_the_sandbox(codex: Path, workspace: Path, git: Git) -> None:
    scenario = edit_and_commit("docs/it's.txt", "50 % done\n", "docs: it's here")
    client, ended, requests = run(codex, workspace, scenario)

    assert ended["status"] == "completed"
    assert (workspace / "docs/it's.txt").read_text() == "50 % done\n"
    assert git("log", "-1", "--format=%s") == "docs: it's here"
    assert [each.step for each in requests] == [0, 1, 2]
    usage = [frame for frame in client.frames if frame.get("method") == "thread/tokenUsage/updated"]
    assert usage[-1]["params"]["tokenUsage"]["total"]["inputTokens"] == 300
    limits = [frame for frame in client.frames if frame.get("method") == "account/rateLimits/updated"]
    assert limits[-1]["params"]["rateLimits"]["primary"]["usedPercent"] == 43


def test_the_developer_instructions_arrive_once_in_a_developer_message_before_its_own_skills(
    codex: Path, workspace: Path
) -> None:
    _, _, requests = run(codex, workspace, (say("ok"),), developerInstructions=BLOCK)

    messages = [item for item in requests[0].body["input"] if item["type"] == "message"]
    parts = [
        (message["role"], place, part["text"])
        for message in messages
        for place, part in enumerate(message["content"])
    ]
    ours = [(role, place) for role, place, text in parts if text == BLOCK]
    assert ours == [("developer", 0)]
    assert sum(text.count(BLOCK) for _, _, text in parts) == 1
    texts = [text for _, _, text in parts]
    assert texts.index(BLOCK) < next(
        place for place, text in enumerate(texts) if "<skills_instructions>" in text
    )


def test_several_blocks_at_once_and_a_patch_are_understood(codex: Path, workspace: Path) -> None:
    both = Answer(
        blocks=(
            Text(text="Looking."),
            FunctionCall(name="exec_command", arguments={"cmd": "echo one > one.txt"}),
            FunctionCall(name="exec_command", arguments={"cmd": "echo two > two.txt"}),
        ),
        delta_ms=1,
    )
    scenario = (both, say("unused"), patch("*** Add File: three.txt\n+three"), say("Done."))
    client, ended, _ = run(codex, workspace, scenario)

    assert ended["status"] == "completed"
    assert [(workspace / f"{name}.txt").read_text().strip() for name in ("one", "two", "three")] == [
        "one",
        "two",
        "three",
    ]
    assert [item["text"] for item in client.items("agentMessage")] == ["Looking.", "Done."]


def test_a_tool_of_the_client_goes_round(codex: Path, workspace: Path, schema: AppServerSchema) -> None:
    scenario = (tool("board_move", {"state": "Done"}), say("Moved."))
    spec = {
        "type": "function",
        "name": "board_move",
        "description": "Move the issue.",
        "inputSchema": {"type": "object", "properties": {"state": {"type": "string"}}},
    }
    answer = {"success": True, "contentItems": [{"type": "inputText", "text": "moved"}]}
    with ModelServer({"it": scenario}) as server, codex_home(server.base_url) as home:
        with start(codex, home, workspace) as client:
            thread = client.open_thread(workspace, dynamicTools=[spec])
            client.start_turn(thread, "[[it]]")
            asked = client.until_method("item/tool/call")
            client.send({"id": asked["id"], "result": answer})
            client.until_method("turn/completed")
        last = server.requests[-1].body["input"][-1]
    assert asked["params"]["arguments"] == {"state": "Done"}
    assert last["output"] == "moved"
    assert schema.of_server(asked) == ()


@pytest.mark.parametrize(
    ("step", "info"),
    [
        (unauthorized(), {"httpConnectionFailed": {"httpStatusCode": 401}}),
        (rate_limited(), {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}),
        (usage_limit(), "usageLimitExceeded"),
        (context_full(), "contextWindowExceeded"),
        (server_error(), "internalServerError"),
        (Cut(), "other"),
    ],
    ids=["unauthorized", "rate limited", "usage limit", "context full", "server error", "cut"],
)
def test_an_error_of_the_model_fails_the_turn_with_its_class(
    codex: Path, workspace: Path, step: Step, info: object
) -> None:
    _, ended, _ = run(codex, workspace, (step,))
    assert ended["status"] == "failed"
    assert ended["error"]["codexErrorInfo"] == info


@pytest.mark.parametrize("step", [Hang(), Hang(after_start=True)], ids=["before", "after the start"])
def test_a_hanging_model_is_left_by_an_interrupt(codex: Path, workspace: Path, step: Step) -> None:
    with (
        ModelServer({"it": (step,)}) as server,
        codex_home(server.base_url) as home,
        start(codex, home, workspace) as client,
    ):
        thread = client.open_thread(workspace)
        turn = client.start_turn(thread, "[[it]]")
        server.wait_for(1)
        client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        ended = client.until_method("turn/completed")
    assert ended["params"]["turn"]["status"] == "interrupted"


def test_an_unmarked_prompt_gets_a_harmless_answer(codex: Path, workspace: Path, git: Git) -> None:
    with ModelServer() as server, codex_home(server.base_url) as home:
        with start(codex, home, workspace) as client:
            ended = client.run_turn(client.open_thread(workspace), "Continue.")
        assert [each.scenario for each in server.requests] == [None]
    assert ended["status"] == "completed"
    assert git("status", "--porcelain") == ""


def test_the_home_is_accepted_and_removed(codex: Path) -> None:
    with codex_home("http://127.0.0.1:9/v1") as home:
        ended = subprocess.run(
            [codex, "--version"], env=dict(home.env), capture_output=True, text=True, check=True
        )
        assert ended.stdout.startswith("codex-cli ")
        assert "temp" not in ended.stderr
    assert not home.path.exists()


def test_every_kind_of_step_is_sent_as_the_schema_says(
    codex: Path, workspace: Path, schema: AppServerSchema
) -> None:
    """The positive control of the comparison: frames of the real agent fit its own schema."""
    client, _, _ = run(codex, workspace, (shell("true"), patch("*** Add File: a\n+a"), say("Done.")))
    differences = [note for frame in client.frames for note in schema.of_server(frame)]
    assert differences == []

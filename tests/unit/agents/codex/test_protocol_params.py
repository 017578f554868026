from pathlib import Path
from typing import Any

import pytest

from symphony.agents.codex import protocol
from symphony.agents.json_fields import Json
from symphony.config import CodexSettings
from symphony.domain import ToolSpec

CWD = Path("/root-of/MT-1")
RECIPE = {
    "type": "workspaceWrite",
    "writableRoots": ["/root-of/MT-1/.git"],
    "networkAccess": False,
    "excludeTmpdirEnvVar": True,
    "excludeSlashTmp": True,
}


def thread(settings: CodexSettings, *tools: ToolSpec, envelope: str | None = None) -> Json:
    return protocol.thread_start(settings, cwd=CWD, envelope=envelope, tools=tools, credentials=["B", "A"])


@pytest.mark.conformance("A-3")
def test_the_defaults_are_the_documented_posture() -> None:
    started = thread(CodexSettings())
    assert (started["approvalPolicy"], started["sandbox"], started["cwd"]) == (
        "never",
        "workspace-write",
        str(CWD),
    )
    assert started["config"] == {
        "allow_login_shell": False,
        "shell_environment_policy": {"exclude": ["A", "B"]},
    }
    assert not {"model", "developerInstructions", "dynamicTools"} & set(started)


def test_the_agents_own_list_of_skills_is_left_alone_unless_it_is_switched_off() -> None:
    assert "skills" not in thread(CodexSettings())["config"]
    off = protocol.thread_start(
        CodexSettings(), cwd=CWD, envelope=None, tools=(), credentials=[], agent_lists_skills=False
    )
    assert off["config"]["skills"] == {"include_instructions": False}


@pytest.mark.conformance("A-12")
def test_model_envelope_and_tools_are_sent_when_there_are_any() -> None:
    tool = ToolSpec(name="t", description="d", input_schema={"type": "object"})
    started = thread(CodexSettings(model="m"), tool, envelope="text")
    assert (started["model"], started["developerInstructions"]) == ("m", "text")
    assert started["dynamicTools"] == [
        {"type": "function", "name": "t", "description": "d", "inputSchema": {"type": "object"}}
    ]


@pytest.mark.conformance("A-3")
@pytest.mark.parametrize(
    ("settings", "sandbox"),
    [
        ({}, RECIPE),
        ({"thread_sandbox": "danger-full-access"}, {"type": "dangerFullAccess"}),
        ({"thread_sandbox": "read-only"}, {"type": "readOnly"}),
        ({"turn_sandbox_policy": {"type": "custom", "x": [1]}}, {"type": "custom", "x": [1]}),
    ],
)
def test_the_sandbox_goes_with_every_turn(settings: dict[str, Any], sandbox: dict[str, Any]) -> None:
    turn = protocol.turn_start(CodexSettings(**settings), thread_id="t", cwd=CWD, prompt="p")
    assert turn == {
        "threadId": "t",
        "input": [{"type": "text", "text": "p"}],
        "cwd": str(CWD),
        "sandboxPolicy": sandbox,
    }


def test_a_sandbox_mode_that_we_do_not_know_is_left_to_the_agent() -> None:
    settings = CodexSettings(thread_sandbox="something-new")
    assert "sandboxPolicy" not in protocol.turn_start(settings, thread_id="t", cwd=CWD, prompt="p")


def test_an_envelope_that_codex_would_cut_goes_in_parts_that_no_other_text_shares() -> None:
    def parts(envelope: str) -> dict[str, str]:
        turn = protocol.turn_start(CodexSettings(), thread_id="t", cwd=CWD, prompt="p", envelope=envelope)
        return {key: part["value"] for key, part in turn["additionalContext"].items()}

    assert parts("short\n") == {"symphony": "short\n"}
    rest = "".join(f"rule ä{number}\n" for number in range(900)) + "💥" * 5_000
    one, other = parts(f"PLAN\n{rest}"), parts(f"TEST\n{rest}")
    assert "".join(one.values()) == f"PLAN\n{rest}"
    assert list(one) == sorted(one)
    assert max(len(part.encode()) for part in one.values()) <= 3_500
    assert one.keys().isdisjoint(other)


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, {"type": "readOnly"}),
        ({"turn_sandbox_policy": {"type": "workspaceWrite", "networkAccess": True}}, {"type": "readOnly"}),
        ({"thread_sandbox": "danger-full-access"}, {"type": "dangerFullAccess"}),
        ({"turn_sandbox_policy": {"type": "custom"}}, {"type": "custom"}),
    ],
)
def test_a_session_that_only_reads_has_a_sandbox_for_that_where_it_has_one(
    settings: dict[str, Any], policy: Json
) -> None:
    found = protocol.without_writing(CodexSettings(**settings))
    assert protocol.turn_sandbox(found, Path("/w")) == policy

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kit.app_server_schema import AppServerSchema, violations
from symphony.agents.codex import protocol
from symphony.agents.codex.preflight import SCHEMAS, TRIED_VERSION, drift
from symphony.agents.codex.session import ANSWERED, REFUSED, Policy, decide, tool_answer
from symphony.agents.wire import JsonRpcCodec, RequestAnswer, ServerRequest
from symphony.config import CodexSettings
from symphony.domain import ToolResult, ToolSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from symphony.agents.json_fields import Json
    from symphony.agents.session import OnApproval

pytestmark = pytest.mark.real_codex

CWD = Path("/var/lib/symphony/MT-1")
TOOL = ToolSpec(name="board_comment", description="d", input_schema={"type": "object"})
ASKED: Mapping[str, Mapping[str, Any]] = {
    "item/commandExecution/requestApproval": {"command": "ls"},
    "item/fileChange/requestApproval": {},
    "item/permissions/requestApproval": {"permissions": {"network": {"enabled": True}}},
    "execCommandApproval": {"command": ["ls"]},
    "applyPatchApproval": {},
    "currentTime/read": {"threadId": "t"},
    "mcpServer/elicitation/request": {"message": "Name?"},
}
NAMES = {
    "item/commandExecution/requestApproval": "CommandExecutionRequestApprovalResponse",
    "item/fileChange/requestApproval": "FileChangeRequestApprovalResponse",
    "item/permissions/requestApproval": "PermissionsRequestApprovalResponse",
    "execCommandApproval": "ExecCommandApprovalResponse",
    "applyPatchApproval": "ApplyPatchApprovalResponse",
    "currentTime/read": "CurrentTimeReadResponse",
    "mcpServer/elicitation/request": "McpServerElicitationRequestResponse",
}


@pytest.fixture(scope="module")
def folder(codex: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("schema")
    AppServerSchema.generate(codex, made)
    return made


@pytest.fixture(scope="module")
def schema(folder: Path) -> AppServerSchema:
    return AppServerSchema(folder)


def sent(method: str, asked: Json) -> Any:
    return json.loads(JsonRpcCodec().request(method, asked)[1])


def thread(settings: CodexSettings, envelope: str | None = "text") -> Json:
    return protocol.thread_start(
        settings, cwd=CWD, envelope=envelope, tools=[TOOL], credentials=["OPENAI_API_KEY"]
    )


@pytest.mark.conformance("A-2")
@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("initialize", protocol.initialize()),
        ("thread/start", thread(CodexSettings())),
        (
            "thread/start",
            thread(CodexSettings(effort="high", model="m", thread_sandbox="danger-full-access"), None),
        ),
        ("turn/start", protocol.turn_start(CodexSettings(), thread_id="t", cwd=CWD, prompt="p")),
        (
            "turn/start",
            protocol.turn_start(
                CodexSettings(thread_sandbox="read-only"), thread_id="t", cwd=CWD, prompt="p"
            ),
        ),
        (
            "thread/resume",
            protocol.thread_resume(CodexSettings(model="m"), thread_id="t", cwd=CWD, credentials=["K"]),
        ),
        (
            "turn/start",
            protocol.turn_start(CodexSettings(), thread_id="t", cwd=CWD, prompt="p", envelope="text"),
        ),
        ("turn/interrupt", {"threadId": "t", "turnId": "u"}),
        ("thread/name/set", {"threadId": "t", "name": "MT-1: try"}),
        ("account/read", {"refreshToken": False}),
        ("model/list", {}),
        (
            "command/exec",
            {"command": ["true"], "cwd": "/x", "sandboxPolicy": protocol.turn_sandbox(CodexSettings(), CWD)},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_our_requests_are_valid_for_the_installed_version(
    schema: AppServerSchema, method: str, asked: Json
) -> None:
    assert schema.of_client(sent(method, asked)) == ()


@pytest.mark.conformance("A-2")
@pytest.mark.parametrize("on_approval", ["decline", "accept", "block"])
@pytest.mark.parametrize("method", ASKED)
def test_our_answers_are_valid_for_the_installed_version(
    folder: Path, method: str, on_approval: OnApproval
) -> None:
    request = ServerRequest(1, method, msgspec.Raw(json.dumps(ASKED[method]).encode()))
    policy = Policy(approval_policy="never", on_approval=on_approval, tool_names=frozenset())
    answer = decide(request, policy)
    assert isinstance(answer, RequestAnswer)
    wanted = json.loads((folder / f"{NAMES[method]}.json").read_text())
    assert list(violations(answer.result, wanted, wanted.get("definitions", {}))) == []


def test_a_tools_answer_is_valid_for_the_installed_version(schema: AppServerSchema) -> None:
    result = tool_answer("board_comment", ToolResult.of({"ok": True})).result
    assert schema.of_client({"id": 0, "result": result}, answers="item/tool/call") == ()


def listed(folder: Path, name: str) -> dict[str, Any]:
    """What a file of the schemas tells of, by method."""
    entries = json.loads((folder / f"{name}.json").read_text())["oneOf"]
    return {entry["properties"]["method"]["enum"][0]: entry for entry in entries}


@pytest.mark.conformance("A-2")
def test_every_request_of_the_server_has_an_answer_or_is_refused_on_purpose(folder: Path) -> None:
    asked = listed(folder, "ServerRequest").keys()
    assert asked == (ANSWERED | REFUSED) & asked
    assert asked >= ANSWERED, "nothing is answered that nobody asks"
    for method in asked:
        request = ServerRequest(1, method, msgspec.Raw(b"{}"))
        policy = Policy(approval_policy="never", on_approval="decline", tool_names=frozenset())
        answer = decide(request, policy)
        assert isinstance(answer, RequestAnswer)
        assert (answer.result is None) is (answer.error is not None)


@pytest.mark.conformance("A-2")
def test_the_installed_version_has_not_drifted(codex: Path, folder: Path) -> None:
    found = drift({name: json.loads((folder / f"{name}.json").read_text()) for name in SCHEMAS})
    assert (found.fatal, found.findings) == (False, ())
    told = subprocess.run([codex, "--version"], check=True, capture_output=True, text=True).stdout
    assert told.split()[-1] == TRIED_VERSION

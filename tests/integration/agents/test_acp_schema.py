"""What we and the scripted speaker say, judged by the protocol's own schema, which comes with an adapter."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.acp import COMMENT, ENVELOPE, AcpBench
from harness.acp_agents import DRIVEN
from harness.real import require_acp
from kit.speakers import scripted_acp
from symphony.agents.events import TurnEnd, TurnStatus
from symphony.agents.process import AgentProcess

pytestmark = [pytest.mark.asyncio, pytest.mark.real_acp("codex-acp")]

Schema = dict[str, Any]
Frame = dict[str, Any]


@pytest.fixture(scope="module")
def schema() -> Schema:
    driven = DRIVEN["codex-acp"]
    require_acp(driven)
    program = Path(os.environ[driven.variable]).resolve()
    for folder in program.parents:
        for name in ("v1/schema.json", "schema.json"):
            file = folder / "node_modules/@agentclientprotocol/sdk/schema" / name
            if file.is_file():
                found: Schema = json.loads(file.read_text("utf-8"))
                return found
    pytest.fail("the adapter comes without the protocol's schema")


def definition(schema: Schema, method: str, kind: str) -> str:
    """The name of what is said for a method: `Request`, `Response` or `Notification`."""
    named = schema["$defs"].items()
    found = (name for name, it in named if it.get("x-method") == method and name.endswith(kind))
    return str(next(found))


def judge(schema: Schema, method: str, kind: str, value: object) -> None:
    wanted = {"$ref": f"#/$defs/{definition(schema, method, kind)}", "$defs": schema["$defs"]}
    errors = list(jsonschema.Draft202012Validator(wanted).iter_errors(value))
    assert [f"{method}: {error.json_path}: {error.message[:300]}" for error in errors] == []


async def test_every_message_of_a_turn_fits_the_schema(
    schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: list[Frame] = []
    theirs = bytearray()
    send, receive = AgentProcess.send, AgentProcess.receive

    async def sending(self: AgentProcess, data: bytes) -> None:
        ours.extend(json.loads(line) for line in data.splitlines())
        await send(self, data)

    async def receiving(self: AgentProcess) -> bytes:
        data = await receive(self)
        theirs.extend(data)
        return data

    monkeypatch.setattr(AgentProcess, "send", sending)
    monkeypatch.setattr(AgentProcess, "receive", receiving)
    home = tmp_path / "home"
    home.mkdir()
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    settings = {"command": scripted_acp(), "mode": "careful", "model": "large"}
    bench = AcpBench.at(tmp_path, environ, settings=settings)
    steps = (
        {"write": "a", "text": "b"},
        {"ask_approval": "true"},
        {"tool": "board_comment", "arguments": {}},
    )
    async with bench.session({"tools": (COMMENT,), "envelope": ENVELOPE}) as session:
        events = await bench.turn(session, bench.script(*steps))
    assert events[-1] == TurnEnd(status=TurnStatus.COMPLETED)
    asked = {frame["id"]: frame["method"] for frame in ours if "id" in frame and "method" in frame}
    said = [json.loads(line) for line in bytes(theirs).splitlines()]
    questions = {frame["id"]: frame["method"] for frame in said if "id" in frame and "method" in frame}
    for frame in ours:
        if "method" in frame:
            judge(schema, frame["method"], "Request" if "id" in frame else "Notification", frame["params"])
        elif "result" in frame:
            judge(schema, questions[frame["id"]], "Response", frame["result"])
    for frame in said:
        if "method" in frame:
            judge(schema, frame["method"], "Request" if "id" in frame else "Notification", frame["params"])
        elif "result" in frame:
            judge(schema, asked[frame["id"]], "Response", frame["result"])
    assert {"initialize", "session/new", "session/prompt", "session/set_mode"} <= set(asked.values())
    assert "session/request_permission" in questions.values()

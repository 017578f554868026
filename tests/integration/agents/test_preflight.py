from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.shell import word
from symphony.agents.base import AgentError
from symphony.agents.codex.preflight import SCHEMAS
from symphony.domain import Blame, Category

if TYPE_CHECKING:
    from pathlib import Path

    from integration.agents.conftest import Bench

pytestmark = pytest.mark.asyncio

_SPEAKER = """
import json, sys
answers = json.loads(sys.argv[1])
for line in sys.stdin:
    frame = json.loads(line)
    if "method" in frame and "id" in frame:
        print(json.dumps({"id": frame["id"], **answers.get(frame["method"], answers["*"])}), flush=True)
        if frame["method"] == "initialize":
            print(json.dumps({"method": "who/knows", "id": 7, "params": {}}), flush=True)
"""
UNKNOWN = {"error": {"code": -32600, "message": "Invalid request: unknown variant"}}
GREETING = {"result": {"userAgent": "symphony/0.169.0 (Debian)", "codexHome": "/var/lib/agent"}}
FINE = {"result": {"exitCode": 0, "stdout": "symphony-preflight-ok\n", "stderr": ""}}
LOGGED_IN = {"result": {"account": {"type": "apiKey"}, "requiresOpenaiAuth": True}}


def speaker(tmp_path: Path, **answers: Any) -> str:
    """A tiny app-server that answers each method with what is given for it."""
    program = tmp_path / "speaker.py"
    program.write_text(_SPEAKER)
    table = {
        "initialize": answers.get("initialize", GREETING),
        "account/read": answers.get("account", LOGGED_IN),
        "model/list": answers.get("models", UNKNOWN),
        "command/exec": answers.get("command", FINE),
        "*": UNKNOWN,
    }
    return shlex.join([sys.executable, str(program), json.dumps(table)])


async def refusal(bench: Bench, command: str, **settings: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await bench.backend(command, **settings).preflight(
            bench.workspace.parent / "root", run_id=uuid4().hex
        )
    assert not list((bench.workspace.parent / "root" / ".symphony").iterdir())
    return caught.value


async def test_the_scripted_agent_passes_and_says_what_it_is(bench: Bench) -> None:
    found = await bench.backend(bench.scripted()).preflight(
        bench.workspace.parent / "root", run_id=uuid4().hex
    )
    assert found.agent == "symphony-scripted-agent"
    assert found.version
    assert any("no model is involved" in notice for notice in found.notices)
    assert not list((bench.workspace.parent / "root" / ".symphony").iterdir())


async def test_a_good_agent_passes_with_its_version(bench: Bench, tmp_path: Path) -> None:
    found = await bench.backend(speaker(tmp_path)).preflight(tmp_path / "root", run_id=uuid4().hex)
    assert (found.agent, found.version, found.notices) == ("codex", "0.169.0", ())


async def test_what_an_agent_does_not_know_is_noted(bench: Bench, tmp_path: Path) -> None:
    command = speaker(tmp_path, initialize={"result": {}}, account=UNKNOWN, command=UNKNOWN)
    found = await bench.backend(command).preflight(tmp_path / "root", run_id=uuid4().hex)
    assert (found.agent, found.version) == ("unknown", "unknown")
    assert len(found.notices) == 3


async def test_a_missing_login_is_agent_auth_with_a_hint(bench: Bench, tmp_path: Path) -> None:
    answer = {"result": {"account": None, "requiresOpenaiAuth": True}}
    failure = (await refusal(bench, speaker(tmp_path, account=answer))).failure
    assert failure.category is Category.AGENT_AUTH
    assert failure.hint is not None
    assert "codex login" in failure.hint


REQUIRED = ("initialize", "thread/start", "turn/interrupt", "turn/start")


@pytest.mark.parametrize(
    ("stderr", "word"),
    [
        ("bwrap: Creating new namespace failed: Operation not permitted", "user namespaces"),
        ("something else", "danger-full-access"),
        ("", "danger-full-access"),
    ],
)
async def test_a_failing_sandbox_is_refused_with_what_to_do(
    bench: Bench, tmp_path: Path, stderr: str, word: str
) -> None:
    answer = {"result": {"exitCode": 1, "stdout": "", "stderr": stderr}}
    failure = (await refusal(bench, speaker(tmp_path, command=answer))).failure
    assert failure.category is Category.AGENT_PREFLIGHT
    assert failure.hint is not None
    assert word in failure.hint


async def test_a_command_that_succeeds_without_running_is_refused(bench: Bench, tmp_path: Path) -> None:
    answer = {"result": {"exitCode": 0, "stdout": "", "stderr": ""}}
    failure = (await refusal(bench, speaker(tmp_path, command=answer))).failure
    assert failure.category is Category.AGENT_PREFLIGHT


@pytest.mark.parametrize("sandbox", ["workspace-write", "read-only"])
async def test_a_home_below_the_temp_directory_is_refused(bench: Bench, tmp_path: Path, sandbox: str) -> None:
    bench.environ["TMPDIR"] = str(tmp_path)
    greeting = {"result": {**GREETING["result"], "codexHome": str(tmp_path / "home")}}
    command = speaker(tmp_path, initialize=greeting)
    failure = (await refusal(bench, command, thread_sandbox=sandbox)).failure
    assert failure.category is Category.AGENT_PREFLIGHT
    assert failure.hint is not None
    assert "CODEX_HOME" in failure.hint


async def test_such_a_home_is_fine_without_a_sandbox(bench: Bench, tmp_path: Path) -> None:
    bench.environ["TMPDIR"] = str(tmp_path)
    greeting = {"result": {**GREETING["result"], "codexHome": str(tmp_path / "home")}}
    backend = bench.backend(speaker(tmp_path, initialize=greeting), thread_sandbox="danger-full-access")
    assert (await backend.preflight(tmp_path / "root", run_id=uuid4().hex)).agent == "codex"


async def test_a_program_that_is_no_app_server_is_refused(bench: Bench) -> None:
    failure = (await refusal(bench, "echo hello; echo 'who are you?' >&2; exit 4")).failure
    assert failure.category is Category.AGENT_PREFLIGHT
    assert "exit code 4: who are you?" in failure.message


async def test_a_missing_program_is_not_found(bench: Bench) -> None:
    assert (await refusal(bench, "symphony-no-such-agent")).failure.category is Category.CODEX_NOT_FOUND


async def test_a_refused_check_is_no_success(bench: Bench, tmp_path: Path) -> None:
    broken = {"error": {"code": -32603, "message": "internal error"}}
    failure = (await refusal(bench, speaker(tmp_path, command=broken))).failure
    assert failure.category is Category.AGENT_PREFLIGHT


async def test_a_silent_check_is_no_success(bench: Bench) -> None:
    agent = bench.scripted("--silent-after", "account/read")
    failure = (await refusal(bench, agent, read_timeout_ms=6_000)).failure
    assert failure.category is Category.AGENT_PREFLIGHT
    assert "account/read" in failure.message


async def test_a_workspace_root_that_cannot_be_made_is_refused(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AgentError) as caught:
        await bench.backend(bench.scripted()).preflight(tmp_path / "file" / "root", run_id=uuid4().hex)
    assert caught.value.failure.category is Category.AGENT_PREFLIGHT
    assert caught.value.failure.blame is Blame.WORKSPACE


MODELS = {
    "result": {
        "data": [
            {"model": "large", "isDefault": True, "supportedReasoningEfforts": [{"reasoningEffort": "high"}]},
            {"model": "small", "supportedReasoningEfforts": [{"reasoningEffort": "low"}]},
        ]
    }
}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"model": "small", "effort": "low"}, ()),
        ({"effort": "high"}, ()),
        ({"model": "huge"}, ("codex.model huge is none that this Codex knows: large, small",)),
        ({"model": "small", "effort": "high"}, ("codex.effort high is none of this model: low",)),
        ({"effort": "low"}, ("codex.effort low is none of this model: high",)),
    ],
)
async def test_a_model_or_effort_that_the_agent_does_not_know_is_noted(
    bench: Bench, tmp_path: Path, settings: dict[str, Any], told: tuple[str, ...]
) -> None:
    command = speaker(tmp_path, models=MODELS)
    found = await bench.backend(command, **settings).preflight(tmp_path / "root", run_id=uuid4().hex)
    assert found.notices == told


async def test_an_agent_without_a_list_of_models_is_not_judged_by_it(bench: Bench, tmp_path: Path) -> None:
    backend = bench.backend(speaker(tmp_path), model="huge", effort="high")
    assert (await backend.preflight(tmp_path / "root", run_id=uuid4().hex)).notices == ()


OTHER = {"result": {"userAgent": "symphony/9.0.0 (Debian)", "codexHome": "/var/lib/agent"}}


def telling(tmp_path: Path, schemas: dict[str, Any], **answers: Any) -> str:
    """A speaker of another version that also writes its schemas, as Codex does."""
    told = tmp_path / "told"
    told.mkdir()
    for name, content in schemas.items():
        (told / f"{name}.json").write_text(json.dumps(content))
    command = speaker(tmp_path, initialize=OTHER, **answers)
    program = tmp_path / "codex"
    program.write_text(f'#!/bin/sh\n[ $# = 0 ] && exec {command}\ncp -r {word(told)} "$4"\n')
    program.chmod(0o755)
    return word(program)


async def test_another_version_is_noted_with_what_has_drifted(bench: Bench, tmp_path: Path) -> None:
    methods = {"oneOf": [{"properties": {"method": {"enum": [name]}}} for name in REQUIRED]}
    command = telling(tmp_path, dict.fromkeys(SCHEMAS, methods))
    found = await bench.backend(command).preflight(tmp_path / "root", run_id=uuid4().hex)
    assert found.version == "9.0.0"
    (told,) = found.notices
    assert "Codex 9.0.0 is another version than 0.169.0" in told
    assert "it does not know thread/resume" in told


async def test_another_version_that_lacks_what_sessions_need_is_refused(bench: Bench, tmp_path: Path) -> None:
    error = await refusal(bench, telling(tmp_path, {key: {} for key in SCHEMAS}))
    assert error.failure.category is Category.AGENT_PREFLIGHT
    assert "it does not know initialize" in str(error)
    assert "0.169.0" in str(error.failure.hint)


async def test_another_version_that_does_not_tell_its_protocol_is_noted(bench: Bench, tmp_path: Path) -> None:
    command = speaker(tmp_path, initialize=OTHER)
    found = await bench.backend(command).preflight(tmp_path / "root", run_id=uuid4().hex)
    assert "it does not tell its protocol" in found.notices[0]

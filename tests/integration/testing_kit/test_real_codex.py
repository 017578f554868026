from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.app_server_schema import AppServerSchema
from kit.codex_home import CodexHome, codex_home
from kit.model_server import (
    ModelServer,
    Recorded,
    Scenario,
    patch,
    rate_limit_headers,
    say,
    shell,
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


def test_every_kind_of_step_is_sent_as_the_schema_says(
    codex: Path, workspace: Path, schema: AppServerSchema
) -> None:
    """The positive control of the comparison: frames of the real agent fit its own schema."""
    client, _, _ = run(codex, workspace, (shell("true"), patch("*** Add File: a\n+a"), say("Done.")))
    differences = [note for frame in client.frames for note in schema.of_server(frame)]
    assert differences == []

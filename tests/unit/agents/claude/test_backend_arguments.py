import json
from pathlib import Path
from typing import Any

import pytest

from symphony.agents.claude.backend import ClaudeBackend, config_directory
from symphony.agents.claude.protocol import OWN_TOOLS, session_arguments
from symphony.config import ClaudeSettings


def words(settings: dict[str, Any] | None = None, **changes: Any) -> tuple[str, ...]:
    asked: dict[str, Any] = {
        "cwd": Path("/work/MT-1"),
        "thread_id": "T",
        "resumed": False,
        "envelope": None,
        "server": None,
        "agent_lists_skills": True,
    }
    return session_arguments(ClaudeSettings(**(settings or {})), **{**asked, **changes})


def test_a_new_conversation_speaks_both_ways_and_reads_nothing_of_the_project() -> None:
    found = words()
    assert found[:4] == ("--print", "--verbose", "--input-format", "stream-json")
    assert found[found.index("--permission-prompt-tool") :][:2] == ("--permission-prompt-tool", "stdio")
    assert found[found.index("--permission-mode") :][:2] == ("--permission-mode", "acceptEdits")
    assert found[found.index("--setting-sources") :][:2] == ("--setting-sources", "user")
    assert found[found.index("--add-dir") :][:2] == ("--add-dir", "/work/MT-1")
    assert "--strict-mcp-config" in found
    assert "--session-id=T" in found
    assert "--allowedTools=Bash(git add:*),Bash(git commit:*)" in found
    for absent in ("--resume", "--model", "--effort", "--append-system-prompt", "--mcp-config"):
        assert not any(word.startswith(absent) for word in found)
    assert "--disable-slash-commands" not in found


def test_a_resumed_one_has_model_effort_envelope_and_tools() -> None:
    found = words(
        {"model": "opus", "effort": "high", "permission_mode": "plan"},
        resumed=True,
        envelope="--print me\n'quoted' $HOME",
        server=("/bin/python", "-I", "relay"),
        agent_lists_skills=False,
    )
    assert {"--resume=T", "--model=opus", "--effort=high", "--disable-slash-commands"} <= set(found)
    assert "--append-system-prompt=--print me\n'quoted' $HOME" in found
    assert not any(word.startswith("--session-id") for word in found)
    (config,) = [word.partition("=")[2] for word in found if word.startswith("--mcp-config=")]
    assert json.loads(config) == {
        "mcpServers": {"symphony": {"command": "/bin/python", "args": ["-I", "relay"]}}
    }
    assert any(word.endswith(",mcp__symphony") for word in found if word.startswith("--allowedTools="))
    assert OWN_TOOLS == "mcp__symphony__"


@pytest.mark.parametrize(
    ("env", "directory"),
    [
        ({}, None),
        ({"HOME": "/h"}, Path("/h/.claude")),
        ({"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c"}, Path("/c")),
    ],
)
def test_the_directory_of_the_agent_is_known(env: dict[str, str], directory: Path | None) -> None:
    assert config_directory(env) == directory


def test_the_defaults_are_guarded() -> None:
    assert ClaudeBackend.check_settings(ClaudeSettings(), isolated=False).no_sandbox is None
    assert (
        ClaudeBackend.check_settings(
            ClaudeSettings(permission_mode="default", on_approval="block"), isolated=False
        ).no_sandbox
        is None
    )


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"permission_mode": "bypassPermissions"}, "permission_mode"),
        ({"on_approval": "accept"}, "on_approval"),
        ({"command": "claude --dangerously-skip-permissions"}, "command"),
        ({"command": "claude --permission-mode=bypassPermissions"}, "command"),
    ],
)
def test_settings_without_guards_are_said(settings: dict[str, Any], key: str) -> None:
    remark = ClaudeBackend.check_settings(ClaudeSettings(**settings), isolated=False).no_sandbox
    assert remark is not None
    assert remark.key == key
    assert "workspace.isolation" in remark.hint


def test_an_effort_that_the_agent_would_ignore_is_said() -> None:
    assert ClaudeBackend.check_settings(ClaudeSettings(), isolated=False).warnings == ()
    assert ClaudeBackend.check_settings(ClaudeSettings(effort="max"), isolated=False).warnings == ()
    (remark,) = ClaudeBackend.check_settings(ClaudeSettings(effort="ultra"), isolated=False).warnings
    assert "low, medium, high, xhigh, max" in remark.hint


def test_a_session_that_only_reads_has_no_tool_that_edits_or_commits() -> None:
    found = words(read_only=True)
    (forbidden,) = [word for word in found if word.startswith("--disallowedTools=")]
    assert {"Edit", "Write", "NotebookEdit"} <= set(forbidden.partition("=")[2].split(","))
    assert not any(word.startswith("--allowedTools") for word in found)
    assert "--allowedTools=mcp__symphony" in words(read_only=True, server=("relay",))

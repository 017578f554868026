"""The real agents of the Agent Client Protocol for tests: where they are, how they meet the model server.

What one agent calls its tools, another does not: so a scenario is made of what a test wants done.
"""

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kit.model_server import Answer, tool
from kit.model_server.scenario import shell as codex_shell

__all__ = ["DRIVEN", "Driven", "furnish", "place"]

_CODEX_CONFIG = """\
model = "gpt-5.5"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "{base_url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 1
stream_max_retries = 1
"""
_GEMINI_SETTINGS = {"security": {"auth": {"selectedType": "gemini-api-key"}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """One real agent.

    Attributes:
        profile: its profile, and its name in the results.
        variable: the variable that names its program; `needs` those of further programs that it starts.
        settings: what a session needs beside the profile.
        environ: its variables, made of the server's address and a home that `furnish` has filled.
        command, write: how its model asks for a command, and for a file with a text.
        tool: how its model calls a tool of ours.
        key: the variable of its key, which a tool shell of it may see.
        arguments: what follows its program.
    """

    profile: str
    variable: str
    settings: Mapping[str, object]
    environ: Callable[[str, Path], Mapping[str, str]]
    furnish: Callable[[Path, str], None]
    command: Callable[[str], Answer]
    write: Callable[[Path, str], Answer]
    tool: Callable[[str, Mapping[str, object]], Answer]
    key: str
    arguments: str = ""
    needs: Sequence[str] = ()

    def start(self, program: str) -> str:
        """The shell command that starts it."""
        return f"{shlex.quote(program)} {self.arguments}".strip()


@contextmanager
def place() -> Iterator[Path]:
    """A directory below /var/tmp for a home and workspaces; removed at the end."""
    top = Path(tempfile.mkdtemp(prefix="symphony-acp-", dir="/var/tmp"))
    try:
        yield top
    finally:
        shutil.rmtree(top, ignore_errors=True)


def furnish(driven: Driven, top: Path, base_url: str) -> dict[str, str]:
    """Make a home for the agent in `top`; its variables."""
    home, temp = top / "home", top / "tmp"
    home.mkdir()
    temp.mkdir()
    driven.furnish(home, base_url)
    common = {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "TMPDIR": str(temp),
        "LANG": "C.UTF-8",
    }
    return {**common, **driven.environ(base_url, home)}


def _nothing(home: Path, base_url: str) -> None:
    del home, base_url


def _gemini_home(home: Path, base_url: str) -> None:
    del base_url
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text(json.dumps(_GEMINI_SETTINGS), "utf-8")


def _codex_home(home: Path, base_url: str) -> None:
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(_CODEX_CONFIG.format(base_url=base_url), "utf-8")


def _opencode_environ(base_url: str, home: Path) -> Mapping[str, str]:
    del home
    limit = {"context": 100_000, "output": 4_000}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": base_url, "apiKey": "not-a-secret"},
        "models": {"m": {"name": "m", "limit": limit}},
    }
    config = {"model": "local/m", "small_model": "local/m", "provider": {"local": provider}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


def _host(base_url: str) -> str:
    return base_url.removesuffix("/v1")


DRIVEN: Mapping[str, Driven] = {
    "gemini": Driven(
        profile="gemini",
        variable="SYMPHONY_TEST_GEMINI",
        settings={},
        arguments="--acp -m gemini-2.5-flash",
        environ=lambda base_url, _: {
            "GEMINI_API_KEY": "not-a-secret",
            "GOOGLE_GEMINI_BASE_URL": _host(base_url),
        },
        furnish=_gemini_home,
        command=lambda command: tool("run_shell_command", {"command": command, "description": "work"}),
        write=lambda path, text: tool("write_file", {"file_path": str(path), "content": text}),
        tool=lambda name, arguments: tool(f"mcp_symphony_{name}", arguments),
        key="GEMINI_API_KEY",
    ),
    "opencode": Driven(
        profile="opencode",
        variable="SYMPHONY_TEST_OPENCODE",
        arguments="acp",
        settings={},
        environ=_opencode_environ,
        furnish=_nothing,
        command=lambda command: tool("bash", {"command": command, "description": "work"}),
        write=lambda path, text: tool("write", {"filePath": str(path), "content": text}),
        tool=lambda name, arguments: tool(f"symphony_{name}", arguments),
        key="OPENCODE_CONFIG_CONTENT",
    ),
    "codex-acp": Driven(
        profile="codex-acp",
        variable="SYMPHONY_TEST_CODEX_ACP",
        settings={},
        environ=lambda _, home: {
            "CODEX_HOME": str(home / ".codex"),
            "OPENAI_API_KEY": "not-a-secret",
            "CODEX_PATH": os.environ.get("SYMPHONY_TEST_CODEX", ""),
        },
        furnish=_codex_home,
        command=codex_shell,
        write=lambda path, text: codex_shell(f"printf %s {shlex.quote(text)} > {shlex.quote(str(path))}"),
        tool=lambda name, arguments: tool(name, arguments, namespace="mcp__symphony"),
        key="OPENAI_API_KEY",
        needs=("SYMPHONY_TEST_CODEX",),
    ),
    "claude-agent-acp": Driven(
        profile="claude-agent-acp",
        variable="SYMPHONY_TEST_CLAUDE_ACP",
        settings={},
        environ=lambda base_url, home: {
            "ANTHROPIC_API_KEY": "not-a-secret",
            "ANTHROPIC_BASE_URL": _host(base_url),
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "CLAUDE_CODE_EXECUTABLE": os.environ.get("SYMPHONY_TEST_CLAUDE", ""),
        },
        furnish=_nothing,
        command=lambda command: tool("Bash", {"command": command, "description": "work"}),
        write=lambda path, text: tool("Write", {"file_path": str(path), "content": text}),
        tool=lambda name, arguments: tool(f"mcp__symphony__{name}", arguments),
        key="ANTHROPIC_API_KEY",
        needs=("SYMPHONY_TEST_CLAUDE",),
    ),
}

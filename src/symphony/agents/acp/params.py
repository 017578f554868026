"""The params of our requests: handshake, session, prompt; and where the envelope goes in them. Pure."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony import __version__

__all__ = ["PROTOCOL_VERSION", "McpServer", "config_value", "filled", "initialize", "prompt", "session"]

PROTOCOL_VERSION = 1

Params = Mapping[str, Any]
McpServer = tuple[str, Sequence[str]]
"""Name and command of a server of tools that the agent starts."""


def initialize() -> Params:
    """Who we are, and that we lend neither files nor terminals: an agent has its own."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        "clientInfo": {"name": "symphony", "title": "Symphony", "version": __version__},
    }


def session(
    *, cwd: Path, servers: Sequence[McpServer], extra: Params, session_id: str | None = None
) -> dict[str, Any]:
    """A session in `cwd`, a new one or `session_id`, with servers of tools; `extra` is the profile's."""
    params = {
        **extra,
        "cwd": str(cwd),
        "mcpServers": [
            {"name": name, "command": argv[0], "args": list(argv[1:]), "env": []} for name, argv in servers
        ],
    }
    return params if session_id is None else {**params, "sessionId": session_id}


def prompt(session_id: str, text: str) -> Params:
    """One turn."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}


def filled(template: Any, name: str, text: str) -> Any:
    """A template with `{name}` replaced by `text` in every text of it."""
    if isinstance(template, str):
        return template.replace(f"{{{name}}}", text)
    if isinstance(template, Mapping):
        return {key: filled(value, name, text) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [filled(value, name, text) for value in template]
    return template


def config_value(*parts: Params, given: str | None) -> str:
    """A configuration as JSON: the operator's own (`given`) with `parts` over it, lists one behind the other.

    What the operator wrote that is no JSON object is not ours to mend: ours stands alone then.
    """
    try:
        merged = json.loads(given or "{}")
    except ValueError:
        merged = {}
    merged = merged if isinstance(merged, dict) else {}
    for part in parts:
        merged = _merged(merged, part)
    return json.dumps(merged, ensure_ascii=False)


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, Mapping):
        both = {key: _merged(one[key], value) if key in one else value for key, value in other.items()}
        return {**one, **both}
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *(value for value in other if value not in one)]
    return other

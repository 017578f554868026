"""A model server on the loopback interface, so that real agents can be driven without a model or a network.

What it answers is a scenario (module `scenario`), chosen by a marker `[[name]]` in the last user text. One
sibling module per wire format: `responses` (OpenAI Responses, what Codex speaks) and `messages` (Anthropic
Messages, what Claude Code speaks).
"""

from kit.model_server.scenario import (
    Answer,
    Block,
    CustomCall,
    Cut,
    FunctionCall,
    Hang,
    HttpError,
    Reset,
    Scenario,
    Step,
    Text,
    Usage,
    api_error,
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
from kit.model_server.server import ModelServer, Recorded

__all__ = [
    "Answer",
    "Block",
    "CustomCall",
    "Cut",
    "FunctionCall",
    "Hang",
    "HttpError",
    "ModelServer",
    "Recorded",
    "Reset",
    "Scenario",
    "Step",
    "Text",
    "Usage",
    "api_error",
    "context_full",
    "edit_and_commit",
    "patch",
    "rate_limit_headers",
    "rate_limited",
    "say",
    "server_error",
    "shell",
    "tool",
    "unauthorized",
    "usage_limit",
]

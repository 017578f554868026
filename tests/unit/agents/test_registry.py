from pathlib import Path

import pytest

from symphony.agents.base import AgentBackend, AgentError, BackendContext
from symphony.agents.registry import AGENTS, _backend_class, create_backend
from symphony.config import AgentSection, ClaudeSettings, CodexSettings, NamedAgent
from symphony.domain import Category
from symphony.processes.local import LocalHost

AROUND = BackendContext(host=LocalHost(), environ={}, secret_names=frozenset(), homes=Path("/nowhere"))


def agent(kind: str) -> NamedAgent:
    return NamedAgent(name="mine", kind=kind, settings=CodexSettings())


def test_codex_is_a_kind_with_all_capabilities() -> None:
    backend = create_backend(agent("codex"), AROUND)
    assert "codex" in AGENTS.names
    assert backend.capabilities.system_block_at_start
    assert backend.capabilities.client_tools
    assert backend.capabilities.absolute_usage
    assert backend.capabilities.sandbox


def test_an_unknown_kind_is_refused_with_those_that_exist() -> None:
    with pytest.raises(AgentError) as caught:
        create_backend(agent("cleverer"), AROUND)
    assert caught.value.failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert caught.value.failure.hint == "supported: acp, claude, codex, command"


def test_claude_is_a_kind_without_a_sandbox_of_its_own() -> None:
    named = NamedAgent(name="mine", kind="claude", settings=ClaudeSettings())
    found = create_backend(named, AROUND).capabilities
    assert (found.system_block_at_start, found.system_block_on_resume, found.client_tools) == (True,) * 3
    assert (found.resume, found.approvals, found.interrupt, found.usage) == (True,) * 4
    assert (found.absolute_usage, found.sandbox, found.rate_limits) == (False,) * 3


def test_a_class_without_capabilities_is_no_backend() -> None:
    class Bare(AgentBackend):
        settings_type = AgentSection

    with pytest.raises(TypeError, match="capabilities"):
        _backend_class(Bare)
    with pytest.raises(TypeError, match="AgentBackend"):
        _backend_class(Path)

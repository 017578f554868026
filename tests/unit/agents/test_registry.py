import pytest

from symphony.agents.base import AgentError
from symphony.agents.registry import KINDS, create_backend
from symphony.domain.failures import Category
from symphony.hosts.local import LocalHost
from symphony.workflow.settings import Settings


def settings(kind: str) -> Settings:
    return Settings.model_validate(
        {"tracker": {"kind": "markdown"}, "workspace": {"root": "/w"}, "agent": {"kind": kind}}, strict=False
    )


def test_codex_is_a_kind_with_all_capabilities() -> None:
    backend = create_backend(settings("codex"), host=LocalHost(), environ={})
    assert frozenset({"codex"}) == KINDS
    assert backend.capabilities.system_block_at_start
    assert backend.capabilities.client_tools
    assert backend.capabilities.absolute_usage
    assert backend.capabilities.sandbox


def test_an_unknown_kind_is_refused_with_those_that_exist() -> None:
    with pytest.raises(AgentError) as caught:
        create_backend(settings("cleverer"), host=LocalHost(), environ={})
    assert caught.value.failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert caught.value.failure.hint == "supported kinds: codex"

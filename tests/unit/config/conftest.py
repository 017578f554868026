from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from symphony.config import (
    AGENT_SECTIONS,
    AgentKinds,
    Workflow,
    WorkflowError,
    WorkflowFile,
    parse_workflow,
)
from symphony.domain import Failure

ONE_KIND = {"codex": AGENT_SECTIONS["codex"]}
Parse = Callable[..., Workflow]
Refuse = Callable[..., tuple[Failure, ...]]

NUMBERS_AS_TEXT = frozenset(
    {"polling.interval_ms", "agent.max_concurrent_agents", "agent.max_turns", "agent.max_retry_backoff_ms"}
)
"""Read from text with digits, too: `test_validation_outdated_forms.py`."""


@pytest.fixture
def parse() -> Parse:
    """Parses a text as if it stood in /repo/WORKFLOW.md; nothing is read from the disk."""

    def parse_text(
        text: str | bytes,
        *,
        environment: Mapping[str, str] | None = None,
        tracker_kinds: tuple[str, ...] = ("markdown", "memory"),
        agent_kinds: AgentKinds = ONE_KIND,
    ) -> Workflow:
        data = text if isinstance(text, bytes) else text.encode()
        return parse_workflow(
            WorkflowFile(path=Path("/repo/WORKFLOW.md"), data=data),
            environment={} if environment is None else environment,
            tracker_kinds=tracker_kinds,
            agent_kinds=agent_kinds,
        )

    return parse_text


@pytest.fixture
def refuse(parse: Parse) -> Refuse:
    """The failures of a text that must not parse."""

    def failures_of(text: str | bytes, **options: object) -> tuple[Failure, ...]:
        with pytest.raises(WorkflowError) as caught:
            parse(text, **options)
        assert caught.value.failure == caught.value.failures[0]
        return caught.value.failures

    return failures_of

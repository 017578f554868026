"""The agents in the documents: who has an issue or would get it, and which of them are limited; pure."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from symphony.domain.issue import Issue
from symphony.scheduler import choice
from symphony.scheduler.inputs import Resume
from symphony.scheduler.state import AgentChoice, State

__all__ = ["agent_document", "agent_of", "agents_document"]

Document = dict[str, Any]


def agent_document(chosen: AgentChoice) -> Document:
    """Which agent it is and why, as JSON."""
    return asdict(chosen)


def agent_of(state: State, issue: Issue, resume: Resume | None = None) -> Document:
    """The agent that an issue would get if its run began now."""
    return agent_document(choice.choose(state, issue, choice.thread_agent(resume)))


def agents_document(state: State, moment: Callable[[int], str]) -> list[Document]:
    """All agents that an issue may be given to; `moment` makes a time of day of one of the state.

    `limited` is null for one that takes issues.
    """
    return [
        {
            "name": name,
            "kind": facts.kind,
            "model": facts.model,
            "limited": _limited(state, name, moment),
        }
        for name, facts in state.settings.agents.items()
    ]


def _limited(state: State, name: str, moment: Callable[[int], str]) -> Document | None:
    held = state.limited.get(name)
    if held is None or held.until_ms is None:
        return None
    return {
        "until": moment(held.until_ms),
        "code": held.failure.category.value,
        "message": held.failure.message,
        "times": held.times,
    }

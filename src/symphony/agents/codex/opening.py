"""How a session comes to its thread: the one to go on with, else a new one (AG4; AGENT-FACTS 2.6)."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.agents.base import AgentError, Briefing
from symphony.agents.codex import params
from symphony.agents.wire.connection import RefusedError
from symphony.domain.failures import Blame, Category, Failure
from symphony.scheduler.inputs import Thread
from symphony.workflow.settings import CodexSettings

__all__ = ["Call", "Opened", "id_in", "open_thread"]

Call = Callable[[str, params.Params], Awaitable[dict[str, Any]]]
"""Sends a request and gives its result; raises `RefusedError` where the agent says no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A thread to run turns on; `refused` says why it is not the one that was asked for."""

    thread_id: str
    resumed: bool = False
    refused: Failure | None = None


async def open_thread(
    call: Call,
    settings: CodexSettings,
    briefing: Briefing,
    *,
    resume: Thread | None,
    cwd: Path,
    credentials: Collection[str],
) -> Opened:
    """Resume that thread or start one; a thread that is refused is answered by a new one.

    Raises:
        AgentError: see `Connection.call`; also when the answer names no thread.
    """
    refused = None
    if resume is not None:
        asked = params.thread_resume(
            settings,
            thread_id=resume.thread_id,
            cwd=cwd,
            credentials=credentials,
            own_skill_listing=briefing.own_skill_listing,
        )
        try:
            return Opened(thread_id=id_in(await call("thread/resume", asked), "thread"), resumed=True)
        except RefusedError as error:
            refused = error.failure
    asked = params.thread_start(
        settings,
        cwd=cwd,
        envelope=briefing.envelope,
        tools=briefing.tools,
        credentials=credentials,
        own_skill_listing=briefing.own_skill_listing,
    )
    return Opened(thread_id=id_in(await call("thread/start", asked), "thread"), refused=refused)


def id_in(result: dict[str, Any], key: str) -> str:
    """`<key>.id` of an answer, without which there is no session.

    Raises:
        AgentError: `response_error`.
    """
    found = result.get(key)
    identifier = found.get("id") if isinstance(found, dict) else None
    if isinstance(identifier, str) and identifier:
        return identifier
    text = f"the answer of the agent names no {key}"
    raise AgentError(Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=text))

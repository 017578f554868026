"""How a conversation with Codex begins: who answers, how it refuses, and which thread a session gets (AG4).

A session goes on with the thread asked for, else with a new one (AGENT-FACTS 2.6).
"""

import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.agents.base import AgentError, Briefing
from symphony.agents.border import MAX_ID_CHARS
from symphony.agents.codex import params
from symphony.agents.codex.errors import INSTALL_HINT
from symphony.agents.redaction import redact
from symphony.agents.wire.connection import Manner, RefusedError
from symphony.agents.wire.jsonrpc import Refusal
from symphony.config.settings import CodexSettings
from symphony.domain.failures import Blame, Category, Failure
from symphony.scheduler.inputs import Thread

__all__ = ["MANNER", "Call", "Opened", "id_in", "listed_skills", "open_thread", "who"]

_AGENT = re.compile(r"^([^/\s]+)/(\d+\.\d+\S*)")
_OUR_NAME = str(params.initialize()["clientInfo"]["name"])
_INVALID = frozenset({-32600, -32602})
_POLICY_HINT = "check codex.approval_policy, codex.thread_sandbox, codex.turn_sandbox_policy and codex.model"

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


def listed_skills(result: dict[str, Any]) -> frozenset[Path] | None:
    """The paths of the skills that are on in an answer to `skills/list`; `None` for one of another form."""
    entries = result.get("data")
    if not isinstance(entries, list):
        return None
    skills = [
        skill
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("skills"), list)
        for skill in entry["skills"]
    ]
    return frozenset(
        Path(skill["path"])
        for skill in skills
        if isinstance(skill, dict) and isinstance(skill.get("path"), str) and skill.get("enabled") is True
    )


def id_in(result: dict[str, Any], key: str) -> str:
    """`<key>.id` of an answer, of at most `MAX_ID_CHARS`, without which there is no session.

    Raises:
        AgentError: `response_error`.
    """
    found = result.get(key)
    identifier = found.get("id") if isinstance(found, dict) else None
    if isinstance(identifier, str) and 0 < len(identifier) <= MAX_ID_CHARS:
        return identifier
    text = f"the answer of the agent names no {key}"
    raise AgentError(Failure(category=Category.RESPONSE_ERROR, blame=Blame.AGENT, message=text))


# --- who answers, and how it refuses -----------------------------------------------------------------------


def who(user_agent: str) -> tuple[str | None, str | None]:
    """Name and version, null where they are not told.

    Codex calls itself by the name of its client, which is ours; other speakers have their own.
    """
    found = _AGENT.match(user_agent)
    if found is None:
        return None, None
    return "codex" if found[1] == _OUR_NAME else redact(found[1], 100), redact(found[2], 100)


def _refusal(answer: Refusal) -> Failure:
    """A start refused as invalid will be refused again: the settings name something unknown."""
    ours = answer.code in _INVALID and answer.method in {"thread/start", "turn/start"}
    return Failure(
        category=Category.RESPONSE_ERROR,
        blame=Blame.CONFIG if ours else Blame.AGENT,
        message=redact(f"{answer.method} was refused: {answer.message} ({answer.code})"),
        retryable=not ours,
        hint=_POLICY_HINT if ours else None,
    )


MANNER = Manner(missing=Category.CODEX_NOT_FOUND, install_hint=INSTALL_HINT, refusal=_refusal)
"""How Codex speaks, for the connection that all JSON-RPC agents share."""

"""The check before the first dispatch, of every agent that an issue may be given to (AG10, SC1).

One that is not there is told by its name and at its line, before an issue meets it at night. A reload asks
again only those that it changed.
"""

import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import anyio
import structlog

from symphony.agents.base import Preflight
from symphony.config.agent_review import place_of
from symphony.daemon.bound import Bound
from symphony.domain.failures import Failure, SymphonyError

__all__ = ["ask_agent", "ask_agents", "changed_agents"]

_log = structlog.get_logger(__name__)


def changed_agents(before: Bound, after: Bound) -> tuple[str, ...]:
    """The names of those that are new or other than they were; all of them if their enclosure changed."""
    was, now = before.settings.workspace, after.settings.workspace
    enclosed = (was.isolation, was.network) != (now.isolation, now.network)
    return tuple(name for name, agent in after.named.items() if enclosed or before.named.get(name) != agent)


async def ask_agents(bound: Bound, names: Iterable[str]) -> None:
    """Ask them all at once and log what they say, each by its name.

    Raises:
        SymphonyError: one cannot be used; the first of them in the order of the workflow.
    """
    asked = tuple(names)
    found: dict[str, Preflight | Failure] = {}

    async def ask(name: str) -> None:
        try:
            found[name] = await ask_agent(bound, name, bound.settings.workspace.root)
        except SymphonyError as error:
            found[name] = error.failure

    async with anyio.create_task_group() as group:
        for name in asked:
            group.start_soon(ask, name)
    for name in asked:
        answer = found[name]
        if isinstance(answer, Failure):
            raise SymphonyError(answer)
        _log.info("agent_ready", agent=name, program=answer.agent, version=answer.version)
        for notice in answer.notices:
            _log.warning("agent_notice", agent=name, reason=notice)


async def ask_agent(bound: Bound, name: str, place: Path, *, mark: str = "preflight") -> Preflight:
    """Ask one agent in a place of workspaces; `mark` ends the id by which its processes are known.

    Raises:
        SymphonyError: it cannot be used; says which agent it is where there is more than one, and where in
            the workflow file it is told of.
    """
    run_id = f"{secrets.token_hex(4)}-{mark}"
    try:
        return await bound.agent(name).preflight(place, run_id=run_id)
    except SymphonyError as error:
        raise SymphonyError(_placed(bound, name, error.failure)) from error


def _placed(bound: Bound, name: str, failure: Failure) -> Failure:
    agent, places = bound.named[name], bound.workflow.places
    location = place_of(agent, "command", places)
    told = any(location[: depth + 1] in places.positions for depth in range(len(location)))
    message = failure.message
    if len(bound.named) > 1 or agent.name != agent.kind:
        message = f"agent {name}: {message}"
    where = failure.where or (places.where(location) if told else None)
    return replace(failure, message=message, where=where)

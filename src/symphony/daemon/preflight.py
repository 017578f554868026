"""Checks agents before the first dispatch, so that no issue gets a missing or broken agent.

A failure names the agent and its line in the workflow file. A reload checks the changed agents only.
"""

import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import anyio
import structlog

from symphony.agents.base import Preflight
from symphony.config import agent_key_location
from symphony.daemon.context import RuntimeContext
from symphony.domain import Failure, SymphonyError

_log = structlog.get_logger(__name__)


def changed_agents(before: RuntimeContext, after: RuntimeContext) -> tuple[str, ...]:
    """The names of new and changed agents; all of them if their isolation changed."""
    was, now = before.settings.workspace, after.settings.workspace
    isolation_changed = (was.isolation, was.network) != (now.isolation, now.network)
    return tuple(
        name
        for name, agent in after.workflow.agents.items()
        if isolation_changed or before.workflow.agents.get(name) != agent
    )


async def preflight_agents(context: RuntimeContext, names: Iterable[str]) -> None:
    """Check agents, all at once, and log the results.

    Raises:
        SymphonyError: the first agent, in the order of `names`, that cannot be used.
    """
    names = tuple(names)
    found: dict[str, Preflight | Failure] = {}

    async def check(name: str) -> None:
        try:
            found[name] = await preflight_agent(context, name, context.settings.workspace.root)
        except SymphonyError as error:
            found[name] = error.failure

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(check, name)
    for name in names:
        result = found[name]
        if isinstance(result, Failure):
            raise SymphonyError(result)
        _log.info("agent_ready", agent=name, program=result.agent, version=result.version)
        for notice in result.notices:
            _log.warning("agent_notice", agent=name, reason=notice)


async def preflight_agent(
    context: RuntimeContext, name: str, workspace_root: Path, *, mark: str = "preflight"
) -> Preflight:
    """Check one agent; `mark` is the end of the run id that its processes carry.

    Raises:
        SymphonyError: it cannot be used. Names the agent if there are several, and the line of its command.
    """
    run_id = f"{secrets.token_hex(4)}-{mark}"
    try:
        return await context.agent(name).preflight(workspace_root, run_id=run_id)
    except SymphonyError as error:
        agents, source_map, failure = context.workflow.agents, context.workflow.source_map, error.failure
        agent, where = agents[name], failure.where
        location = agent_key_location(agent, "command", source_map)
        in_file = any(location[: depth + 1] in source_map.positions for depth in range(len(location)))
        if where is None and in_file:
            where = source_map.where(location)
        named = len(agents) > 1 or agent.name != agent.kind
        message = f"agent {name}: {failure.message}" if named else failure.message
        raise SymphonyError(replace(failure, message=message, where=where)) from error

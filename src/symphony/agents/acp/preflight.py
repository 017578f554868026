"""The check before the first dispatch: program, protocol, login, a session, its mode and model (DESIGN 9).

No prompt is sent, so no model is asked. What an agent tells only when it has been prompted (a key that is
wrong, a model that it lets anybody name) ends the first turn, by its class.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from symphony.agents.acp import params
from symphony.agents.acp.errors import manner
from symphony.agents.acp.opening import Agent, choose, greet, open_session
from symphony.agents.acp.policy import METHOD_NOT_FOUND
from symphony.agents.acp.profiles import Profile
from symphony.agents.backend import ProcessBackend, Start
from symphony.agents.base import AgentError, Preflight
from symphony.agents.scratch import preflight_failure, scratch
from symphony.agents.wire.connection import Connection
from symphony.agents.wire.jsonrpc import Message, ServerRequest
from symphony.config.settings import AcpSettings
from symphony.domain.failures import Blame, Category

__all__ = ["check"]

_KEPT = frozenset({Category.AGENT_NOT_FOUND, Category.AGENT_AUTH})


async def check(
    backend: ProcessBackend[AcpSettings],
    settings: AcpSettings,
    profile: Profile,
    workspace_root: Path,
    *,
    start: Callable[[Path], Start],
) -> tuple[Preflight, Agent]:
    """Open a session as a run would, in a directory of its own; `start` tells how. Returns who answered, too.

    Raises:
        AgentError: `agent_not_found`, `agent_auth` or `agent_preflight`, with a hint.
    """
    around = backend.around
    async with (
        scratch(around.host, around.environ, workspace_root) as place,
        backend.running(start(place)) as process,
    ):
        connection = Connection(process, read_timeout_ms=settings.read_timeout_ms, manner=manner(profile))
        try:
            agent, notices = await _ask(connection, settings, profile, place)
        except AgentError as error:
            raise _failed(error, profile) from error
    return Preflight(agent=agent.name, version=agent.version, notices=notices), agent


async def _ask(
    connection: Connection, settings: AcpSettings, profile: Profile, place: Path
) -> tuple[Agent, tuple[str, ...]]:
    limit_ms = max(profile.start_timeout_ms, settings.read_timeout_ms)

    async def other(message: Message) -> None:
        if isinstance(message, ServerRequest):
            await connection.refuse(message, METHOD_NOT_FOUND, "only a check is running")

    async def call(method: str, asked: params.Params) -> dict[str, Any]:
        return await connection.call(method, asked, other, timeout_ms=limit_ms)

    agent = await greet(call)
    opened = await open_session(
        call,
        resume=None,
        asked=lambda session: params.session(cwd=place, servers=(), extra={}, session_id=session),
        refused=None,
    )
    await choose(call, settings, opened, model_in_command=bool(profile.model_argument))
    return agent, _notices(agent, profile)


def _notices(agent: Agent, profile: Profile) -> tuple[str, ...]:
    if profile.load and agent.resume_by is None:
        return (f"{agent.name} cannot go on with earlier sessions: every run starts anew",)
    return ()


def _failed(error: AgentError, profile: Profile) -> AgentError:
    failure = error.failure
    if failure.category in _KEPT:
        return error
    hint = failure.hint or f"try the command by hand; {profile.install_hint}"
    return preflight_failure(failure.message, hint=hint, blame=Blame.CONFIG)

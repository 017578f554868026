"""The check of an agent before the first dispatch: program, protocol, login, a session, its mode and model.

No prompt is sent, so no model is called. What an agent reports only when it has been prompted, such as a
wrong key, ends the first turn.
"""

from pathlib import Path
from typing import Any

from symphony.agents.acp import protocol
from symphony.agents.acp.profiles import AcpProfile
from symphony.agents.acp.session import Agent, initialize, open_session, select
from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.base import AgentError, Preflight
from symphony.agents.json_fields import Json
from symphony.agents.preflight import preflight_failure
from symphony.agents.wire import Connection, Message, ServerRequest
from symphony.config import AcpSettings
from symphony.domain import Blame, Category


async def check(
    backend: ProcessBackend[AcpSettings], profile: AcpProfile, options: LaunchOptions
) -> tuple[Preflight, Agent]:
    """Open a session as a run would, in `options.cwd`; also return the agent that answered.

    Raises:
        AgentError: `agent_not_found`, `agent_auth` or `agent_preflight`, with a hint.
    """
    settings = backend.settings
    async with backend.running(options) as process:
        connection = Connection(
            process, read_timeout_ms=settings.read_timeout_ms, dialect=protocol.dialect(profile)
        )
        try:
            agent = await _open(connection, settings, profile, options.cwd)
        except AgentError as error:
            failure = error.failure
            if failure.category in {Category.AGENT_NOT_FOUND, Category.AGENT_AUTH}:
                raise
            hint = failure.hint or f"try the command by hand; {profile.install_hint}"
            raise preflight_failure(failure.message, hint=hint, blame=Blame.CONFIG) from error
    notices: tuple[str, ...] = ()
    if profile.load and agent.resume_method is None:
        notices = (f"{agent.name} cannot go on with earlier sessions: every run starts anew",)
    return Preflight(agent=agent.name, version=agent.version, notices=notices), agent


async def _open(connection: Connection, settings: AcpSettings, profile: AcpProfile, cwd: Path) -> Agent:
    limit_ms = max(profile.start_timeout_ms, settings.read_timeout_ms)

    async def handle(message: Message) -> None:
        if isinstance(message, ServerRequest):
            await connection.refuse(message, "only a check is running")

    async def call(method: str, params: Json) -> dict[str, Any]:
        return await connection.call(method, params, handle, timeout_ms=limit_ms)

    agent = await initialize(call)
    opened = await open_session(call, params=lambda _: protocol.session(cwd=cwd))
    await select(call, settings, opened, model_in_command=bool(profile.model_argument))
    return agent

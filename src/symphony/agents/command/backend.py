"""The command backend: sessions of one shell command with one configuration (AG22)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from symphony.agents.base import (
    AgentError,
    Capabilities,
    OwnSkillRoots,
    Preflight,
    SessionRequest,
    Surroundings,
)
from symphony.agents.command.launcher import Launcher
from symphony.agents.command.papers import papers
from symphony.agents.command.placeholders import used
from symphony.agents.command.posture import problems
from symphony.agents.command.preflight import check
from symphony.agents.command.profiles import command_of, profile_of
from symphony.agents.command.session import CommandSession
from symphony.agents.place import resolve_workspace
from symphony.agents.process import AgentProcess
from symphony.domain.failures import Blame, Category, Failure
from symphony.workflow.settings import CommandSettings

__all__ = ["CommandBackend"]


class CommandBackend:
    """An `AgentBackend` of one-shot processes; `name` is what the workflow calls it.

    Raises:
        AgentError: `invalid_workflow_config`: the settings name no command that could be run.
    """

    def __init__(self, *, settings: CommandSettings, around: Surroundings, name: str = "command") -> None:
        profile = profile_of(settings)
        command = None if profile is None else command_of(settings, profile)
        wrong = problems(settings)
        if wrong or profile is None or command is None:
            raise AgentError(_invalid(name, f"{wrong[0].key} {wrong[0].problem}", wrong[0].hint))
        self._settings = settings
        self._profile = profile
        self._command = command
        self._separate = "envelope_file" in used(command)
        self._launcher = Launcher(
            around=around, name=name, settings=settings, profile=profile, command=command
        )

    @property
    def capabilities(self) -> Capabilities:
        """Nothing but to be told something, and to work."""
        return Capabilities(
            system_block_at_start=self._separate,
            client_tools=False,
            absolute_usage=False,
            usage=False,
            sandbox=False,
            approvals=False,
            interrupt=False,
            resume=False,
        )

    @property
    def own_skill_roots(self) -> OwnSkillRoots:
        """None that we know of."""
        return OwnSkillRoots()

    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Look for the program; see `preflight.check`."""
        del workspace_root
        return await check(self._launcher, self._command, self._profile, run_id=run_id)

    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator[CommandSession]:
        """A session, whose first process starts with its first turn; leaving the context ends what runs.

        Raises:
            AgentError: `invalid_workspace_cwd`, `state_directory`.
        """
        place, briefing = await resolve_workspace(request), await request.briefing()
        async with papers() as made:

            async def start(values: Mapping[str, str]) -> AgentProcess:
                return await self._launcher.start(
                    request, cwd=place.cwd, values=values, papers=made.directory
                )

            session = CommandSession(
                start,
                settings=self._settings,
                profile=self._profile,
                request=request,
                envelope=briefing.envelope or "",
                papers=made,
                separate=self._separate,
            )
            try:
                yield session
            finally:
                await session.stop()


def _invalid(name: str, message: str, hint: str) -> Failure:
    return Failure(
        category=Category.INVALID_WORKFLOW_CONFIG,
        blame=Blame.CONFIG,
        message=f"agent {name}: command.{message}",
        retryable=False,
        hint=hint,
    )

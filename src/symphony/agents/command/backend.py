"""The command backend: sessions of one shell command with one configuration (AG22).

Also what a person should know about its settings before anything runs.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from typing_extensions import override

from symphony.agents.backend import ProcessBackend, Start
from symphony.agents.base import (
    AgentError,
    Capabilities,
    Preflight,
    Program,
    Remark,
    Remarks,
    SessionRequest,
    Surroundings,
    cannot_tell,
)
from symphony.agents.command import placeholders
from symphony.agents.command.papers import papers
from symphony.agents.command.profiles import PROFILES, Profile, command_of, profile_of
from symphony.agents.command.session import CommandSession
from symphony.agents.place import resolve_workspace
from symphony.agents.process import AgentProcess
from symphony.agents.program import missing_program, program_of
from symphony.agents.redaction import redact
from symphony.agents.scratch import preflight_failure
from symphony.config.settings import CommandSettings
from symphony.domain.failures import Blame

__all__ = ["CommandBackend", "problems", "unguarded"]

_VERSION_TIMEOUT_MS = 60_000  # some programs take long to load
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


class CommandBackend(ProcessBackend[CommandSettings]):
    """An `AgentBackend` of one-shot processes; `name` is what the workflow calls it."""

    settings_type = CommandSettings
    client_tools = False

    def __init__(self, *, settings: CommandSettings, around: Surroundings, name: str = "command") -> None:
        super().__init__(settings=settings, around=around, name=name)
        self._profile = profile_of(settings) or Profile()
        self._separate = "envelope_file" in placeholders.used(self.command)
        self._shown, self.command = self.command, placeholders.filled(self.command)

    @override
    @classmethod
    def judge(cls, settings: CommandSettings, *, isolated: bool) -> Remarks:
        return Remarks(wrong=problems(settings), unguarded=unguarded(settings, isolated=isolated))

    @override
    @classmethod
    def command_of(cls, settings: CommandSettings) -> str | None:
        profile = profile_of(settings)
        return None if profile is None else command_of(settings, profile)

    @override
    @classmethod
    def install_hint_of(cls, settings: CommandSettings) -> str:
        return (profile_of(settings) or Profile()).install_hint

    @property
    @override
    def variables(self) -> frozenset[str]:
        return self._profile.variables

    @property
    @override
    def state_paths(self) -> tuple[str, ...]:
        return self._profile.state_paths

    @property
    @override
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

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Look for the program as a session would, and ask it for its version where it is known how.

        Nothing more can be asked of a command that nobody knows: to try it would be to let it work.

        Raises:
            AgentError: `agent_not_found`, or `agent_preflight` for one that cannot even tell its version.
        """
        del workspace_root
        wanted = Program(
            command=self._shown, key="command.command", missing=self.missing, hint=self.install_hint
        )
        failure = await missing_program(wanted, host=self.around.host, environment=self.around.environ)
        if failure is not None:
            raise AgentError(failure)
        program, version = program_of(self._shown), "unknown"
        if program is not None and self._profile.version is not None:
            version = await self._version(f"{program} {self._profile.version}", run_id)
        return Preflight(agent=program or "command", version=version)

    async def _version(self, command: str, run_id: str) -> str:
        hint = "try the command by hand as the user of the daemon"
        done = await self.ask(command, run_id=run_id, timeout_ms=_VERSION_TIMEOUT_MS)
        if done.timed_out:
            text = f"`{command}` did not answer within {_VERSION_TIMEOUT_MS} ms"
            raise preflight_failure(text, hint=hint, blame=Blame.CONFIG)
        if done.exit_code != 0:
            lines = (done.stderr + done.stdout).decode("utf-8", "replace").strip().splitlines()
            last = lines[-1] if lines else "without a word"
            text = f"`{command}` failed with exit code {done.exit_code}: {last}"
            raise preflight_failure(text, hint=hint, blame=Blame.CONFIG)
        found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
        return "unknown" if found is None else redact(found[0], 100)

    @override
    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator[CommandSession]:
        """A session, whose first process starts with its first turn; leaving the context ends what runs.

        Raises:
            AgentError: `invalid_workspace_cwd`, `state_directory`.
        """
        cwd, briefing = await resolve_workspace(request.cwd), await request.briefing(cannot_tell)
        async with papers() as made:

            async def start(values: Mapping[str, str]) -> AgentProcess:
                told = {placeholders.VARIABLES[name]: value for name, value in values.items()}
                variables = {**request.extra_env, **told}
                first = Start.of(request, cwd)
                return await self.start(replace(first, variables=variables, readable=(made.directory,)))

            session = CommandSession(
                start,
                settings=self.settings,
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


# --- what a person should know about its settings ---------------------------------------------------------


def problems(settings: CommandSettings) -> tuple[Remark, ...]:
    """Why no session could be started with these settings, each with the key that it is about."""
    profile = profile_of(settings)
    if profile is None:
        hint = f"known: {', '.join(sorted(PROFILES))}"
        return (Remark(key="profile", problem=f"{settings.profile[:60]!r} does not exist", hint=hint),)
    command = command_of(settings, profile)
    if command is None:
        problem = f"is required with the profile {settings.profile}"
        hint = "write the shell command of one turn, such as `my-agent --task {prompt_file}`"
        return (Remark(key="command", problem=problem, hint=hint),)
    found = tuple(
        Remark(key="command", problem=one.problem, hint=one.hint) for one in placeholders.problems(command)
    )
    if settings.model is None and "model" in placeholders.used(command):
        remark = Remark(key="command", problem="holds {model}, and there is none", hint="set model beside it")
        return (*found, remark)
    return found


def unguarded(settings: CommandSettings, *, isolated: bool) -> Remark | None:
    """Why sessions would have nothing between them and this machine; null where there is something (CL5).

    A command does what it does with the rights of the daemon's user: nobody asks, and nobody is asked.
    """
    if isolated:
        return None
    key = "profile" if settings.command is None else "command"
    problem = "runs without a sandbox of ours, as the user of the daemon"
    return Remark(key=key, problem=problem, hint="set workspace.isolation: bwrap")

"""The backend of kind `command`: starts a shell command for each turn, and checks its settings."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from typing_extensions import override

from symphony.agents import base
from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.command import placeholders
from symphony.agents.command.profiles import PROFILES, CommandProfile, command_of, profile_of
from symphony.agents.command.session import CommandSession, prompt_files
from symphony.agents.events import redact
from symphony.agents.preflight import missing_program, preflight_failure, program_of
from symphony.agents.process import AgentProcess
from symphony.config import CommandSettings
from symphony.domain import Blame

_VERSION_TIMEOUT_MS: Final = 60_000  # some programs take long to load
_VERSION: Final = re.compile(r"\d+\.\d+[\w.+-]*")


class CommandBackend(ProcessBackend[CommandSettings]):
    """Opens sessions of a program that does the work of a turn in one go."""

    settings_type = CommandSettings
    capabilities = base.Capabilities(
        system_block_at_start=False,
        client_tools=False,
        absolute_usage=False,
        usage=False,
        sandbox=False,
        approvals=False,
        interrupt=False,
        resume=False,
    )

    def __init__(
        self, *, settings: CommandSettings, context: base.BackendContext, name: str = "command"
    ) -> None:
        super().__init__(settings=settings, context=context, name=name)
        self._profile = profile_of(settings) or CommandProfile()
        self.variables = self._profile.variables
        self.folders = self._profile.folders
        separate_envelope = "envelope_file" in placeholders.used_placeholders(self.command)
        self.capabilities = replace(self.capabilities, system_block_at_start=separate_envelope)
        self.command = placeholders.shell_command(self.command)

    @override
    @classmethod
    def program(cls, settings: CommandSettings, section: str) -> base.Program | None:
        profile = profile_of(settings)
        if profile is None:
            return None
        return cls._program(command_of(settings, profile), profile.install_hint, section)

    @override
    @classmethod
    def check_settings(cls, settings: CommandSettings, *, isolated: bool) -> base.SettingIssues:
        """A command acts with the rights of the daemon's user and never asks for approval."""
        issue = base.SettingIssue(
            key="profile" if settings.command is None else "command",
            problem="runs without a sandbox of Symphony, as the user of the daemon",
            hint="set workspace.isolation: bwrap",
        )
        return base.SettingIssues(errors=_setting_errors(settings), no_sandbox=None if isolated else issue)

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> base.Preflight:
        """Look for the program as a session would, and ask for its version if the profile knows how.

        An unknown command cannot be tried: that would let it work.

        Raises:
            AgentError: `agent_not_found`, or `agent_preflight` if it cannot even report its version.
        """
        del workspace_root
        wanted, name, version = self.program(self.settings, "command"), None, "unknown"
        if wanted is not None:
            environ = self.context.environ
            failure = await missing_program(wanted, host=self.context.host, environment=environ)
            if failure is not None:
                raise base.AgentError(failure)
            name = program_of(wanted.command)
        if name is not None and self._profile.version is not None:
            version = await self._version(f"{name} {self._profile.version}", run_id)
        return base.Preflight(agent=name or "command", version=version)

    async def _version(self, command: str, run_id: str) -> str:
        hint = "try the command by hand as the user of the daemon"
        done = await self.run_command(command, run_id=run_id, timeout_ms=_VERSION_TIMEOUT_MS)
        if done.timed_out:
            text = f"`{command}` did not answer within {_VERSION_TIMEOUT_MS} ms"
            raise preflight_failure(text, hint=hint, blame=Blame.CONFIG)
        if done.exit_code != 0:
            lines = (done.stderr + done.stdout).decode("utf-8", "replace").strip().splitlines()
            last = lines[-1] if lines else "no output"
            text = f"`{command}` failed with exit code {done.exit_code}: {last}"
            raise preflight_failure(text, hint=hint, blame=Blame.CONFIG)
        found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
        return "unknown" if found is None else redact(found[0], 100)

    @override
    @asynccontextmanager
    async def open(self, request: base.SessionRequest) -> AsyncIterator[CommandSession]:
        """Open a session, whose first process starts with its first turn; leaving the context ends it.

        Raises:
            AgentError: `invalid_workspace_cwd`, `state_directory`.
        """
        cwd, briefing = (
            await base.resolve_workspace(request.cwd),
            await request.briefing(base.cannot_list_skills),
        )
        async with prompt_files() as files:

            async def start(values: Mapping[str, str]) -> AgentProcess:
                variables = {placeholders.VARIABLES[name]: value for name, value in values.items()}
                options = LaunchOptions.for_session(request, cwd)
                return await self.start(
                    replace(
                        options,
                        variables={**options.variables, **variables},
                        readable=(files.prompt_file.parent,),
                    )
                )

            session = CommandSession(
                start,
                settings=self.settings,
                profile=self._profile,
                request=request,
                envelope=briefing.envelope,
                files=files,
                separate_envelope=self.capabilities.system_block_at_start,
            )
            try:
                yield session
            finally:
                await session.stop()


def _setting_errors(settings: CommandSettings) -> tuple[base.SettingIssue, ...]:
    """Return why no session could start, each with its key."""
    profile = profile_of(settings)
    if profile is None:
        problem, hint = f"{settings.profile[:60]!r} does not exist", f"known: {', '.join(sorted(PROFILES))}"
        return (base.SettingIssue(key="profile", problem=problem, hint=hint),)
    command = command_of(settings, profile)
    if command is None:
        problem = f"is required with the profile {settings.profile}"
        hint = "write the shell command of one turn, such as `my-agent --task {prompt_file}`"
        return (base.SettingIssue(key="command", problem=problem, hint=hint),)
    found = [
        base.SettingIssue(key="command", problem=one.problem, hint=one.hint)
        for one in placeholders.placeholder_problems(command)
    ]
    if settings.model is None and "model" in placeholders.used_placeholders(command):
        problem = "holds {model}, and there is none"
        found.append(base.SettingIssue(key="command", problem=problem, hint="set model beside it"))
    return tuple(found)

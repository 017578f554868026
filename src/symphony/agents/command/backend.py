"""The command backend: sessions of one shell command with one configuration (AG22).

Also what a person should know about its settings before anything runs.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from typing_extensions import override

from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.base import (
    AgentError,
    BackendContext,
    Capabilities,
    Preflight,
    Program,
    SessionRequest,
    SettingIssue,
    SettingIssues,
    cannot_list_skills,
    resolve_workspace,
)
from symphony.agents.command.profiles import PROFILES, Profile, command_of, profile_of
from symphony.agents.command.session import CommandSession, papers
from symphony.agents.events import redact
from symphony.agents.preflight import missing_program, preflight_failure, program_of
from symphony.agents.process import AgentProcess
from symphony.config import CommandSettings
from symphony.domain import Blame

# What `{name}` stands for in a command of WORKFLOW.md, and how it gets there. Pure.
#
# A placeholder becomes the use of a variable, and the variable has the value: never is a text of the
# tracker made part of a command, where a shell could take it for one, and none is seen in a list of
# processes. It is one word wherever it stands, in double quotes or without; in single quotes the shell
# would leave the name as it is, so there it is refused. `${…}` is the shell's own and left alone; `{{` and
# `}}` are single braces.


VARIABLES: Final[Mapping[str, str]] = {
    "prompt_file": "SYMPHONY_PROMPT_FILE",
    "envelope_file": "SYMPHONY_ENVELOPE_FILE",
    "issue": "SYMPHONY_ISSUE_IDENTIFIER",
    "title": "SYMPHONY_ISSUE_TITLE",
    "workspace": "SYMPHONY_WORKSPACE",
    "model": "SYMPHONY_MODEL",
}
"""Placeholders, and the variables that hold their values; where a hook has the same, it has the same name."""

_TOKEN: Final = re.compile(
    r"(?P<escape>\\.)|(?P<double>\{\{|\}\})|(?P<variable>\$\{)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}"
    r"|(?P<brace>[{}])|(?P<open>\$?\()|(?P<close>\))|(?P<mark>[\"'`])",
    re.DOTALL,
)
_DOUBLED: Final = "write {{ and }} for braces that are the shell's"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderProblem:
    """Why a command cannot be used: a phrase that follows the key's name, and what to do about it."""

    problem: str
    hint: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A placeholder; `inside` is the quote that it stands in, empty for none."""

    name: str
    inside: str


def placeholder_problems(command: str) -> tuple[PlaceholderProblem, ...]:
    """Everything that is wrong with the placeholders of a command."""
    return tuple(found for part in _parts(command) if (found := _judged(part)) is not None)


def used_placeholders(command: str) -> frozenset[str]:
    """The placeholders of a command."""
    return frozenset(part.name for part in _parts(command) if isinstance(part, _Place))


def filled(command: str) -> str:
    """The command for the shell; one without problems."""
    return "".join(_use(part) for part in _parts(command) if not isinstance(part, PlaceholderProblem))


def _use(part: str | _Place) -> str:
    if isinstance(part, str):
        return part
    word = f"${{{VARIABLES[part.name]}}}"
    return word if part.inside else f'"{word}"'


def _judged(part: str | _Place | PlaceholderProblem) -> PlaceholderProblem | None:
    if isinstance(part, _Place):
        if part.name not in VARIABLES:
            known = ", ".join(f"{{{name}}}" for name in VARIABLES)
            return PlaceholderProblem(
                problem=f"holds {{{part.name[:60]}}}, which is no placeholder", hint=f"known: {known}"
            )
        if part.inside == "'":
            problem = f"holds {{{part.name}}} in single quotes, where the shell fills nothing in"
            return PlaceholderProblem(problem=problem, hint="take the quotes away: it is one word without")
        return None
    return part if isinstance(part, PlaceholderProblem) else None


def _parts(command: str) -> Iterator[str | _Place | PlaceholderProblem]:
    """Text, placeholders and problems, in order; which quote one stands in is followed on the way."""
    nest = [""]
    position = 0
    while (found := _TOKEN.search(command, position)) is not None:
        yield command[position : found.start()]
        position = found.end()
        kind, text = found.lastgroup, found[0]
        if kind == "escape" and nest[-1] == "'":
            yield "\\"
            position = found.start() + 1
        elif kind == "double":
            yield text[0]
        elif kind == "name":
            yield _Place(found["name"], nest[-1] if nest[-1] in {"'", '"'} else "")
        elif kind == "brace":
            yield PlaceholderProblem(problem=f"holds a single {text}", hint=_DOUBLED)
        elif kind == "variable":
            position = _end_of_variable(command, position)
            whole = command[found.start() : position]
            yield (
                whole
                if whole.endswith("}")
                else PlaceholderProblem(problem="holds ${ without its }", hint=_DOUBLED)
            )
        else:
            _follow(nest, text)
            yield text
    yield command[position:]


def _follow(nest: list[str], text: str) -> None:
    """Enter or leave quotes and substitutions; an escape, or a bracket in quotes, is only text."""
    top = nest[-1]
    if (text == top and text) or (text == ")" and top == "("):
        nest.pop()
    elif top == "'":
        return
    elif text in {'"', "`"} or (text == "'" and top != '"'):
        nest.append(text)
    elif text == "$(" or (text == "(" and top != '"'):
        nest.append("(")


def _end_of_variable(command: str, position: int) -> int:
    """Behind the brace that closes `${`, or the end of the command."""
    depth = 1
    while depth and position < len(command):
        depth += {"{": 1, "}": -1}.get(command[position], 0)
        position += 1
    return position


_VERSION_TIMEOUT_MS = 60_000  # some programs take long to load
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


class CommandBackend(ProcessBackend[CommandSettings]):
    """An `AgentBackend` of one-shot processes; `name` is what the workflow calls it."""

    settings_type = CommandSettings
    client_tools = False

    def __init__(self, *, settings: CommandSettings, context: BackendContext, name: str = "command") -> None:
        super().__init__(settings=settings, context=context, name=name)
        self._profile = profile_of(settings) or Profile()
        self._separate = "envelope_file" in used_placeholders(self.command)
        self._shown, self.command = self.command, filled(self.command)

    @override
    @classmethod
    def check_settings(cls, settings: CommandSettings, *, isolated: bool) -> SettingIssues:
        return SettingIssues(
            errors=setting_errors(settings), no_sandbox=missing_sandbox(settings, isolated=isolated)
        )

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
        failure = await missing_program(wanted, host=self.context.host, environment=self.context.environ)
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
        cwd, briefing = await resolve_workspace(request.cwd), await request.briefing(cannot_list_skills)
        async with papers() as made:

            async def start(values: Mapping[str, str]) -> AgentProcess:
                told = {VARIABLES[name]: value for name, value in values.items()}
                variables = {**request.extra_env, **told}
                first = LaunchOptions.for_session(request, cwd)
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


def setting_errors(settings: CommandSettings) -> tuple[SettingIssue, ...]:
    """Why no session could be started with these settings, each with the key that it is about."""
    profile = profile_of(settings)
    if profile is None:
        hint = f"known: {', '.join(sorted(PROFILES))}"
        return (SettingIssue(key="profile", problem=f"{settings.profile[:60]!r} does not exist", hint=hint),)
    command = command_of(settings, profile)
    if command is None:
        problem = f"is required with the profile {settings.profile}"
        hint = "write the shell command of one turn, such as `my-agent --task {prompt_file}`"
        return (SettingIssue(key="command", problem=problem, hint=hint),)
    found = tuple(
        SettingIssue(key="command", problem=one.problem, hint=one.hint)
        for one in placeholder_problems(command)
    )
    if settings.model is None and "model" in used_placeholders(command):
        remark = SettingIssue(
            key="command", problem="holds {model}, and there is none", hint="set model beside it"
        )
        return (*found, remark)
    return found


def missing_sandbox(settings: CommandSettings, *, isolated: bool) -> SettingIssue | None:
    """Why sessions would have nothing between them and this machine; null where there is something (CL5).

    A command does what it does with the rights of the daemon's user: nobody asks, and nobody is asked.
    """
    if isolated:
        return None
    key = "profile" if settings.command is None else "command"
    problem = "runs without a sandbox of ours, as the user of the daemon"
    return SettingIssue(key=key, problem=problem, hint="set workspace.isolation: bwrap")

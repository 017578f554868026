"""The check of Claude Code before the first dispatch: program, version, control channel, login.

The agent is started as a session would start it and asked to open its control channel, whose answer also
shows how it is logged in. No model is called: a wrong one fails the first turn.
"""

import re
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.base import AgentError, Preflight
from symphony.agents.claude import protocol
from symphony.agents.claude.session import Channel
from symphony.agents.events import redact
from symphony.agents.json_fields import Json, object_in
from symphony.agents.preflight import preflight_failure, scratch_directory
from symphony.config import ClaudeSettings
from symphony.domain import Blame, Category, Failure

_OLDEST_VERSION: Final = (2, 1, 0)
_TRIED_VERSION: Final = (2, 1, 197)
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_NOT_FOUND_EXIT: Final = 127
_ROOT_REFUSED: Final = "cannot be used with root"
_ROOT_HINT: Final = (
    "run the daemon as another user, or set workspace.isolation: bwrap, or another permission_mode"
)


async def check(backend: ProcessBackend[ClaudeSettings], workspace_root: Path, *, run_id: str) -> Preflight:
    """Start the agent once as a session would and see that it can work.

    Raises:
        AgentError: `agent_not_found`, `agent_auth`, `agent_preflight` or `state_directory`, with a hint.
    """
    context = backend.context
    async with scratch_directory(context.host, context.environ, workspace_root) as scratch:
        version = await _version(backend, run_id)
        greeting = await _greeting(backend, scratch, run_id)
    if not _is_logged_in(greeting):
        failure = Failure(
            category=Category.AGENT_AUTH,
            blame=Blame.CONFIG,
            message="Claude Code is not logged in",
            retryable=False,
            hint=protocol.login_hint(backend.home),
        )
        raise AgentError(failure)
    notices: tuple[str, ...] = ()
    if version is None:
        notices = ("the agent did not tell its version",)
    elif version != _TRIED_VERSION:
        tried = _dotted(_TRIED_VERSION)
        notices = (f"Claude Code {_dotted(version)} was not tried with this version; {tried} was",)
    return Preflight(agent="claude", version=_dotted(version) if version else "unknown", notices=notices)


async def _version(backend: ProcessBackend[ClaudeSettings], run_id: str) -> tuple[int, ...] | None:
    """Return the version that the program reports, or None."""
    settings = backend.settings
    try:
        done = await backend.run_command(
            settings.command, run_id=run_id, timeout_ms=settings.read_timeout_ms, arguments=("--version",)
        )
    except OSError as error:
        raise _not_found(f"the agent could not be started: {error}") from error
    if done.exit_code == _NOT_FOUND_EXIT:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else "claude.command gave exit code 127"
        raise _not_found(f"the agent's program was not found: {last}")
    found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    version = None if found is None else tuple(map(int, found.groups()))
    if version is not None and version < _OLDEST_VERSION:
        oldest = _dotted(_OLDEST_VERSION)
        text = f"Claude Code {_dotted(version)} is too old: {oldest} is the oldest that can work"
        raise preflight_failure(text, hint=protocol.INSTALL_HINT)
    return version


async def _greeting(backend: ProcessBackend[ClaudeSettings], scratch: Path, run_id: str) -> dict[str, Any]:
    """Return the answer to `initialize`."""
    settings = backend.settings
    arguments = protocol.session_arguments(settings, cwd=scratch, thread_id=str(uuid.uuid4()))
    options = replace(LaunchOptions.for_check(run_id, scratch), arguments=arguments)
    async with backend.running(options) as process:
        channel = Channel(process, read_timeout_ms=settings.read_timeout_ms)

        async def handle(message: protocol.Message) -> None:
            if isinstance(message, protocol.ControlRequest):
                await channel.refuse(message, "only a check is running")

        try:
            return await channel.call("initialize", handle, hooks={})
        except AgentError as error:
            message = error.failure.message
            if error.failure.category is Category.AGENT_NOT_FOUND:
                raise
            text = f"claude.command does not open the control channel of Claude Code: {message}"
            hint = (
                _ROOT_HINT
                if _ROOT_REFUSED in message
                else f"try the command by hand; {protocol.INSTALL_HINT}"
            )
            raise preflight_failure(text, hint=hint) from error


def _is_logged_in(greeting: Json) -> bool:
    """Whether a token, a key or an account was found. Other API providers than Anthropic are not checked."""
    account = object_in(greeting, "account")
    if account.get("apiProvider") != "firstParty" or account.get("email"):
        return True
    sources = (account.get("tokenSource"), account.get("apiKeySource"))
    return any(source not in (None, "none") for source in sources)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _not_found(message: str) -> AgentError:
    failure = Failure(
        category=Category.AGENT_NOT_FOUND,
        blame=Blame.CONFIG,
        message=redact(message),
        retryable=False,
        hint=protocol.INSTALL_HINT,
    )
    return AgentError(failure)

"""The check before the first dispatch: binary, version, control channel, login (DESIGN 9).

The agent is started as a session would start it and asked to open its control channel, whose answer also says
how it is logged in. No model is asked, so a wrong one shows in the first turn, which it fails for good.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from symphony.agents.backend import ProcessBackend, Start
from symphony.agents.base import AgentError, Preflight
from symphony.agents.claude.arguments import session_arguments
from symphony.agents.claude.channel import Channel
from symphony.agents.claude.codec import Message, Question
from symphony.agents.claude.errors import INSTALL_HINT
from symphony.agents.redaction import redact
from symphony.agents.scratch import preflight_failure, scratch
from symphony.config.settings import ClaudeSettings
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["check"]

_OLDEST = (2, 1, 0)
_TRIED = (2, 1, 197)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_NOT_FOUND_EXIT = 127
_ROOT_REFUSED = "cannot be used with root"
_ROOT_HINT = "run the daemon as another user, or set workspace.isolation: bwrap, or another permission_mode"


async def check(
    backend: ProcessBackend[ClaudeSettings],
    settings: ClaudeSettings,
    workspace_root: Path,
    *,
    run_id: str,
    login_hint: str,
) -> Preflight:
    """Start the agent once as a session would and see that it can work.

    Raises:
        AgentError: `agent_not_found`, `agent_auth`, `agent_preflight` or `state_directory`, with a hint.
    """
    around = backend.around
    async with scratch(around.host, around.environ, workspace_root) as place:
        version = await _version(backend, settings, run_id)
        greeting = await _greeting(backend, settings, place, run_id)
    _check_login(greeting, hint=login_hint)
    shown = ".".join(map(str, version)) if version else "unknown"
    return Preflight(agent="claude", version=shown, notices=_version_notices(version, shown))


async def _version(
    backend: ProcessBackend[ClaudeSettings], settings: ClaudeSettings, run_id: str
) -> tuple[int, ...] | None:
    try:
        done = await backend.ask(
            settings.command, run_id=run_id, timeout_ms=settings.read_timeout_ms, arguments=("--version",)
        )
    except OSError as error:
        raise AgentError(_missing(f"the agent could not be started: {error}")) from error
    told = done.stderr.decode("utf-8", "replace").strip()
    if done.exit_code == _NOT_FOUND_EXIT:
        last = told.splitlines()[-1:] or ["claude.command gave exit code 127"]
        raise AgentError(_missing(f"the agent's program was not found: {last[0]}"))
    found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    version = None if found is None else tuple(map(int, found.groups()))
    if version is not None and version < _OLDEST:
        shown, oldest = ".".join(map(str, version)), ".".join(map(str, _OLDEST))
        text = f"Claude Code {shown} is too old: {oldest} is the oldest that can work"
        raise preflight_failure(text, hint=INSTALL_HINT)
    return version


async def _greeting(
    backend: ProcessBackend[ClaudeSettings], settings: ClaudeSettings, place: Path, run_id: str
) -> Mapping[str, Any]:
    arguments = session_arguments(
        settings,
        cwd=place,
        thread_id=str(uuid.uuid4()),
        resumed=False,
        envelope=None,
        server=None,
        own_skill_listing=True,
    )
    start = replace(Start.of_check(run_id, place), arguments=arguments)
    async with backend.running(start) as process:
        channel = Channel(process, read_timeout_ms=settings.read_timeout_ms)

        async def other(message: Message) -> None:
            if isinstance(message, Question):
                await channel.refuse(message, "only a check is running")

        try:
            return await channel.call("initialize", other, hooks={})
        except AgentError as error:
            raise _no_greeting(error.failure) from error


def _no_greeting(failure: Failure) -> AgentError:
    if failure.category is Category.AGENT_NOT_FOUND:
        return AgentError(failure)
    text = f"claude.command does not open the control channel of Claude Code: {failure.message}"
    refused = _ROOT_REFUSED in failure.message
    return preflight_failure(text, hint=_ROOT_HINT if refused else f"try the command by hand; {INSTALL_HINT}")


def _check_login(greeting: Mapping[str, Any], *, hint: str) -> None:
    """Nobody is logged in where the vendor's own service is used and neither a token nor a key was found."""
    account = greeting.get("account")
    if not isinstance(account, dict) or account.get("apiProvider") != "firstParty":
        return
    sources = (account.get("tokenSource"), account.get("apiKeySource"))
    if all(source in {None, "none"} for source in sources) and not account.get("email"):
        failure = Failure(
            category=Category.AGENT_AUTH,
            blame=Blame.CONFIG,
            message="Claude Code is not logged in",
            retryable=False,
            hint=hint,
        )
        raise AgentError(failure)


def _version_notices(version: tuple[int, ...] | None, shown: str) -> tuple[str, ...]:
    if version is None:
        return ("the agent did not tell its version",)
    tried = ".".join(map(str, _TRIED))
    return () if version == _TRIED else (f"Claude Code {shown} was not tried with this version; {tried} was",)


def _missing(message: str) -> Failure:
    return Failure(
        category=Category.AGENT_NOT_FOUND,
        blame=Blame.CONFIG,
        message=redact(message),
        retryable=False,
        hint=INSTALL_HINT,
    )

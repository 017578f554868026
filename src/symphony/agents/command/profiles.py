"""Profiles of one-shot agents, as data: their call, their requirements, and their failures.

The facts about an agent were observed with the version that its profile names.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from symphony.agents.folders import AIDER_FOLDERS, AgentFolder
from symphony.config import CommandSettings
from symphony.domain import Category


class FailurePattern(Struct, frozen=True, kw_only=True):
    """A line of output that shows why the agent could not work, regardless of its exit code.

    `permanent` failures need a change of the configuration: no retry can succeed.
    """

    pattern: re.Pattern[str]
    category: Category
    hint: str | None = None
    permanent: bool = False


class CommandProfile(Struct, frozen=True, kw_only=True):
    """One agent.

    Attributes:
        command: the shell command of a turn, with placeholders; or None.
        model_argument: appended to that command for a model.
        suffix: appended to all of it.
        version: the argument that prints its version; None if it is not asked.
        variables: the daemon's variables that it needs, such as its keys.
        folders: what it keeps in the operator's home.
        install_hint: what to do when it is not installed.
        failures: patterns of lines; the first that matches a line counts.
        progress: a line that shows that the agent went on, and so cancels an earlier failure.
        observed: the version that these facts were observed with, or None.
    """

    command: str | None = None
    model_argument: str = ""
    suffix: str = ""
    version: str | None = None
    variables: frozenset[str] = frozenset()
    folders: tuple[AgentFolder, ...] = ()
    install_hint: str = "see that command.command names a program that the daemon's login shell finds"
    failures: tuple[FailurePattern, ...] = ()
    progress: re.Pattern[str] | None = None
    observed: str | None = None


_AIDER_KEYS: Final = frozenset(
    {
        *("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION"),
        *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "AIDER_MODEL"),
    }
)
_AIDER: Final = (
    "aider --message-file {prompt_file} --read {envelope_file} --yes-always --no-pretty --no-analytics"
    " --no-check-update --no-show-release-notes --no-show-model-warnings --no-detect-urls"
    " --no-suggest-shell-commands --no-gitignore"
    " --chat-history-file /dev/null --input-history-file /dev/null"
)
# Its exit code is 0 even if the model's API fails.
_AIDER_FAILURES: Final = (
    FailurePattern(
        pattern=re.compile(r"\blitellm\.(?:AuthenticationError|PermissionDeniedError)\b"),
        category=Category.AGENT_AUTH,
        hint="set the key of the model's API where the daemon starts, such as OPENAI_API_KEY",
        permanent=True,
    ),
    FailurePattern(
        pattern=re.compile(r"\blitellm\.NotFoundError\b"),
        category=Category.TURN_FAILED,
        hint="set the model to one that this account can use",
        permanent=True,
    ),
    FailurePattern(pattern=re.compile(r"\blitellm\.RateLimitError\b"), category=Category.AGENT_RATE_LIMITED),
    FailurePattern(
        pattern=re.compile(r"\blitellm\.ContextWindowExceededError\b"), category=Category.AGENT_CONTEXT_FULL
    ),
    FailurePattern(
        pattern=re.compile(
            r"\blitellm\.(?:APIConnectionError|InternalServerError|ServiceUnavailableError|BadGatewayError|Timeout)\b"
        ),
        category=Category.AGENT_UNAVAILABLE,
    ),
    FailurePattern(pattern=re.compile(r"\blitellm\.\w*(?:Error|Timeout)\b"), category=Category.TURN_FAILED),
)

PROFILES: Final[Mapping[str, CommandProfile]] = {
    "generic": CommandProfile(),
    "aider": CommandProfile(
        command=_AIDER,
        model_argument=" --model {model}",
        # Its cache would look like work of the agent.
        suffix="; code=$?; rm -rf .aider.tags.cache.*; exit $code",
        version="--version",
        variables=_AIDER_KEYS,
        folders=AIDER_FOLDERS,
        install_hint="install it with `pipx install aider-chat`, or set command.command to where it is",
        failures=_AIDER_FAILURES,
        progress=re.compile(r"^Tokens: .* sent"),
        observed="0.86.2",
    ),
}


def profile_of(settings: CommandSettings) -> CommandProfile | None:
    """Return the named profile; None for an unknown name."""
    return PROFILES.get(settings.profile)


def command_of(settings: CommandSettings, profile: CommandProfile) -> str | None:
    """Return the shell command with its placeholders: the operator's, else the profile's; or None."""
    if settings.command is not None or profile.command is None:
        return settings.command
    model = "" if settings.model is None else profile.model_argument
    return f"{profile.command}{model}{profile.suffix}"

"""What is known of single one-shot agents, as data: how one is called, what it needs, how it fails.

What is said of an agent was observed with the version that is named in it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from symphony.config import CommandSettings
from symphony.domain import Category


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A line of output by which an agent tells why it could not work, whatever its exit code says.

    `ours` is for what a person has to change here, and no further attempt can mend.
    """

    pattern: re.Pattern[str]
    category: Category
    hint: str | None = None
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One agent.

    Attributes:
        command: the shell command of a turn, with placeholders; null where only the workflow can tell.
        model_argument: what is appended to that command for a model.
        afterwards: what is appended to all of it.
        version: the argument with which it tells its version; null for an agent that is not asked.
        variables: names of the daemon's variables that it needs: its keys, and where its model is.
        state_paths: what it writes to below the operator's home.
        install_hint: what to do when it is not there.
        signs: how it tells what it does not tell by its exit code; the first that fits a line counts.
        worked: a line of output after which earlier signs mean nothing: it went on.
        observed: the version that all this was seen with; null for no agent in particular.
    """

    command: str | None = None
    model_argument: str = ""
    afterwards: str = ""
    version: str | None = None
    variables: frozenset[str] = frozenset()
    state_paths: tuple[str, ...] = ()
    install_hint: str = "see that command.command names a program that the daemon's login shell finds"
    signs: tuple[Sign, ...] = ()
    worked: re.Pattern[str] | None = None
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
# It ends with 0 whatever the model's API answers.
_AIDER_SIGNS: Final = (
    Sign(
        pattern=re.compile(r"\blitellm\.(?:AuthenticationError|PermissionDeniedError)\b"),
        category=Category.AGENT_AUTH,
        hint="set the key of the model's API where the daemon starts, such as OPENAI_API_KEY",
        ours=True,
    ),
    Sign(
        pattern=re.compile(r"\blitellm\.NotFoundError\b"),
        category=Category.TURN_FAILED,
        hint="set the model to one that this account can use",
        ours=True,
    ),
    Sign(pattern=re.compile(r"\blitellm\.RateLimitError\b"), category=Category.AGENT_RATE_LIMITED),
    Sign(
        pattern=re.compile(r"\blitellm\.ContextWindowExceededError\b"), category=Category.AGENT_CONTEXT_FULL
    ),
    Sign(pattern=re.compile(r"\blitellm\.\w*(?:Error|Timeout)\b"), category=Category.TURN_FAILED),
)

PROFILES: Final[Mapping[str, Profile]] = {
    "generic": Profile(),
    "aider": Profile(
        command=_AIDER,
        model_argument=" --model {model}",
        # A map of the repository that it makes anew, and that would look like work of the agent.
        afterwards="; code=$?; rm -rf .aider.tags.cache.*; exit $code",
        version="--version",
        variables=_AIDER_KEYS,
        state_paths=(".aider",),
        install_hint="install it with `pipx install aider-chat`, or set command.command to where it is",
        signs=_AIDER_SIGNS,
        worked=re.compile(r"^Tokens: .* sent"),
        observed="0.86.2",
    ),
}


def profile_of(settings: CommandSettings) -> Profile | None:
    """The profile that the settings name; null for one that does not exist."""
    return PROFILES.get(settings.profile)


def command_of(settings: CommandSettings, profile: Profile) -> str | None:
    """The shell command with its placeholders: the operator's, else the profile's; null for neither."""
    if settings.command is not None or profile.command is None:
        return settings.command
    model = "" if settings.model is None else profile.model_argument
    return f"{profile.command}{model}{profile.afterwards}"

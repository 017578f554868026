"""GitLab as a service: its address, its own accounts, and its quick actions in texts."""

import re

from symphony.http import ServiceProfile
from symphony.trackers.comments import lines_and_fences

SERVICE = ServiceProfile(
    name="GitLab",
    credential_key="tracker.provider.api_key",
    scope_key="tracker.provider.project_path",
    address="https://gitlab.com/api/v4",
)
DEVELOPER = 30
"""The lowest access level that may write to the project."""

_BOT = re.compile(r"(project|group)_\d+_bot(_[0-9a-f]+|\d*)|service_account_.+|ghost|support-bot|alert-bot")


def is_bot(login: str) -> bool:
    """Whether an account is one that GitLab makes for tokens and services."""
    return _BOT.fullmatch(login) is not None


def without_quick_actions(body: str) -> str:
    """The text without lines that begin with a slash, which GitLab would carry out (`/close`).

    Outside code a backslash goes before the slash, which Markdown does not show. Inside code a blank does,
    because servers and Markdown disagree on where a block of code ends.
    """
    lines = []
    for line, fence in lines_and_fences(body):
        bare = line.lstrip()
        if not bare.startswith("/"):
            lines.append(line)
        else:
            lines.append(f" {line}" if fence else f"{line[: len(line) - len(bare)]}\\{bare}")
    return "\n".join(lines)

"""What a person should know about `claude` settings before anything runs: no guards, unknown efforts."""

from symphony.agents.claude.arguments import EFFORTS
from symphony.agents.posture import Remark
from symphony.workflow.settings import ClaudeSettings

__all__ = ["doubtful", "unguarded"]

_BYPASSES = ("--dangerously-skip-permissions", "bypassPermissions")
_HINT = (
    "acceptEdits with on_approval: decline lets sessions edit files and commit; or set workspace.isolation"
)


def unguarded(settings: ClaudeSettings) -> Remark | None:
    """Why nothing would hold sessions inside their workspace; null where something does (CL5).

    Claude Code has no sandbox that we switch on: its permissions are all there is, unless
    `workspace.isolation` puts one around it, which whoever asks has to look at.
    """
    for bypass in _BYPASSES:
        if bypass in settings.command:
            return Remark(key="command", problem=f"holds {bypass}, which takes the guards away", hint=_HINT)
    if settings.permission_mode == "bypassPermissions":
        problem = "is bypassPermissions: sessions run whatever they like"
        return Remark(key="permission_mode", problem=problem, hint=_HINT)
    if settings.on_approval == "accept":
        problem = "is accept: sessions run whatever they ask for"
        return Remark(key="on_approval", problem=problem, hint=_HINT)
    return None


def doubtful(settings: ClaudeSettings) -> Remark | None:
    """An effort that Claude Code 2.1 does not know and ignores."""
    if settings.effort is None or settings.effort in EFFORTS:
        return None
    problem = f"{settings.effort[:60]!r} is unknown to Claude Code 2.1, which then uses its default"
    return Remark(key="effort", problem=problem, hint=f"write one of {', '.join(EFFORTS)}")

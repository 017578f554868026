"""What a person should know about `acp` settings before anything runs: sessions that nothing holds. Pure."""

from difflib import get_close_matches

from symphony.agents.acp.profiles import PROFILES, command_of, profile_of
from symphony.agents.posture import Remark
from symphony.agents.redaction import redact
from symphony.workflow.settings import AcpSettings

__all__ = ["problems", "unguarded"]

_BYPASSES = ("--yolo", "-y", "--dangerously-skip-permissions", "--approval-mode=yolo")
_HINT = "set workspace.isolation: bwrap"


def problems(settings: AcpSettings) -> tuple[Remark, ...]:
    """Why no session could start with these settings; empty where one could be tried."""
    profile = profile_of(settings)
    if profile is None:
        near = get_close_matches(settings.profile, PROFILES, n=1)
        known = f"known profiles: {', '.join(sorted(PROFILES))}"
        problem = f"is {redact(repr(settings.profile), 60)}, which is not known"
        return (
            Remark(
                key="profile", problem=problem, hint=f"did you mean {near[0]}? {known}" if near else known
            ),
        )
    if command_of(settings, profile) is None:
        problem = f"is needed where the profile is {settings.profile}"
        return (Remark(key="command", problem=problem, hint=profile.install_hint),)
    return ()


def unguarded(settings: AcpSettings, *, isolated: bool) -> Remark | None:
    """Why sessions would have nothing between them and this machine; null where there is something (CL5).

    An agent of this protocol has no sandbox that we could ask for. What is left is that it asks before it
    acts and is told no, or that its processes are isolated.
    """
    profile = profile_of(settings)
    if isolated or profile is None:
        return None
    if settings.on_approval == "accept":
        problem = "accept lets sessions do whatever they ask for, and no sandbox holds them"
        return Remark(key="on_approval", problem=problem, hint=f"decline is the default; or {_HINT}")
    for bypass in _BYPASSES:
        if settings.command is not None and bypass in settings.command.split():
            problem = f"holds {bypass}: sessions do not ask, and no sandbox holds them"
            return Remark(key="command", problem=problem, hint=f"leave it out; or {_HINT}")
    if settings.mode in profile.open_modes:
        problem = f"{settings.mode} lets sessions act without asking, and no sandbox holds them"
        return Remark(key="mode", problem=problem, hint=f"leave it out; or {_HINT}")
    if not profile.asks:
        problem = f"{settings.profile} cannot tell whether the agent asks first, and no sandbox holds it"
        return Remark(key="profile", problem=problem, hint=_HINT)
    return None

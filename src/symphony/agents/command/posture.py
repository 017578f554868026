"""What a person should know about `command` settings before anything runs. Pure."""

from symphony.agents.command import placeholders
from symphony.agents.command.profiles import PROFILES, command_of, profile_of
from symphony.agents.posture import Remark
from symphony.workflow.settings import CommandSettings

__all__ = ["problems", "unguarded"]


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

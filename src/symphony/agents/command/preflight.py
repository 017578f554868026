"""The check before the first dispatch: is the program there, and which version is it (DESIGN 9)?

Nothing more can be asked of a command that nobody knows: to try it would be to let it work.
"""

import re

from symphony.agents.base import AgentError, Preflight
from symphony.agents.command.launcher import Launcher
from symphony.agents.command.profiles import Profile
from symphony.agents.process import shell_argv
from symphony.agents.program import Wanted, missing_program, program_of
from symphony.agents.redaction import redact
from symphony.agents.scratch import preflight_failure
from symphony.domain.failures import Blame, Category

__all__ = ["check"]

_VERSION_TIMEOUT_MS = 60_000  # some programs take long to load
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


async def check(launcher: Launcher, command: str, profile: Profile, *, run_id: str) -> Preflight:
    """Look for the program as a session would, and ask it for its version where it is known how.

    Raises:
        AgentError: `agent_not_found`, or `agent_preflight` for one that cannot even tell its version.
    """
    around = launcher.around
    wanted = Wanted(key="command.command", category=Category.AGENT_NOT_FOUND, hint=profile.install_hint)
    failure = await missing_program(command, host=around.host, environment=around.environ, wanted=wanted)
    if failure is not None:
        raise AgentError(failure)
    program, version = program_of(command), "unknown"
    if program is not None and profile.version is not None:
        version = await _version(launcher, f"{program} {profile.version}", run_id)
    return Preflight(agent=program or "command", version=version)


async def _version(launcher: Launcher, command: str, run_id: str) -> str:
    around = launcher.around
    argv = shell_argv(command, launcher.secrets, search_path=around.environ.get("PATH"))
    env = launcher.environment(run_id, await launcher.home(), secret_names=launcher.secrets)
    hint = "try the command by hand as the user of the daemon"
    done = await around.host.run(argv, env=env, timeout_ms=_VERSION_TIMEOUT_MS)
    if done.timed_out:
        text = f"`{command}` did not answer within {_VERSION_TIMEOUT_MS} ms"
        raise preflight_failure(text, hint=hint, blame=Blame.CONFIG)
    if done.exit_code != 0:
        lines = (done.stderr + done.stdout).decode("utf-8", "replace").strip().splitlines()
        text = (
            f"`{command}` failed with exit code {done.exit_code}: {lines[-1] if lines else 'without a word'}"
        )
        raise preflight_failure(text, hint=hint, blame=Blame.CONFIG)
    found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    return "unknown" if found is None else redact(found[0], 100)

"""An agent without a model: speaks the Codex app-server protocol and follows a script in the prompt.

Start it like any other agent, `codex.command: <command()>`. It really reads skills, edits files, runs
commands, commits and calls the daemon's tools; it says in the first message of each turn that no model is
involved, and in its first warning that it has no sandbox of its own. The script is described in `script`,
the switches that make it misbehave in `faults`. Standard library only, so that it starts fast.
"""

import shlex
import sys

NO_MODEL = "Scripted agent: no model is involved."
USER_AGENT_NAME = "symphony-scripted-agent"


def command(*switches: str) -> str:
    """The shell command that starts the agent with this interpreter, for `codex.command`.

    `-P` keeps the current directory, which is a workspace, off the module path.
    """
    return shlex.join([sys.executable, "-P", "-m", "symphony.testing.scripted_agent", *switches])

"""Runs a command over what an agent wrote, as the agent itself would run it."""

from collections.abc import Mapping
from pathlib import Path

from symphony import to_thread
from symphony.agents.base import AgentBackend
from symphony.agents.environment import ALL_CREDENTIALS, child_environment
from symphony.agents.process import shell_argv
from symphony.processes.base import Completed

_MAX_OUTPUT_BYTES = 64 * 1024


async def run_as_agent(
    backend: AgentBackend,
    command: str,
    *,
    run_id: str,
    cwd: Path,
    timeout_ms: int,
    variables: Mapping[str, str],
    repositories: tuple[Path, ...] = (),
) -> Completed:
    """Run a shell command with the environment, the home and the isolation of an agent.

    It gets what the key `env` of the agent names, and no key of a model unless that names it. The agent's
    folders in the operator's home stay closed: a command needs no login.

    Args:
        backend: the agent.
        command: the shell command.
        run_id: marks its processes.
        cwd: an existing directory, the only place besides a private home that it may write to.
        timeout_ms: how long it may take.
        variables: added to the environment.
        repositories: git directories that it may read.

    Raises:
        OSError: it cannot be started.
    """
    context, names = backend.context, frozenset(backend.settings.env)
    secrets = context.secret_names | (ALL_CREDENTIALS - names)
    env = child_environment(
        backend.environ, run_id=run_id, agent_names=names, extra=variables, secret_names=secrets
    )
    argv = shell_argv(command, secrets, search_path=env.get("PATH"))

    def confined() -> tuple[str, ...]:
        if context.isolation is None:
            return argv
        isolation = context.isolation.allowing(
            writable=() if backend.home is None else (backend.home,),
            readable=(*context.readable_files(env), *repositories),
            repositories=repositories,
        )
        return isolation.wrap(argv, cwd=cwd)

    return await context.host.run(
        await to_thread.run_sync(confined),
        cwd=cwd,
        env=env,
        timeout_ms=timeout_ms,
        max_output_bytes=_MAX_OUTPUT_BYTES,
    )

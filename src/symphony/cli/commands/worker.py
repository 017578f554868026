"""`symphony worker`: carries out one run for a daemon; started by the daemon, not by people."""

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

import anyio
import click

from symphony.daemon.hosts.host_runs import HostRuns
from symphony.daemon.state_dir import instance_of, locate
from symphony.processes.child import PipeReader, PipeWriter
from symphony.processes.local import LocalHost


@click.command(hidden=True)
@click.option("--stdio", is_flag=True, help="Speak with the daemon on stdin and stdout.")
@click.option("--end", metavar="RUN_ID", help="End a run, and succeed once none of its processes is alive.")
@click.option("--list", "list_", is_flag=True, help="Describe the workspaces of the site that stdin has.")
@click.option("--remove", is_flag=True, help="Remove the workspace that stdin names.")
def worker(*, stdio: bool, end: str | None, list_: bool, remove: bool) -> None:
    """Carry out one run for a daemon, or end one; or look after workspaces."""
    if [stdio, end is not None, list_, remove].count(True) != 1:
        raise click.UsageError("give one of --stdio, --end, --list and --remove")
    if end is not None:
        if not anyio.run(_end_run, end):
            raise SystemExit(1)
    elif list_ or remove:
        from symphony.daemon.hosts.worker_program import (  # noqa: PLC0415 - for `--end` little is loaded
            list_workspaces,
            remove_workspace,
        )

        data = sys.stdin.buffer.read()
        with redirect_stdout(sys.stderr):
            line = anyio.run(list_workspaces if list_ else remove_workspace, data, dict(os.environ))
        click.echo(line)
    else:
        _serve_stdio()


async def _end_run(run_id: str) -> bool:
    """Whether none of its processes is alive; loads as little as possible, because a daemon waits for it."""
    state_dir = locate(Path(), os.environ)
    return await HostRuns(state_dir).end(run_id, LocalHost(instance=instance_of(state_dir)))


def _serve_stdio() -> None:
    from symphony.cli.serving import prepare_process  # noqa: PLC0415 - for `--end` little is loaded
    from symphony.daemon.hosts.worker_program import WorkerProgram  # noqa: PLC0415 - as above

    stdin, stdout = os.dup(0), os.dup(1)
    with Path(os.devnull).open("rb") as null:
        os.dup2(null.fileno(), 0)
    os.dup2(2, 1)  # other output to stdout must not mix with frames

    async def serve() -> None:
        program = WorkerProgram(
            PipeReader(stdin), PipeWriter(stdout), dict(os.environ), adopt_orphans=prepare_process()
        )
        await program.run()

    with redirect_stdout(sys.stderr):
        anyio.run(serve)

"""`symphony worker`: carries out one run for a daemon; started by the daemon, not by people."""

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

import anyio
import click


@click.command(hidden=True)
@click.option("--stdio", is_flag=True, required=True, help="Speak with the daemon on stdin and stdout.")
def worker(*, stdio: bool) -> None:
    """Carry out one run for a daemon."""
    from symphony.cli.serving import prepare_process
    from symphony.daemon.worker_program import WorkerProgram
    from symphony.processes.local import PipeReader, PipeWriter

    del stdio
    stdin, stdout = os.dup(0), os.dup(1)
    with Path(os.devnull).open("rb") as null:
        os.dup2(null.fileno(), 0)
    os.dup2(2, 1)  # whatever prints to stdout must not mix with frames

    async def serve() -> None:
        program = WorkerProgram(
            PipeReader(stdin), PipeWriter(stdout), dict(os.environ), adopt_orphans=prepare_process()
        )
        await program.run()

    with redirect_stdout(sys.stderr):
        anyio.run(serve)

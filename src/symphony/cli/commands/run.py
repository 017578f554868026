"""`symphony run`: serve a workflow from a terminal or a service manager."""

import faulthandler
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from symphony.cli.failures import ExitCode
from symphony.cli.options import workflow_argument
from symphony.domain import natural_order
from symphony.scheduler import Command, Drain, Event, OperatorAsked, State

if TYPE_CHECKING:
    from symphony.cli.summary import RunSummary


# What a person at the terminal is told when the daemon begins to end.


class DrainMessage:
    """An observer that says, once, what is waited for and how not to wait for it."""

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Speak when a step begins the drain while turns are running."""
        del commands
        if before.drain is Drain.NO and after.drain is Drain.DRAINING and after.running:
            names = ", ".join(
                sorted((run.issue.identifier for run in after.running.values()), key=natural_order)
            )
            limit = f" (at most {after.settings.drain_timeout_ms // 1000} s)"
            bound = "" if isinstance(fact, OperatorAsked) else limit
            text = f"The turns of {names} may end first{bound}; Ctrl-C stops them now."
            click.echo(text, err=True)


_EPILOG = """\b
Examples:
  symphony run                      serve the nearest WORKFLOW.md until Ctrl-C
  symphony run --port 8787          the HTTP API as well, see docs/api.md
  symphony run --once               work until nothing is running, retrying or eligible
  symphony run --verbose            every line of the log on the terminal
  symphony run ../app/WORKFLOW.md --log-format json 2>>symphony.log

SIGTERM lets running turns end, Ctrl-C (or a second SIGTERM) stops them at once, SIGHUP reloads.

Exit codes: 0 done, 1 failure (with --once: an issue is blocked or given up), 2 usage, 3 configuration,
4 authentication.
"""


@click.command(epilog=_EPILOG)
@workflow_argument
@click.option("--once", is_flag=True, help="End when nothing is running, retrying or eligible.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Serve the HTTP API on this port, 0 for a free one; wins over server.port.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "console", "json"]),
    default="auto",
    show_default=True,
    help="auto: lines for people on a terminal, JSON otherwise. console: every log line in columns.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="On a terminal show every line of the log, not only what people need.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least important line to show.",
)
@click.option(
    "--logs-root",
    metavar="DIR",
    callback=lambda _context, _option, value: _absolute(value),
    help="Write lines to DIR/log/symphony.log as well, one JSON object each; rotated at 10 MiB, five kept.",
)
@click.option(
    "--record",
    metavar="FILE",
    callback=lambda _context, _option, value: _absolute(value),
    help="Write what is decided on to this new file, for `symphony replay`; at most 256 MiB.",
)
@click.option(
    "--i-understand-that-this-will-be-running-without-the-usual-guardrails",
    "acknowledged",
    is_flag=True,
    help="Accept settings under which sessions run without a sandbox. Needed for such settings only.",
)
def run(
    workflow: Path,
    *,
    once: bool,
    port: int | None,
    log_format: str,
    log_level: str,
    verbose: bool,
    logs_root: Path | None,
    record: Path | None,
    acknowledged: bool,
) -> None:
    """Work on the issues of a board as WORKFLOW.md says."""
    from symphony.cli.serving import serve

    if "WATCHDOG_USEC" in os.environ:
        faulthandler.enable()  # a daemon that a watchdog aborts says where it hung
    tally = serve(
        workflow,
        environment=dict(os.environ),
        once=once,
        log_format=log_format,
        log_level=log_level,
        verbose=verbose or log_level == "debug",
        logs_root=logs_root,
        record=record,
        acknowledged=acknowledged,
        port=port,
        last=True,
        observers=(DrainMessage(),) if sys.stderr.isatty() else (),
    )
    if once:
        _conclude(tally, workflow)


def _absolute(text: str | None) -> Path | None:
    """An absolute path; a blank text is the current directory to `Path`, and surely not meant (CL4)."""
    if text is not None and not text.strip():
        raise click.BadParameter("must not be blank")
    return None if text is None else Path(text).absolute()


def _conclude(tally: "RunSummary", workflow: Path) -> NoReturn:
    """The summary of `--once`: where the work is, who is asked for; the exit code says whether anybody is."""
    from symphony.cli.summary import delivery_lines

    if tally.issues and sys.stderr.isatty():
        from rich.console import Console

        from symphony.cli.summary import summary_table

        console = Console(stderr=True)
        console.print(summary_table(tally, width=console.width))
    found = workflow.absolute()
    here = found.name == "WORKFLOW.md" and Path.cwd().is_relative_to(found.parent)
    option = "" if here else f" --workflow {shlex.quote(str(workflow))}"
    for line in delivery_lines(tally, lambda name, _: f"symphony diff {shlex.quote(name)}{option}"):
        click.echo(line, err=True)
    blocked = [entry for entry in tally.issues.values() if entry.blocked]
    for entry in blocked:
        assert entry.blocked is not None  # noqa: S101 - filtered above
        click.echo(f"{entry.issue.identifier} is blocked: {entry.blocked.message}", err=True)
    given_up = [entry for entry in tally.issues.values() if entry.given_up]
    for entry in given_up:
        click.echo(f"{entry.issue.identifier} was given up: {entry.given_up}", err=True)
    sys.exit(ExitCode.FAILURE if blocked or given_up else ExitCode.OK)

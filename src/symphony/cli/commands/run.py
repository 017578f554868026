"""`symphony run`: serve a workflow from a terminal or a service manager."""

import faulthandler
import os
import shlex
import sys
from pathlib import Path

import click
from rich.console import Console

from symphony.cli.failures import ExitCode
from symphony.cli.options import workflow_argument
from symphony.cli.serving import serve
from symphony.cli.summary import RunSummary, delivery_lines, summary_table
from symphony.domain import natural_order, one_line
from symphony.scheduler import Command, Drain, Event, OperatorAsked, State

_EPILOG = """\b
Examples:
  symphony run                      serve the nearest WORKFLOW.md until Ctrl-C
  symphony run --port 8787          also serve the HTTP API, see docs/api.md
  symphony run --once               work until nothing is running, retrying or eligible
  symphony run --verbose            show every log line on the terminal
  symphony run ../app/WORKFLOW.md --log-format json 2>>symphony.log

SIGTERM lets running turns end. Ctrl-C, or a second SIGTERM, stops them at once. SIGHUP reloads.

Exit codes: 0 done, 1 failure (with --once: an issue is left, such as a blocked one), 2 usage,
3 configuration, 4 authentication, 6 (with --once) an agent was at a limit or in an outage for over a minute.
"""


def _absolute(_context: click.Context, _option: click.Parameter, text: str | None) -> Path | None:
    if text is not None and not text.strip():  # Path would make it the current directory
        raise click.BadParameter("must not be blank")
    return None if text is None else Path(text).absolute()


@click.command(epilog=_EPILOG)
@workflow_argument
@click.option("--once", is_flag=True, help="End when nothing is running, retrying or eligible.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Serve the HTTP API on this port, 0 for any free one; overrides server.port.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "console", "json"]),
    default="auto",
    show_default=True,
    help="auto: important events on a terminal, JSON elsewhere. console: every log line in columns.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show every log line on a terminal.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The lowest level to log.",
)
@click.option(
    "--logs-root",
    metavar="DIR",
    callback=_absolute,
    help="Also log to DIR/log/symphony.log as JSON lines; rotated at 10 MiB, five old files are kept.",
)
@click.option(
    "--record",
    metavar="FILE",
    callback=_absolute,
    help="Record all decisions in this new file, for `symphony replay`; at most 256 MiB.",
)
@click.option(
    "--i-understand-that-this-will-be-running-without-the-usual-guardrails",
    "acknowledged",
    is_flag=True,
    help="Accept settings that let sessions run without a sandbox. Needed only for such settings.",
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
) -> int:
    """Work on issues as WORKFLOW.md describes."""
    if "WATCHDOG_USEC" in os.environ:
        faulthandler.enable()  # prints the stack if a watchdog aborts the daemon
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
        dashboard=(
            log_format == "auto"
            and not verbose
            and all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
            and os.environ.get("TERM", "dumb") != "dumb"
        ),
        last=True,
        observers=(print_drain_message,) if sys.stderr.isatty() else (),
    )
    return print_summary(tally, workflow) if once else ExitCode.OK


def print_drain_message(
    before: State,
    fact: Event,  # the parameter name of daemon.service.Observer
    after: State,
    commands: tuple[Command, ...],
) -> None:
    """An observer that prints a message when a graceful shutdown starts while turns are running."""
    del commands
    if before.drain is Drain.NO and after.drain is Drain.DRAINING and after.running:
        names = ", ".join(sorted((run.issue.identifier for run in after.running.values()), key=natural_order))
        seconds = after.settings.drain_timeout_ms // 1000
        limit = "" if isinstance(fact, OperatorAsked) else f" (at most {seconds} s)"
        click.echo(f"The turns of {names} may end first{limit}; Ctrl-C stops them now.", err=True)


def print_summary(tally: RunSummary, workflow: Path) -> int:
    """Print the results of `--once` and the issues that are left; the exit code says if there are any."""
    if tally.issues and sys.stderr.isatty():
        console = Console(stderr=True)
        console.print(summary_table(tally, width=console.width))
    path = workflow.absolute()
    is_default = path.name == "WORKFLOW.md" and Path.cwd().is_relative_to(path.parent)
    option = "" if is_default else f" --workflow {shlex.quote(str(workflow))}"
    for line in delivery_lines(tally, lambda name, _: f"symphony diff {shlex.quote(name)}{option}"):
        click.echo(line, err=True)
    left = tally.left()
    for each in left:
        click.echo(one_line(f"{each.issue.identifier} {each.text}"), err=True)
    if any(each.limited for each in left):
        return ExitCode.AGENT_LIMITED
    return ExitCode.FAILURE if left else ExitCode.OK

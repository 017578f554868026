"""`symphony hosts`: the machines of `worker.ssh_hosts`, or the nodes of `worker.ray`."""

import os
from functools import partial
from pathlib import Path

import click

from symphony.cli.failures import ExitCode
from symphony.cli.main import LazyGroup
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.domain import one_line


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog="""\b
Examples:
  symphony hosts
  symphony hosts --json | jq -r '.hosts[] | select(.used == .limit) | .name'
  symphony hosts check
  symphony hosts prepare build-1

Without a subcommand it shows what the running daemon says of its hosts, and connects to none.
""",
    short_help="Show, check and prepare the machines that run sessions.",
)
@json_option
@workflow_option
@click.pass_context
def hosts(ctx: click.Context, *, as_json: bool, workflow: Path) -> int:
    """Show the machines of worker.ssh_hosts or worker.ray: their runs, their slots, and whether they rest."""
    if ctx.invoked_subcommand is not None:
        return ExitCode.OK
    # Imported here: `--help` stays fast.
    from symphony.cli.host_access import host_lines, show_hosts

    found = show_hosts(workflow)
    if as_json:
        print_json(found)
    else:
        for line in host_lines(found):
            click.echo(line)
    return ExitCode.OK


@hosts.command(
    epilog="""\b
Examples:
  symphony hosts check
  symphony hosts check build-1 --json | jq '.hosts[].problem'

It connects to each host. Exit codes: 0 all can be used, 1 at least one cannot, 3 the configuration is
invalid.
"""
)
@click.argument("host", nargs=-1)
@json_option
@workflow_option
def check(host: tuple[str, ...], *, as_json: bool, workflow: Path) -> int:
    """Connect to each host, and tell its release, its git, its free space and its clock."""
    from symphony.cli.host_access import check_hosts, checked_lines
    from symphony.cli.tracker_access import run_on_tracker

    found = run_on_tracker(workflow, partial(check_hosts, names=host, environment=os.environ))
    if as_json:
        print_json(found)
    else:
        for line in checked_lines(found):
            click.echo(line)
    return ExitCode.OK if all(one.ok for one in found.hosts) else ExitCode.FAILURE


@hosts.command(
    epilog="""\b
Examples:
  symphony hosts prepare build-1
  symphony hosts prepare build-1 build-2

It copies this release and what it needs over the connection into a virtual environment on the host. The host
needs no network for that, but the same version of Python on the same platform, and git.
"""
)
@click.argument("host", nargs=-1, required=True)
@workflow_option
def prepare(host: tuple[str, ...], *, workflow: Path) -> int:
    """Install this release of symphony on hosts."""
    from symphony.cli.host_access import prepare_hosts

    for name, version in prepare_hosts(workflow, host, os.environ):
        click.echo(f"{one_line(name, 300)} {one_line(version, 300)}")
    return ExitCode.OK

"""`symphony open`: open the page of the daemon in a browser."""

import os
from pathlib import Path

import click

from symphony.cli.browser import open_privately
from symphony.cli.client import require_daemon
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.daemon.state_dir import locate

_EPILOG = """\b
Examples:
  symphony open                     sign the browser of this machine in, and show the page
  symphony open --print             print the link, for a browser of your choice
  symphony open --json | jq -r .url

The link works once, within two minutes. The browser then stays signed in until the daemon ends, for two weeks
at most. Without server.port the daemon opens a free port on the loopback interface, until it ends;
`server.on_demand: false` forbids that.

The browser gets a private file that leads to the link. Open the printed link in a browser that cannot read
the file, such as a snap.

From another machine, forward the port (ssh -L PORT:127.0.0.1:PORT HOST) and open the printed link there. The
browser has to find names that end in .localhost, as Chromium and Firefox do.

Exit codes: 0 done, 1 refused, 5 no daemon is running, or it does not answer.
"""


@click.command("open", epilog=_EPILOG)
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open nothing.")
@json_option
@workflow_option
def open_(*, only_print: bool, as_json: bool, workflow: Path) -> None:
    """Open the page of the daemon in a browser."""
    link = require_daemon(workflow, os.environ, hint="start one: symphony run").open_page()
    if as_json:
        print_json(link)
    elif only_print or not open_privately(link.url, locate(workflow, os.environ)):
        click.echo(link.url)
    else:
        click.echo("Opened the page in a browser.")

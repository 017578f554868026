"""`symphony open`: open the page of the daemon in a browser."""

import os
from pathlib import Path

import click

from symphony.cli.browser import open_in_browser
from symphony.cli.client import require_daemon
from symphony.cli.options import json_option, print_json, workflow_option

_EPILOG = """\b
Examples:
  symphony open                     sign the browser of this machine in, and show the page
  symphony open --print             print the link, for a browser of your choice
  symphony open --json | jq -r .url

The link works once, within two minutes. The browser then stays signed in for two weeks. Without server.port
the daemon opens a free port on the loopback interface, until it ends; `server.on_demand: false` forbids that.

From another machine, forward the port (ssh -L PORT:127.0.0.1:PORT HOST) and open the printed link there. A
browser that does not find the name in the link finds 127.0.0.1 in its place.

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
    elif only_print or not open_in_browser(link.url):
        click.echo(link.url)
    else:
        click.echo(f"Opened {link.address} in a browser.")

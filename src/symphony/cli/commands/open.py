"""`symphony open`: open the page of the daemon in a browser."""

import os
import webbrowser
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from symphony.api.models import Link
from symphony.cli.client import require_daemon
from symphony.cli.failures import CommandError
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.daemon.state_dir import locate
from symphony.files import write_new

_EPILOG = """\b
Examples:
  symphony open                     open the page in the browser of this machine
  symphony open --print             print the link, for a browser of your choice
  symphony open --json | jq -r .url
  symphony open --all               all your daemons on this machine, until Ctrl-C

The link works once, within two minutes. The browser then stays signed in until the daemon ends, for two weeks
at most. Without server.port the daemon opens a free port on the loopback interface, until it ends;
`server.on_demand: false` forbids that.

The browser opens a private file that leads to the link. If your browser cannot read it, for example as a
snap, open the printed link.

From another machine, forward the port (ssh -L PORT:127.0.0.1:PORT HOST) and open the printed link there. The
browser has to find names that end in .localhost, as Chromium and Firefox do.

--all serves one page with all daemons of this user, from this command. It only reads, over their control
sockets. It ends on Ctrl-C, or half an hour after the last look at the page. Each daemon keeps its own
sign-in: a link to a daemon signs you in there.

Exit codes: 0 done, 1 refused, 5 no daemon is running, or it does not answer.
"""


@click.command("open", epilog=_EPILOG)
@click.option("--all", "all_daemons", is_flag=True, help="Open one page with all daemons of this user.")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open nothing.")
@json_option
@workflow_option
def open_(*, all_daemons: bool, only_print: bool, as_json: bool, workflow: Path) -> None:
    """Open the page of the daemon in a browser."""
    if all_daemons:
        with TemporaryDirectory(prefix="symphony-") as place:
            _serve_all(Path(place), only_print=only_print, as_json=as_json)
        return
    link = require_daemon(workflow, os.environ, hint="start one: symphony run").open_page()
    _show(link, locate(workflow, os.environ), only_print=only_print, as_json=as_json)


def _show(link: Link, place: Path, *, only_print: bool, as_json: bool) -> None:
    """Print a link, or open it by a file in a private directory."""
    if as_json:
        print_json(link)
    elif only_print or not open_privately(link.url, place):
        click.echo(link.url)
    else:
        click.echo("Opened the page in a browser.")


def _serve_all(place: Path, *, only_print: bool, as_json: bool) -> None:
    """Serve the page over all daemons; `place` is a private directory."""
    import anyio  # noqa: PLC0415 - a server: slow to import

    from symphony.cli.commands.all_daemons import serve_all_daemons  # noqa: PLC0415 - as above

    def opened(link: Link) -> None:
        _show(link, place, only_print=only_print, as_json=as_json)
        click.echo("Serving the page until Ctrl-C.", err=True)

    anyio.run(serve_all_daemons, os.environ, opened)


# --- the browser of the person at this machine -----------------------------------------------------------

_FILE: Final = "open.html"
_PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Symphony</title>
<p><a href="{url}">Open Symphony</a></p>
"""


def open_in_browser(address: str) -> bool:
    """Open an http(s) address in a browser; return whether there is one.

    Browsers of the terminal do not count: they would take it over.
    """
    return address.startswith(("http://", "https://")) and _has_browser() and webbrowser.open(address)


def open_privately(address: str, state_dir: Path) -> bool:
    """Open an address that other users must not see; as `open_in_browser`.

    All users can see the arguments of a browser, so it gets a private file that leads there.

    Raises:
        CommandError: the file cannot be written.
    """
    if not _has_browser():
        return False
    path = state_dir / _FILE
    try:
        path.unlink(missing_ok=True)
        write_new(path, _PAGE.format(url=escape(address)).encode(), 0o600)
    except OSError as error:
        hint = "open the link that `symphony open --print` prints"
        raise CommandError.of(f"{path}: {error.strerror}", hint=hint) from error
    return webbrowser.open(path.absolute().as_uri())


def _has_browser() -> bool:
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))

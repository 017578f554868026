"""Opens links in the browser of the person at this machine."""

import os
import webbrowser
from html import escape
from pathlib import Path
from typing import Final

from symphony.cli.failures import CommandError
from symphony.files import write_new

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

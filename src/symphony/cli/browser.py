"""Opens links in the browser of the person at this machine."""

import os
import webbrowser


def open_in_browser(address: str) -> bool:
    """Open an http(s) address in a browser; return whether there is one.

    Browsers of the terminal do not count: they would take it over.
    """
    if not any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")):
        return False
    return address.startswith(("http://", "https://")) and webbrowser.open(address)

"""Opens links in the browser of the person at this machine."""

import os
import webbrowser

from symphony.api.models import Link


def open_in_browser(link: Link) -> bool:
    """Open a link in a browser; return whether there is one.

    Browsers of the terminal do not count: they would take it over.
    """
    if not any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")):
        return False
    return webbrowser.open(link.url)

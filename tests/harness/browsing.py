"""Pages in a browser of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

from harness.pages import NOW

__all__ = ["PHONE", "WIDE", "opened"]

WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


@contextmanager
def opened(
    browser: Browser, *, fixed_time: bool = True, expected: str = "", **options: Any
) -> Iterator[Page]:
    """A page in a browser of its own; what its console complains about fails the test.

    Args:
        browser: opens it.
        fixed_time: it is always `NOW`.
        expected: complaints with this text are no failure.
        options: of its context.
    """
    context = browser.new_context(**options)
    page = context.new_page()
    if fixed_time:
        page.clock.set_fixed_time(NOW)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    unexpected = [each for each in complaints if not expected or expected not in each]
    assert not unexpected, unexpected

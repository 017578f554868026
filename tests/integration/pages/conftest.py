"""A browser, and a server of pages with documents of a day."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from harness.asking import make_app
from harness.pages import DemoOperator, fill_library, serve_app
from harness.real import require_program

expect.set_options(timeout=30_000)  # on a busy machine; without one all of it takes a moment


@pytest.fixture(scope="module")  # its loop must not outlive the tests that need it
def browser() -> Iterator[Browser]:
    chromium = require_program("chromium", "Debian: chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def operator(tmp_path: Path) -> DemoOperator:
    with ThreadPoolExecutor() as pool:  # the browser's driver has an event loop in this one
        pool.submit(fill_library, tmp_path / "library.db").result()
    return DemoOperator(library_file=tmp_path / "library.db")


@pytest.fixture
def address(operator: DemoOperator) -> Iterator[str]:
    with serve_app(make_app(operator)) as address:
        yield address

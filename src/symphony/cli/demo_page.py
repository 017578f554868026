"""`symphony demo --page`: shows the page of the demo's daemon, and keeps both up until a key is pressed."""

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console

from symphony import to_thread
from symphony.api.models import Link
from symphony.cli.browser import open_privately
from symphony.cli.client import Client
from symphony.cli.endpoint import read_record
from symphony.daemon.clock import monotonic_ms
from symphony.domain import SymphonyError
from symphony.scheduler import Command, Event, Polled, State, run_once_finished

_CHUNK_BYTES: Final = 1_024


class DemoPage:
    """Observes the demo's daemon, and runs beside it.

    Args:
        state_dir: the state directory of the daemon.
        console: gets the link, and what to do.
    """

    def __init__(self, state_dir: Path, console: Console) -> None:
        self._state_dir = state_dir
        self._console = console
        self._serving = anyio.Event()
        self._finished = anyio.Event()

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """See whether the daemon serves, and whether nothing is left to do."""
        del before, commands
        if isinstance(fact, Polled):
            self._serving.set()
        if run_once_finished(after, monotonic_ms()):
            self._finished.set()

    async def run(self) -> None:
        """Show the page; return when all is done and a key was pressed, or the input has ended."""
        await self._serving.wait()
        link = await to_thread.run_sync(self._link)
        if link is not None and await to_thread.run_sync(open_privately, link.url, self._state_dir):
            self._print("The page is open in a browser.")
        elif link is not None:
            self._print(f"Open this in a browser, within two minutes: {link.url}")
        await self._finished.wait()
        with _single_keys() as terminal:
            self._print(f"All is done. {'Press a key' if terminal else 'Close the input'} to end.")
            await _key_or_end()

    def _link(self) -> Link | None:
        try:
            record = read_record(self._state_dir)
            return None if record is None or record.endpoint is None else Client(record.endpoint).open_page()
        except SymphonyError as error:
            self._print(f"The page cannot be shown: {error.failure.line}")
            return None

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True, highlight=False)


async def _key_or_end() -> None:
    """Wait for a key on a terminal, or for the end of any other input."""
    while True:
        try:
            await anyio.wait_readable(sys.stdin)
        except OSError:  # a file, or /dev/null
            return
        if not os.read(sys.stdin.fileno(), _CHUNK_BYTES) or sys.stdin.isatty():
            return


@contextmanager
def _single_keys() -> Iterator[bool]:
    """Let the terminal pass each key on at once; yields whether the input is a terminal."""
    if not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

"""The live view of `symphony status --watch` on a terminal: redrawn pictures, keys, signals.

The main thread draws and waits for keys and signals. Another thread takes new facts, because a daemon may
need seconds to answer. Whatever ends the view, the terminal is left as it was found.
"""

import io
import os
import re
import select
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from symphony.cli.discovery import list_daemons
from symphony.cli.formatting import cell
from symphony.cli.queries import Queries
from symphony.cli.render.daemons import daemons_view
from symphony.cli.render.explain import explain_issue, explain_view
from symphony.cli.render.status import status_screen, unavailable_view
from symphony.domain import ALL_ISSUES, Failure, Selection, SymphonyError

if TYPE_CHECKING:
    from symphony.cli.documents import Daemons, KnownIssue, Status

_KEY: Final = re.compile(r"\x1b\[[0-9;?]*[@-~]|\x1bO.|.", re.DOTALL)
_NAMES: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "ctrl-u",
}
_SIGNALS: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGWINCH,
)
_NEW_FACTS: Final = b"\0"
_MOVES: Final = {"up": -1, "k": -1, "down": 1, "j": 1}
_GONE: Final = 128 + signal.SIGHUP
_FILES_S: Final = 30.0
"""How often the tracker is asked while no daemon runs; it may limit requests."""
_MAX_FILTER_CHARS: Final = 200
_KEYS: Final = "q quit   / filter   ↑ ↓ select   enter explain   ? help"
_HELP: Final = """\
q             quit; Ctrl-C does the same
/             show only issues with a text in their identifier or title;
              enter keeps the filter, escape ends it
↑ ↓  or  k j  select an issue; scroll an explanation
enter         explain the selected issue, or the only one
escape        back
Ctrl-Z        suspend; `fg` continues

Issues that need a person come first: questions, blocked ones, work that is
ready for review. Then those that run, those that are tried again, and those
that wait. What a small screen leaves out is counted; the filter finds it."""


class View(Protocol):
    """What a live view shows. `ended` is set once it is over."""

    ended: bool

    def fetch(self) -> None:
        """Take new facts; called in a thread of its own. What it raises ends the view."""

    def draw(self, console: Console) -> RenderableType:
        """The picture of the present facts; the console cuts what does not fit."""
        ...

    def press(self, key: str) -> bool:
        """Act on a key, a character or a name such as `enter`; return whether to take new facts at once."""
        ...


def watch(view: View, console: Console, *, interval_s: float, render_interval_s: float = 0.016) -> None:
    """Show a view until a key or a signal ends it.

    Args:
        view: what is shown.
        console: a terminal.
        interval_s: how often the view takes new facts.
        render_interval_s: the shortest time between two pictures.

    Raises:
        KeyboardInterrupt: Ctrl-C ended it.
        SystemExit: SIGTERM, SIGHUP or the loss of the terminal ended it.
    """
    ours, theirs = socket.socketpair()
    terminal = _Terminal(console)
    with ours, theirs, _signals_to(theirs), redirect_stderr(io.StringIO()), closing(terminal):
        terminal.open()
        source = _Source(view, theirs, interval_s)
        drawn_at, stale = -render_interval_s, True
        while True:
            wait_s = max(0.0, drawn_at + render_interval_s - time.monotonic())
            if stale and not wait_s:
                terminal.show(view.draw(console))
                drawn_at, stale = time.monotonic(), False
                continue
            readable, _, _ = select.select([ours, *terminal.keyboard], [], [], wait_s if stale else None)
            stale = stale or bool(readable)
            source.check()
            for number in ours.recv(4_096) if ours in readable else b"":
                terminal.on_signal(number)
            for key in terminal.keys() if set(terminal.keyboard) & set(readable) else ():
                if view.press(key):
                    source.again.set()
            if view.ended:
                return


@contextmanager
def _signals_to(end: socket.socket) -> Iterator[None]:
    """Write the number of each signal that a view handles to a socket, as one byte."""
    end.settimeout(0)  # it never waits
    previous = signal.set_wakeup_fd(end.fileno(), warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Source:
    """Takes new facts again and again, beside the main thread; `again` makes it begin at once."""

    def __init__(self, view: View, wake: socket.socket, interval_s: float) -> None:
        self.again = Event()
        self._view = view
        self._wake = wake
        self._interval_s = interval_s
        self._error: Exception | None = None
        # Not waited for at the end: a daemon that hangs does not answer for seconds.
        Thread(target=self._run, daemon=True).start()

    def check(self) -> None:
        """Raise the error that ended the thread."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        with suppress(OSError):  # the view is over
            while self._error is None:
                try:
                    self._view.fetch()
                except Exception as error:  # noqa: BLE001 - raised again by `check`
                    self._error = error
                self._wake.send(_NEW_FACTS)
                self.again.wait(self._interval_s)
                self.again.clear()


class _Terminal:
    """The other screen of a terminal, and its keyboard without echo and without line editing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.keyboard = [sys.stdin.fileno()] if sys.stdin.isatty() else []
        self._live: Live | None = None
        self._mode: list[Any] = []

    def open(self) -> None:
        """Use the other screen, anew if something else has used the terminal."""
        self.close()
        for descriptor in self.keyboard:
            self._mode = termios.tcgetattr(descriptor)
            tty.setcbreak(descriptor)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            screen=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def close(self) -> None:
        """Leave the terminal as it was found."""
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()
        if self._mode:
            with suppress(termios.error):
                termios.tcsetattr(self.keyboard[0], termios.TCSANOW, self._mode)
        self._live, self._mode = None, []

    def show(self, picture: RenderableType) -> None:
        """Draw over the last picture.

        Raises:
            SystemExit: the terminal is gone.
        """
        if self._live is not None:
            try:
                self._live.update(picture, refresh=True)
            except OSError:
                raise SystemExit(_GONE) from None

    def keys(self) -> Sequence[str]:
        """The keys that were pressed, by character or name.

        Raises:
            SystemExit: the terminal is gone.
        """
        data = b""
        with suppress(OSError):
            data = os.read(self.keyboard[0], 1_024)
        if not data:
            raise SystemExit(_GONE)
        return [_NAMES.get(key, key) for key in _KEY.findall(data.decode("utf-8", "ignore"))]

    def on_signal(self, number: int) -> None:
        """Act on a signal.

        Raises:
            KeyboardInterrupt: Ctrl-C.
            SystemExit: a signal that ends the process.
        """
        match number:
            case signal.SIGINT:
                raise KeyboardInterrupt
            case signal.SIGTERM | signal.SIGHUP:
                raise SystemExit(128 + number)
            case signal.SIGTSTP:
                self.close()
                handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
                signal.raise_signal(signal.SIGTSTP)  # stops here until SIGCONT
                signal.signal(signal.SIGTSTP, handler)
                self.open()
            case signal.SIGCONT:
                self.open()
            case _:
                pass


class StatusView:
    """The issues of one daemon, with a filter, a selected issue and its explanation.

    Args:
        queries: where facts come from.
        only: the issues that a person asked for.
        console: the terminal.
        state_dir: the daemon's state directory.
        parent: the process with which the view ends; None if it goes on by itself.
    """

    def __init__(
        self,
        queries: Queries,
        only: Selection,
        console: Console,
        *,
        state_dir: Path,
        parent: int | None = None,
    ) -> None:
        self._queries = queries
        self.ended = False
        self._parent = parent
        self._only = only
        self._console = console
        self._state_dir = state_dir
        self._status: Status | None = None
        self._issue: KnownIssue | None = None
        self._failure: Failure | None = None
        self._asked: tuple[Selection, float] | None = None
        self._filter = ""
        self._typing = False
        self._cursor: str | None = None
        self._opened: str | None = None
        self._help = False
        self._scroll = 0
        self._shown: Sequence[str] = ()

    def fetch(self) -> None:
        """Read the status, and the issue that is explained."""
        if self._parent not in {None, os.getppid()}:
            self.ended = True
            return
        try:
            if (opened := self._opened) is not None:
                self._issue = self._queries.issue(opened)
            else:
                self._fetch_status()
            self._failure = None
        except SymphonyError as error:
            self._failure = error.failure

    def _fetch_status(self) -> None:
        limit = self._console.height if self._only.limit is None else self._only.limit
        only, now_s = replace(self._only, text=self._filter, limit=limit), time.monotonic()
        if self._asked is not None and self._status is not None and self._status.source == "files":
            asked, at_s = self._asked
            if asked == only and now_s - at_s < _FILES_S and not self._queries.daemon_runs():
                return
        self._status = self._queries.state(only)
        self._asked = only, now_s

    def press(self, key: str) -> bool:
        """Act on a key."""
        if self._typing:
            return self._type(key)
        if key == "q":
            self.ended = True
        elif key == "?":
            self._help, self._scroll = not self._help, 0
        elif key in _MOVES:
            self._move(_MOVES[key])
        elif self._help or self._opened is not None:
            if key in {"escape", "enter"}:
                self._help, self._opened, self._scroll = False, None, 0
                return True
        elif key == "/":
            self._typing = True
        elif key == "escape":
            self._filter = ""
            return True
        elif key == "enter" and self._shown:
            self._opened = self._cursor if self._cursor in self._shown else self._shown[0]
            return True
        return False

    def _move(self, step: int) -> None:
        shown = self._shown
        if self._help or self._opened is not None:
            self._scroll = max(0, self._scroll + step)
        elif self._cursor in shown:
            self._cursor = shown[min(max(shown.index(self._cursor) + step, 0), len(shown) - 1)]
        else:
            self._cursor = shown[0] if shown else None

    def _type(self, key: str) -> bool:
        before = self._filter
        if key in {"enter", "escape"}:
            self._typing = False
            self._filter = self._filter if key == "enter" else ""
        elif key == "backspace":
            self._filter = self._filter[:-1]
        elif key == "ctrl-u":
            self._filter = ""
        elif len(key) == 1 and key.isprintable():
            self._filter = (self._filter + key)[:_MAX_FILTER_CHARS]
        return self._filter != before

    def draw(self, console: Console) -> RenderableType:
        """One line about the repository, the picture, and one line about keys."""
        room = max(1, console.height - 2)
        lines = console.render_lines(self._picture(console), pad=False)
        if self._help or self._opened is not None:
            self._scroll = min(self._scroll, max(0, len(lines) - room))
            lines = lines[self._scroll :]
        lines = [*lines[:room], *([[]] * (room - len(lines)))]
        segments = [segment for line in lines for segment in (*line, Segment.line())]
        return Group(self._head(), Segments(segments), self._foot())

    def _head(self) -> RenderableType:
        """The repository and the time."""
        head = Table.grid(expand=True)
        head.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        head.add_column(no_wrap=True)
        path = self._queries.workflow.absolute()
        head.add_row(
            Text.assemble(cell(path.parent.name, "bold"), "  ", cell(path, "dim")),
            datetime.now().astimezone().strftime("%H:%M:%S"),
        )
        return head

    def _picture(self, console: Console) -> RenderableType:
        if self._help:
            return Text(_HELP)
        failed = [] if self._failure is None else [unavailable_view(self._failure), Text("")]
        if self._opened is not None:
            issue = self._issue
            if issue is None or issue.issue_identifier != self._opened:
                return Group(*failed, cell(f"{self._opened} …"))
            return Group(*failed, explain_view(issue, explain_issue(issue), state_dir=self._state_dir))
        if self._status is None:
            return Group(*failed)
        workflow, selected = str(self._queries.workflow), self._only != ALL_ISSUES or bool(self._filter)
        keep_free = 2 + sum(len(console.render_lines(one, pad=False)) for one in failed)
        screen = status_screen(
            console,
            self._status,
            workflow=workflow,
            selected=selected,
            cursor=self._cursor,
            keep_free=keep_free,
        )
        self._shown = screen.issues
        return Group(*failed, screen.picture)

    def _foot(self) -> RenderableType:
        text = Text(_KEYS, style="dim")
        if self._typing:
            text = Text.assemble(("/", "bold"), cell(self._filter), ("_", "blink"))
        elif self._help or self._opened is not None:
            text = Text("escape back   ↑ ↓ scroll   q quit", style="dim")
        elif self._filter:
            text = Text.assemble(("/", "bold"), cell(self._filter), ("   escape ends the filter", "dim"))
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class DaemonsView:
    """Every daemon of this user, or of the host for root."""

    def __init__(self) -> None:
        self.ended = False
        self._document: Daemons | None = None

    def fetch(self) -> None:
        """Ask every daemon."""
        self._document = list_daemons(os.environ)

    def press(self, key: str) -> bool:
        """Act on a key."""
        self.ended = key == "q"
        return False

    def draw(self, console: Console) -> RenderableType:
        """One line per daemon."""
        del console
        document = self._document
        return Text("") if document is None else daemons_view(document, now=datetime.now(UTC))

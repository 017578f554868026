"""`symphony status`: what runs, what waits and why, and whether the daemon is well."""

import io
import os
import pwd
import re
import select
import shlex
import signal
import socket
import stat
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, redirect_stderr, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NoReturn, Protocol

import click
from click.core import ParameterSource
from msgspec import structs
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from symphony.api.formatting import duration, seconds_between
from symphony.api.interface import REASON_CODES
from symphony.api.models import State, utc_text
from symphony.cli import documents
from symphony.cli.client import Client
from symphony.cli.endpoint import DaemonRecord, check_listener, read_record, read_small_file
from symphony.cli.formatting import arrow, cell, console_for, print_blocks, table
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.cli.queries import Queries
from symphony.cli.render.explain import explain_issue, explain_view
from symphony.cli.render.status import status_screen, status_view, unavailable_view
from symphony.daemon.state_dir import (
    KNOWN_FOLDER,
    SYSTEM_STATE_HOMES,
    locate,
    parse_known_state_dir,
    state_home,
)
from symphony.domain import ALL_ISSUES, Failure, Selection, SymphonyError, plural

# --- every daemon ----------------------------------------------------------------------------------------
#
# Of this user, or for root of this host, with its status:
#
#     running   it answers
#     silent    its process exists and does not answer: it is starting, ending or frozen, or its socket is
#               gone or served by another process
#     dead      its process is gone, and it did not shut down normally
#
# A daemon that shut down normally is not listed, although its state directory stays. The daemons are asked in
# parallel, so that one that hangs does not delay the others.
#
# Root reads state directories that belong to other users. So a directory counts only if it belongs to the
# user in whose home it lies, symbolic links are not followed, and nothing is changed.

_ANSWER_S: Final = 5.0
_PARALLEL: Final = 16
_MAX_BYTES: Final = 16 * 1024 * 1024  # of one answer: several are in memory at once, some of other users
_MAX_ENTRIES: Final = 1_000
_HOME_STATE: Final = ".local/state/symphony"


def list_daemons(environment: Mapping[str, str]) -> documents.Daemons:
    """All daemons by name, and the directories that were skipped."""
    directories = find_state_directories(environment)
    with ThreadPoolExecutor(_PARALLEL) as pool:
        found = list(pool.map(ask_daemon, directories.found, directories.found.values()))
    answers = [each[0] if isinstance(each, tuple) else each for each in found]
    rows = [answer for answer in answers if isinstance(answer, documents.DaemonRow)]
    failed = [answer for answer in answers if isinstance(answer, documents.SkippedDirectory)]
    skipped = [
        documents.SkippedDirectory(path=str(path), reason=why) for path, why in directories.skipped.items()
    ]
    return documents.Daemons(
        daemons=tuple(sorted(rows, key=lambda row: (row.name, row.state_dir))),
        skipped=tuple(sorted([*skipped, *failed], key=lambda one: one.path)),
    )


def find_state_directories(
    environment: Mapping[str, str], *, max_entries: int = _MAX_ENTRIES
) -> "StateDirectories":
    """Every possible state directory of this user; for root, of every user."""
    directories = StateDirectories(max_entries=max_entries)
    homes = [(os.geteuid(), state_home(environment))]
    if os.geteuid() == 0:
        homes += [(user.pw_uid, Path(user.pw_dir) / _HOME_STATE) for user in pwd.getpwall()]
    for owner, home in homes:
        if home.is_absolute():
            directories.add_children(home, owner)
            directories.add_registered(home / KNOWN_FOLDER, owner)
    for folder in SYSTEM_STATE_HOMES:
        if os.access(folder, os.R_OK | os.X_OK):
            directories.add_children(folder, None)
    if given := environment.get("SYMPHONY_STATE_DIR"):
        directories.add(Path(given).expanduser().absolute(), None)
    return directories


class StateDirectories:
    """Collects state directories.

    Attributes:
        found: the user id of the owner, by path.
        skipped: why a path was not looked at.
    """

    def __init__(self, *, max_entries: int = _MAX_ENTRIES) -> None:
        self.found: dict[Path, int] = {}
        self.skipped: dict[Path, str] = {}
        self._seen: set[str] = set()
        self._max_entries = max_entries

    def add(self, path: Path, owner: int | None) -> None:
        """Add a directory of the user `owner`; `None` for any user whose daemon can be asked."""
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.skipped[path] = error.strerror or str(error)
            return
        if not stat.S_ISDIR(status.st_mode):
            return
        if owner not in {None, status.st_uid}:
            self.skipped[path] = f"it belongs to {user_name(status.st_uid)}"
        elif os.geteuid() not in {0, status.st_uid}:
            self.skipped[path] = f"only {user_name(status.st_uid)} and root can ask there"
        elif (real := os.path.realpath(path)) not in self._seen:
            self._seen.add(real)
            self.found[path] = status.st_uid

    def add_children(self, folder: Path, owner: int | None) -> None:
        """Add every directory in a folder; as `add`."""
        for path in self._entries(folder):
            if path.name != KNOWN_FOLDER:
                self.add(path, owner)

    def add_registered(self, folder: Path, owner: int) -> None:
        """Add the directories outside of the usual places that daemons of `owner` registered in a folder."""
        for file in self._entries(folder):
            try:
                path = parse_known_state_dir(read_small_file(file, owner))
            except OSError as error:
                self.skipped[file] = error.strerror or str(error)
                continue
            if path is not None:
                self.add(path, owner)

    def _entries(self, folder: Path) -> Iterator[Path]:
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in islice(entries, self._max_entries + 1)]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.skipped[folder] = error.strerror or str(error)
            return
        if len(names) > self._max_entries:
            self.skipped[folder] = (
                f"there are more than {self._max_entries} entries, and the rest is left out"
            )
        yield from (folder / name for name in sorted(names[: self._max_entries]))


def user_name(uid: int) -> str:
    """The name of a user, or the number if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def ask_daemon(
    path: Path, owner: int, *, answer_s: float = _ANSWER_S
) -> tuple[documents.DaemonRow, State | None] | documents.SkippedDirectory | None:
    """The daemon of a state directory, and its answer without waiting issues; None if there is none."""
    try:
        record = read_record(path, owner)
    except OSError as error:
        return documents.SkippedDirectory(path=str(path), reason=error.strerror or str(error))
    if record is None:
        return None
    row = documents.DaemonRow(
        name=path.name if record.workflow is None else Path(record.workflow).parent.name,
        status="silent" if record.alive else "dead",
        state_dir=str(path),
        user=user_name(owner),
        workflow=record.workflow,
        pid=record.pid,
    )
    return _with_status(row, record, owner, answer_s)


def _with_status(
    row: documents.DaemonRow, record: DaemonRecord, owner: int, answer_s: float
) -> tuple[documents.DaemonRow, State | None]:
    """The row with the daemon's own answer, or with its problem."""
    if not record.alive:
        command = shlex.join(("symphony", "run", *filter(None, [record.workflow])))
        dead = structs.replace(
            row,
            message=f"The process (pid {record.pid}) is gone without a normal end",
            hint=f"{command} ends its left-over processes, and continues its work",
        )
        return dead, None
    endpoint = record.endpoint
    if endpoint is None:
        closed = structs.replace(
            row,
            message=f"A daemon (pid {record.pid}) is running, but has no control socket",
            hint="it may be starting or ending; if it stays so, restart it",
        )
        return closed, None
    row = structs.replace(
        row,
        started_at=None if endpoint.started is None else utc_text(endpoint.started),
        socket=str(endpoint.socket),
        host=endpoint.host,
        port=endpoint.port,
    )
    try:
        check_listener(endpoint, owner)
        state = Client(endpoint, answer_s=answer_s, max_bytes=_MAX_BYTES).state(Selection(limit=0))
    except SymphonyError as error:
        return structs.replace(row, message=error.failure.message, hint=error.failure.hint), None
    row = structs.replace(
        row,
        status="running",
        health=state.health.status,
        counts=state.counts,
        version=state.version or None,
        commit=state.commit or None,
    )
    return row, state


# --- every daemon, for people ----------------------------------------------------------------------------

_HEALTH: Final = {
    "ok": ("healthy", "green"),
    "starting": ("starting", "cyan"),
    "draining": ("ending", "yellow"),
    "degraded": ("in trouble", "red"),
}


def daemons_view(document: documents.Daemons, *, now: datetime) -> RenderableType:
    """All daemons, and the places that were skipped."""
    found, skipped = document.daemons, document.skipped
    blocks: list[RenderableType] = [_table(found, now) if found else Text("No daemon was found.")]
    if notes := [note for row in found for note in _notes(row)]:
        blocks += [Text(""), *notes]
    if skipped:
        blocks += [Text(""), Text(f"{plural(len(skipped), 'place')} not looked at:", style="dim")]
        blocks += [Text.assemble("  ", cell(f"{each.path}: {each.reason}", "dim")) for each in skipped]
    return Group(*blocks)


def _table(found: Sequence[documents.DaemonRow], now: datetime) -> Table:
    texts, numbers = (
        ("VERSION", "USER", "WORKFLOW"),
        ("RUNNING", "RETRYING", "BLOCKED", "WAITING", "UP", "PID"),
    )
    rows = table("DAEMON", "HEALTH", *numbers, *texts, right=numbers, fold={"DAEMON", *texts})
    for row in found:
        counts = ["-"] * 4
        if row.counts is not None:
            issues = (row.counts.running, row.counts.retrying, row.counts.blocked, row.counts.waiting)
            counts = [str(number) for number in issues]
        up = None if row.status == "dead" else seconds_between(row.started_at, utc_text(now))
        rows.add_row(
            cell(row.name),
            _health(row),
            *counts,
            "-" if up is None else duration(up),
            str(row.pid),
            cell(row.version or "-"),
            cell(row.user),
            cell(row.workflow or row.state_dir),
        )
    return rows


def _health(row: documents.DaemonRow) -> Text:
    if row.status == "dead":
        return Text("dead", style="bold red")
    if row.status == "silent":
        return Text("does not answer", style="red")
    health = row.health or "?"
    return cell(*_HEALTH.get(health, (health, "yellow")))


def _notes(row: documents.DaemonRow) -> Iterator[Text]:
    if row.message:
        yield Text.assemble(cell(row.name), ": ", cell(row.message, "red"))
        if row.hint:
            yield arrow(row.hint)


# --- --watch on a terminal -------------------------------------------------------------------------------
#
# Redrawn pictures, keys, signals. The main thread draws and waits for keys and signals. Another thread takes
# new facts, because a daemon may need seconds to answer. Whatever ends the view, the terminal is left as it
# was found.

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
        """Take new facts; called in a separate thread. An exception ends the view."""

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
        source = _Refresher(view, theirs, interval_s)
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


class _Refresher:
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
        self._status: documents.Status | None = None
        self._issue: documents.KnownIssue | None = None
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
        self._document: documents.Daemons | None = None

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


# --- the command -----------------------------------------------------------------------------------------

_PIPE_LIMIT: Final = 20
"""How many waiting issues are shown without a terminal; on a terminal its height decides."""
_PROMPT_LINES: Final = 2
"""The escape sequences that a terminal needs before and after the view."""


@click.command(
    epilog="""\b
Examples:
  symphony status
  symphony status --all-issues      every issue, on more than one screen
  symphony status --state Todo --reason no_slot
  symphony status --watch --interval 5
  symphony status --json | jq '.blocked[].issue_identifier'
  symphony status --workflow ../app/WORKFLOW.md
  symphony status --all             every daemon of this user; for root of this host
  symphony status --all --json | jq -r '.daemons[] | select(.status != "running") | .name'

Without a daemon it says so, and reads the tracker and the files. --watch continues over a restart of the
daemon and ends with q or Ctrl-C; ? lists its keys. A terminal gets one screen, and a pipe 20 waiting
issues. The output counts what it leaves out. --json has every issue, unless --state or --reason is given.
"""
)
@click.option("--watch", is_flag=True, help="Update it continuously; with --json one object per line.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often, with --watch.",
)
@click.option("--render-interval", type=click.FloatRange(min=0), default=0.016, hidden=True)
@click.option("--parent", type=int, hidden=True, help="End with this process, whose terminal the view uses.")
@click.option("--all-issues", is_flag=True, help="Show every issue, on more than one screen.")
@click.option("--state", "states", multiple=True, help="Only issues in this state; may be repeated.")
@click.option(
    "--reason",
    "reasons",
    type=click.Choice(REASON_CODES),
    multiple=True,
    metavar="CODE",
    help="Only issues with this code, such as no_slot or blocked; may be repeated.",
)
@click.option("--all", "all_daemons", is_flag=True, help="Every daemon of this user; for root of this host.")
@json_option
@workflow_option
@click.pass_context
def status(
    ctx: click.Context,
    *,
    watch: bool,
    interval: float,
    render_interval: float,
    parent: int | None,
    all_issues: bool,
    states: tuple[str, ...],
    reasons: tuple[str, ...],
    all_daemons: bool,
    as_json: bool,
    workflow: Path,
) -> None:
    """Show what runs and what waits, and why."""
    if all_daemons and ctx.get_parameter_source("workflow") is not ParameterSource.DEFAULT:
        raise click.UsageError("--all is for every workflow, and --workflow for one: give one of them")
    if all_daemons and (all_issues or states or reasons):
        raise click.UsageError("--all lists daemons; --all-issues, --state and --reason are about issues")
    source: _Source
    if all_daemons:
        source = _AllDaemons()
    else:
        only = Selection(states=frozenset(states), codes=frozenset(reasons))
        source = _OneDaemon(Queries(workflow, os.environ), only, all_issues=all_issues, parent=parent)
    try:
        if watch and as_json:
            _repeat(lambda: print_json(_document_or_error(source), indent=None), interval)
        elif watch:
            _watch(source, interval, render_interval)
            return
    except KeyboardInterrupt:
        sys.exit(0)
    if as_json:
        print_json(source.document())
    else:
        console = console_for()
        print_blocks(console, source.view(console, keep_free=_PROMPT_LINES))


class _Source(Protocol):
    """What is shown. `document` and `view` raise `SymphonyError`."""

    def document(self) -> documents.Status | documents.Daemons: ...

    def view(self, console: Console, *, keep_free: int) -> RenderableType:
        """The picture for a console; on a terminal one screen, with a number of lines kept free."""
        ...

    def live(self, console: Console) -> View:
        """What is shown on a terminal again and again."""
        ...


class _OneDaemon:
    """The daemon of one workflow."""

    def __init__(self, queries: Queries, only: Selection, *, all_issues: bool, parent: int | None) -> None:
        self._parent = parent
        self._queries = queries
        self._only = only
        self._all_issues = all_issues

    def document(self) -> documents.Status:
        return self._queries.state(self._only)

    def view(self, console: Console, *, keep_free: int) -> RenderableType:
        limit = console.height if console.is_terminal else _PIPE_LIMIT
        only = self._only if self._all_issues else replace(self._only, limit=limit)
        document = self._queries.state(only)
        workflow, selected = str(self._queries.workflow), self._only != ALL_ISSUES
        if console.is_terminal and not self._all_issues:
            return status_screen(
                console, document, workflow=workflow, selected=selected, keep_free=keep_free
            ).picture
        limits = None if self._all_issues else {"waiting": _PIPE_LIMIT}
        return status_view(document, workflow=workflow, width=console.width, limits=limits, selected=selected)

    def live(self, console: Console) -> View:
        state_dir = locate(self._queries.workflow, os.environ)
        return StatusView(self._queries, self._only, console, state_dir=state_dir, parent=self._parent)


class _AllDaemons:
    """Every daemon; a row contains the problem of its daemon."""

    def document(self) -> documents.Daemons:
        return list_daemons(os.environ)

    def view(self, console: Console, *, keep_free: int) -> RenderableType:
        del console, keep_free
        return daemons_view(self.document(), now=datetime.now(UTC))

    def live(self, console: Console) -> View:
        del console
        return DaemonsView()


def _document_or_error(source: _Source) -> documents.Status | documents.Daemons | documents.StatusUnavailable:
    """The document, or the failure as a document: a daemon that is watched may come back."""
    try:
        return source.document()
    except SymphonyError as error:
        failure = error.failure
        reason = documents.UnavailableReason(
            code=failure.category.value, message=failure.message, hint=failure.hint
        )
        return documents.StatusUnavailable(error=reason)


def _watch(source: _Source, interval_s: float, render_interval_s: float) -> None:
    """Show a live view; without a terminal that can be redrawn, print one picture below the other."""
    console = console_for()
    if console.is_terminal and not console.is_dumb_terminal:
        watch(source.live(console), console, interval_s=interval_s, render_interval_s=render_interval_s)
        return

    def show() -> None:
        try:
            picture = source.view(console, keep_free=0)
        except SymphonyError as error:
            picture = unavailable_view(error.failure)
        print_blocks(console, picture, Text())

    _repeat(show, interval_s)


def _repeat(show: Callable[[], None], interval: float) -> NoReturn:
    while True:
        show()
        time.sleep(interval)

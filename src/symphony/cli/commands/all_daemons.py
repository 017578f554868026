"""`symphony open --all`: a process that serves one page over every daemon of this user on this host.

It asks each daemon over its control socket, which only its owner can use, and only reads. It listens on the
loopback interface, and admits the browser with its one-time link. Nothing is stored. It ends when it is
interrupted, or when the page was not viewed for a while.
"""

import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

import anyio
from typing_extensions import override

from symphony import to_thread
from symphony.api.access import Access
from symphony.api.all_daemons import DaemonFacts, DaemonsInUse, create_all_daemons_app, daemon_view
from symphony.api.history import utc_now
from symphony.api.live import Changes
from symphony.api.models import Link, utc_text
from symphony.api.routes import SIGN_IN_PATH
from symphony.api.sign_in import LINK_S, BrowserSignIn
from symphony.cli.client import Client
from symphony.cli.commands.status import ask_daemon, find_state_directories
from symphony.cli.documents import SkippedDirectory
from symphony.cli.endpoint import check_listener, read_record
from symphony.cli.failures import CommandError
from symphony.daemon.http_server import listen_tcp, serve, server_of
from symphony.domain import SymphonyError

ANSWER_S: Final = 2.0
"""After this time a daemon counts as not answering."""
IDLE_S: Final = 1_800.0
_SOCKET_S: Final = 1.8
_LOOK_S: Final = 1.0
_FIRST_LOOK_S: Final = 0.5
_FRESH_S: Final = 5.0
_WATCHED_S: Final = 10.0
_KEY_CHARS: Final = 16
_HOST: Final = "127.0.0.1"


class KnownDaemons(DaemonsInUse):
    """The daemons of this user with their last answers.

    While the page is open, they are asked together and repeatedly, so no request waits for a slow daemon.

    Args:
        environment: says where state directories are.
        changed: called when an answer differs from the one before.
    """

    def __init__(self, environment: Mapping[str, str], changed: Callable[[], None]) -> None:
        self._environment = environment
        self._changed = changed
        self._facts: dict[Path, DaemonFacts] = {}
        self._looked_s = 0.0
        self._wanted = anyio.Event()
        self._looked = anyio.Event()
        self.asked_s = time.monotonic()

    @override
    async def facts(self) -> Sequence[DaemonFacts]:
        self.asked_s = time.monotonic()
        self._wanted.set()
        if self.asked_s - self._looked_s > _FRESH_S:
            with anyio.move_on_after(_FIRST_LOOK_S):
                await self._looked.wait()
        return tuple(self._facts.values())

    @override
    async def link(self, key: str) -> Link:
        path = next((path for path, facts in self._facts.items() if facts.key == key), None)
        if path is None:
            raise CommandError.of("this daemon has ended", hint="the page lists the running daemons")
        return await to_thread.run_sync(_link, path)

    async def watch(self, is_watched: Callable[[], bool]) -> None:
        """Ask the daemons while the page is open; never returns."""
        while True:
            if not is_watched() and time.monotonic() - self.asked_s > _WATCHED_S:
                self._wanted = anyio.Event()
                await self._wanted.wait()
            await self._look()
            await anyio.sleep(_LOOK_S)

    async def _look(self) -> None:
        found = await to_thread.run_sync(find_state_directories, self._environment)
        mine = [path for path, owner in found.found.items() if owner == os.geteuid()]
        for path in self._facts.keys() - mine:
            self._note(path, None)
        async with anyio.create_task_group() as tasks:
            for path in mine:
                tasks.start_soon(self._ask, path)
        self._looked_s = time.monotonic()
        self._looked.set()
        self._looked = anyio.Event()

    async def _ask(self, path: Path) -> None:
        with anyio.move_on_after(ANSWER_S) as scope:
            self._note(path, await to_thread.run_sync(_facts_of, path, abandon_on_cancel=True))
        if scope.cancelled_caught:
            message = f"it did not answer within {ANSWER_S:g} s"
            known = self._facts.get(path)
            name, place = (known.name, known.place) if known else (path.name, str(path))
            self._note(path, DaemonFacts(key=_key(path), name=name, place=place, message=message))

    def _note(self, path: Path, facts: DaemonFacts | None) -> None:
        before = self._facts.pop(path, None)
        if facts is not None:
            self._facts[path] = facts
        if (before and daemon_view(before)) != (facts and daemon_view(facts)):
            self._changed()


def _key(path: Path) -> str:
    return sha256(os.fsencode(path)).hexdigest()[:_KEY_CHARS]


def _facts_of(path: Path) -> DaemonFacts | None:
    """The daemon of a state directory of this user; None if there is none."""
    asked = ask_daemon(path, os.geteuid(), answer_s=_SOCKET_S)
    if asked is None:
        return None
    if isinstance(asked, SkippedDirectory):
        return DaemonFacts(key=_key(path), name=path.name, place=str(path), message=asked.reason)
    row, state = asked
    return DaemonFacts(
        key=_key(path),
        name=row.name,
        place=row.workflow or row.state_dir,
        state=state,
        message=row.message,
        hint=row.hint,
    )


def _link(path: Path) -> Link:
    """A link that signs one browser in to the daemon of a state directory.

    Raises:
        SymphonyError: it is gone, refuses, or does not answer.
    """
    try:
        record = read_record(path, os.geteuid())
    except OSError:
        record = None
    if record is None or record.endpoint is None:
        raise CommandError.of("this daemon has ended", hint="in its repository, symphony run starts it again")
    check_listener(record.endpoint)
    return Client(record.endpoint).open_page()


async def serve_all_daemons(
    environment: Mapping[str, str], opened: Callable[[Link], None], *, idle_s: float = IDLE_S
) -> None:
    """Serve the page until a signal, or until it was not viewed for `idle_s` seconds.

    Args:
        environment: says where state directories are.
        opened: called with the link that signs one browser in.
        idle_s: see above.

    Raises:
        SymphonyError: `http_server`: there is no port; or what `opened` raised.
    """
    sign_in, changes, ended = BrowserSignIn(), Changes(), anyio.Event()
    daemons = KnownDaemons(environment, changes.everything_changed)
    # The token is not given out: only a browser with a link gets access.
    access = Access.tcp(_HOST, secrets.token_urlsafe(32), sign_in)
    server = server_of(create_all_daemons_app(daemons, access, changes))

    async def end_when_idle() -> None:
        while not ended.is_set():
            left_s = idle_s - (time.monotonic() - daemons.asked_s)
            if left_s > 0 or changes.streams:
                await anyio.sleep(max(left_s, _LOOK_S))
            else:
                ended.set()

    async def end_at_signal() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                ended.set()

    error: SymphonyError | None = None
    with listen_tcp(_HOST, 0) as listener:
        address = f"http://{sign_in.host}:{listener.getsockname()[1]}"
        link = Link(
            url=f"{address}{SIGN_IN_PATH}?link={sign_in.new_link()}",
            address=address,
            expires_at=utc_text(utc_now() + timedelta(seconds=LINK_S)),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, server, listener)
            tasks.start_soon(daemons.watch, lambda: bool(changes.streams))
            tasks.start_soon(end_when_idle)
            tasks.start_soon(end_at_signal)
            try:
                await to_thread.run_sync(opened, link)
                await ended.wait()
            except SymphonyError as raised:
                error = raised  # raised below, where no task group wraps it
            changes.close()
            server.should_exit = True
            tasks.cancel_scope.cancel()
    if error is not None:
        raise error

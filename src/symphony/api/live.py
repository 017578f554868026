"""Notifies open pages of changes with server-sent events.

A stream sends scopes and never content: the page then requests its own address again. So one code path makes
a page and its refresh, nothing is rendered without a reader, and access is checked each time.
"""

import secrets
from collections.abc import Callable
from typing import Final

import anyio
import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from symphony.api.interface import UnavailableError
from symphony.api.models import Change
from symphony.scheduler import Command, Event, Polled, State

MAX_STREAMS: Final = 16
INTERVAL_S: Final = 1.0
HEARTBEAT_S: Final = 1.5
"""The longest silence of a stream, besides the interval.

After 4.5 s of silence a page assumes that the daemon is gone (SILENCE_MS in app.js).
"""
RETRY_MS: Final = 3_000
RESTART_DEADLINE: Final = "restart_deadline"
"""A key in the `state` of an ASGI scope.

Its value is a function of the server that restarts the time limit of the connection.
"""
ALL: Final = "all"
BOARD: Final = "board"
LIBRARY: Final = "library"


class Changes:
    """Observes the steps of the scheduler and the library of skills, and manages the open streams.

    Args:
        interval_s: the shortest time between two events of one scope in one stream.
    """

    def __init__(self, *, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self.streams: set[EventStream] = set()
        self.version = 0
        self._life = secrets.token_hex(4)
        self._closed = False

    @property
    def id(self) -> str:
        """The id of the present version; a stream opened `after` it misses nothing."""
        return f"{self._life}-{self.version}"

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Record one step."""
        del commands
        if after is before:
            return
        self.version += 1
        if self.streams:
            scopes = changed_scopes(before, event, after)
            for stream in self.streams:
                stream.add(scopes)

    def library_changed(self) -> None:
        """Record a change of the library of skills."""
        self.version += 1
        for stream in self.streams:
            stream.add(frozenset({LIBRARY}))

    def issue_changed(self, identifier: str) -> None:
        """Record a change on the page of an issue that is not a step of the scheduler."""
        self.version += 1
        for stream in self.streams:
            stream.add(frozenset({f"issue:{identifier}"}))

    def everything_changed(self) -> None:
        """Record a change that any page may show, such as a new result of a rehearsal."""
        self.version += 1
        for stream in self.streams:
            stream.add(frozenset({ALL}))

    def open_stream(self, after: str | None) -> "EventStream":
        """A stream of changes from now on; if `after` is not the present id, it begins with all scopes.

        Raises:
            UnavailableError: there are already `MAX_STREAMS` streams, or the daemon is ending.
        """
        if self._closed:
            raise UnavailableError("orchestrator_unavailable", "the daemon is shutting down")
        if len(self.streams) >= MAX_STREAMS:
            raise UnavailableError("too_many_streams", f"{MAX_STREAMS} streams are open already")
        return EventStream(self, frozenset() if after == self.id else frozenset({ALL}))

    def close(self) -> None:
        """End all streams permanently."""
        self._closed = True
        for stream in self.streams:
            stream.end()


class EventStream(Response):
    """One stream, until its client disconnects or it is ended."""

    media_type = "text/event-stream"

    def __init__(self, changes: Changes, pending: frozenset[str]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._changes = changes
        self._pending = pending
        self._added = anyio.Event()
        self._cancel_scope = anyio.CancelScope()
        self.add(pending)

    def add(self, scopes: frozenset[str]) -> None:
        """Send these scopes with the next events."""
        self._pending |= scopes
        if self._pending:
            self._added.set()

    def end(self) -> None:
        """End the stream at once."""
        self._cancel_scope.cancel()

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            restart_deadline = scope.get("state", {}).get(RESTART_DEADLINE, lambda: None)
            self._changes.streams.add(self)
            try:
                with self._cancel_scope:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._end_with_client, receive)
                        await self._send_events(send, restart_deadline)
            finally:
                self._changes.streams.discard(self)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end_with_client(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end()

    async def _send_events(self, send: Send, restart_deadline: Callable[[], None]) -> None:
        await send(
            {"type": "http.response.body", "body": f"retry: {RETRY_MS}\n\n".encode(), "more_body": True}
        )
        while True:
            with anyio.move_on_after(HEARTBEAT_S):
                await self._added.wait()
            has_changed = bool(self._pending)
            await send({"type": "http.response.body", "body": self._take(), "more_body": True})
            restart_deadline()  # does not get here while the client does not read
            if has_changed:
                await anyio.sleep(self._changes.interval_s)

    def _take(self) -> bytes:
        """The pending scopes as events, or a heartbeat."""
        scopes = {ALL} if ALL in self._pending else self._pending
        self._pending, self._added = frozenset(), anyio.Event()
        events = []
        for scope in sorted(scopes):
            data = msgspec.json.encode(Change(version=self._changes.version, scope=scope)).decode()
            events.append(f"id: {self._changes.id}\nevent: changed\ndata: {data}\n\n")
        return ("".join(events) or "event: heartbeat\ndata: {}\n\n").encode()  # scripts see no comments


def changed_scopes(before: State, event: Event, after: State) -> frozenset[str]:
    """The scopes that a step changed: the board, and each issue whose claim or result changed.

    A poll may change any issue.
    """
    if isinstance(event, Polled) and after.candidates is not before.candidates:
        return frozenset({ALL})
    scopes = {BOARD}
    for was, now in (
        (before.running, after.running),
        (before.retrying, after.retrying),
        (before.blocked, after.blocked),
        (before.results, after.results),
    ):
        if was is not now:
            changed = (key for key in was.keys() | now.keys() if was.get(key) is not now.get(key))
            scopes.update(f"issue:{(now.get(key) or was[key]).issue.identifier}" for key in changed)
    return frozenset(scopes)

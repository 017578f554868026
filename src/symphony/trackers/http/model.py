"""What a tracker is asked and what it answers, without a network.

An adapter is written as flows: generators that yield a `Request`, are sent its `Answer` and return what they
were for. `drive` runs one against whatever answers; a test does so with a list, `client.Http` with a network.
A failure is raised inside the flow as `TrackerError`, so that a flow may take it for an answer.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from symphony.trackers.base import TrackerError

__all__ = ["Answer", "Flow", "Purpose", "Request", "drive", "drive_with", "origin_of"]

_T = TypeVar("_T")
_PORTS = {"http": 80, "https": 443}
_SAFE = frozenset({"GET", "HEAD"})


class Purpose(IntEnum):
    """What a request is for, most urgent first: what is left of a limit is given out in this order."""

    REFRESH = 0
    POLL = 1
    TOOL = 2
    NOTE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question.

    Attributes:
        endpoint: its kind, variable parts as `{}` (`/repos/{}/issues`); what it is counted by.
        path: below the base address, or a whole address, which must be on the same host.
        query: added to the address, in this order.
        body: sent as JSON unless it is null.
        headers: besides those of every request.
        reads: it changes nothing and may be asked again; null where the method says so (GET).
        conditional: the server has validators for it, so an unchanged answer need not be sent again.
        accept: statuses besides the successful ones that are answers to the flow and not failures.
    """

    endpoint: str
    method: str = "GET"
    path: str = ""
    query: Sequence[tuple[str, str]] = ()
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    reads: bool | None = None
    conditional: bool = False
    accept: frozenset[int] = frozenset()

    @property
    def repeatable(self) -> bool:
        """Whether asking twice does no harm."""
        return self.method in _SAFE if self.reads is None else self.reads

    def address(self, base: str) -> str:
        """The whole address; the path of `base` is kept."""
        address = self.path if "://" in self.path else f"{base.rstrip('/')}{self.path}"
        if not self.query:
            return address
        return f"{address}{'&' if '?' in address else '?'}{urlencode(self.query)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: names of headers are lower-case, `body` is decoded JSON or null where there was none.

    `cached` says that the server confirmed what was known. `text` begins a body that is no JSON.
    """

    status: int
    address: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    text: str = ""
    cached: bool = False


Flow = Generator[Request, Answer, _T]
"""Yields requests, is sent their answers, returns a value."""


async def drive(flow: Flow[_T], ask: Callable[[Request], Awaitable[Answer]]) -> _T:
    """Run a flow to its end; what `ask` raises as `TrackerError` is raised inside the flow."""
    try:
        request = next(flow)
        while True:
            try:
                answer = await ask(request)
            except TrackerError as error:
                request = flow.throw(error)
            else:
                request = flow.send(answer)
    except StopIteration as end:
        value: _T = end.value
        return value
    finally:
        flow.close()


def drive_with(flow: Flow[_T], answer: Callable[[Request], Answer]) -> _T:
    """As `drive`, without an event loop."""
    try:
        request = next(flow)
        while True:
            try:
                given = answer(request)
            except TrackerError as error:
                request = flow.throw(error)
            else:
                request = flow.send(given)
    except StopIteration as end:
        value: _T = end.value
        return value


def origin_of(address: str) -> tuple[str, str, int]:
    """Scheme, host and port: where a credential may go. Raises `ValueError` for what is no web address."""
    parts = urlsplit(address)
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not parts.hostname:
        raise ValueError("it does not begin with https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it holds a user name or a password")
    return scheme, parts.hostname.lower(), parts.port or _PORTS[scheme]

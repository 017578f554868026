"""Requests to a service and their answers, without a network.

An adapter is written as flows: generators that yield a `Request`, receive its `HttpResponse` and return a
result. A flow with much to compute yields a `Pause` now and then, so that the daemon can do other things.
`run_flow` drives a flow with anything that answers requests: `client.Http` over the network, a test by a
list. A failed request raises `ServiceError` inside the flow, so that a flow can handle it.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import anyio.lowlevel

from symphony.domain import ServiceError

T = TypeVar("T")
Query = Sequence[tuple[str, str]]

_PORTS = {"http": 80, "https": 443}


class Purpose(IntEnum):
    """What a request is for, most urgent first. The rate limiter refuses the least urgent ones first."""

    REFRESH = 0
    POLL = 1
    TOOL = 2
    COMMENT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Attributes:
        endpoint: the path with `{}` for its variable parts (`/repos/{}/issues`), for counters and messages.
        path: the path below the base address, or a whole address on the same host.
        query: parameters, added to the address in this order.
        body: sent as JSON unless it is `None`.
        reads: whether the request changes nothing and can be repeated; `None` decides by the method.
        conditional: whether the server has validators for it and can confirm a cached answer.
        accept: error statuses that the flow handles as answers.
    """

    endpoint: str
    method: str = "GET"
    path: str = ""
    query: Query = ()
    body: Any = None
    reads: bool | None = None
    conditional: bool = False
    accept: frozenset[int] = frozenset()

    @classmethod
    def below(
        cls,
        place: str,
        path: str,
        *variables: object,
        method: str = "GET",
        query: Query = (),
        body: Any = None,
        conditional: bool = False,
        accept: frozenset[int] = frozenset(),
    ) -> "Request":
        """A request below a repository (`/repos/owner/name`), at a path with `{}` for variables."""
        root = place[: place.index("/", 1)]
        return cls(
            endpoint=f"{root}/{{}}{path}",
            method=method,
            path=place + path.format(*variables),
            query=query,
            body=body,
            conditional=conditional,
            accept=accept,
        )

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does no harm."""
        return self.method in {"GET", "HEAD"} if self.reads is None else self.reads

    def address(self, base: str) -> str:
        """The whole address, below the path of `base`."""
        address = self.path if "://" in self.path else f"{base.rstrip('/')}{self.path}"
        if not self.query:
            return address
        return f"{address}{'&' if '?' in address else '?'}{urlencode(self.query)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An answer.

    Attributes:
        headers: the headers with lower-case names.
        body: the decoded JSON; `None` without any.
        text: the beginning of a body that is not JSON.
        cached: whether the server confirmed a cached body.
    """

    status: int
    address: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    text: str = ""
    cached: bool = False


class Pause:
    """Lets the daemon do other things before the flow goes on."""


PAUSE: Final = Pause()
_NO_ANSWER: Final = HttpResponse(status=0, address="")

Flow = Generator[Request | Pause, HttpResponse, T]


async def run_flow(flow: Flow[T], ask: Callable[[Request], Awaitable[HttpResponse]]) -> T:
    """Run a flow to its end. A `ServiceError` of `ask` is raised inside the flow."""
    try:
        request = next(flow)
        while True:
            try:
                if isinstance(request, Pause):
                    await anyio.lowlevel.checkpoint()
                    answer = _NO_ANSWER
                else:
                    answer = await ask(request)
            except ServiceError as error:
                request = flow.throw(error)
            else:
                request = flow.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        flow.close()


def without_requests(result: T) -> Flow[T]:
    """A flow that makes no requests."""
    yield from ()
    return result


def origin_of(address: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address: a credential is sent to one origin only.

    Raises:
        ValueError: not a web address, or one with a user name or password.
    """
    parts = urlsplit(address)
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not parts.hostname:
        raise ValueError("it does not begin with https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it contains a user name or a password")
    return scheme, parts.hostname.lower(), parts.port or _PORTS[scheme]

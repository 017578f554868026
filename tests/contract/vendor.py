"""A service in memory, and the ways in which any service fails."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio.lowlevel

from symphony.http import ExchangeError, RawResponse, Send

NOW_MS = 1_795_800_000_000  # 2026-11-27T17:20:00Z
MOMENT_S = 1_700_000_000
"""Before what happens on a service first."""
ELSEWHERE = "https://elsewhere.example.test/next"


@dataclass(slots=True)
class Clock:
    """Unix time that passes only when somebody sleeps or a test says so."""

    now: int = NOW_MS
    slept: list[float] = field(default_factory=list)

    def now_ms(self) -> int:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.slept.append(seconds)
        self.now += int(seconds * 1000)

    def pass_ms(self, duration: int) -> None:
        self.now += duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as the server sees it; `path` is decoded and below the base address."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    body: Any
    address: str

    def value(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.query if key == name), default)

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.query if key == name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An answer; `raw` is sent instead of `body` where it is not null."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None

    @property
    def content(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return b"" if self.body is None else json.dumps(self.body).encode()


class Fault(Enum):
    """What goes wrong with one request."""

    UNAUTHORISED = auto()
    FORBIDDEN = auto()
    NOT_FOUND = auto()
    GONE = auto()
    SERVER_ERROR = auto()
    UNAVAILABLE = auto()
    HTML = auto()
    CUT_JSON = auto()
    WRONG_TYPE = auto()
    REDIRECT_ELSEWHERE = auto()
    NO_CONNECTION = auto()
    SILENCE = auto()
    LOST = auto()
    """The server did what was asked, and its answer never came."""


PLAIN_FAULTS: Mapping[Fault, Given] = {
    Fault.UNAUTHORISED: Given(status=401, body={"message": "Bad credentials"}),
    Fault.FORBIDDEN: Given(status=403, body={"message": "Resource not accessible"}),
    Fault.NOT_FOUND: Given(status=404, body={"message": "Not Found"}),
    Fault.GONE: Given(status=410, body={"message": "Gone"}),
    Fault.SERVER_ERROR: Given(status=500, body={"message": "Oops"}),
    Fault.UNAVAILABLE: Given(status=503, raw=b"<html><body>Service Unavailable</body></html>"),
    Fault.HTML: Given(raw=b"<!DOCTYPE html><html><body>Please log in</body></html>"),
    Fault.CUT_JSON: Given(raw=b'{"data": {"issues": [{"id": "1", "tit'),
    Fault.WRONG_TYPE: Given(body="all is well"),
    Fault.REDIRECT_ELSEWHERE: Given(status=302, headers={"location": ELSEWHERE}),
}


class PagingFault(Enum):
    """What goes wrong between two pages."""

    REPEATED = auto()
    """The next page is the same page again."""
    ELSEWHERE = auto()
    """The next page is on another host."""
    NO_CURSOR = auto()
    """There is more, and nothing that leads to it."""


Route = tuple[str, str, Callable[..., Given]]
"""A method, a pattern of paths, and who answers; the groups of the pattern are arguments."""


def routed(routes: Sequence[Route], asked: Asked) -> Given | None:
    """The answer of the first route that fits, or null."""
    for method, pattern, answer in routes:
        found = re.fullmatch(pattern, asked.path)
        if found and method == asked.method:
            return answer(asked, *found.groups())
    return None


def conditional(asked: Asked, given: Given) -> Given:
    """With a validator, or without a body for whom has it already."""
    if asked.method != "GET" or given.status != 200:
        return given
    digest = hashlib.sha256(given.content + json.dumps(dict(given.headers)).encode()).hexdigest()
    tag = f'W/"{digest[:32]}"'
    if asked.headers.get("if-none-match") == tag:
        return Given(status=304, headers={"etag": tag})
    return replace(given, headers={**given.headers, "etag": tag})


def zulu(moment: datetime) -> str:
    """A time as most services write it."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


class Vendor(ABC):
    """A server of one service, behind the seam where the network would be (`http.Transport`)."""

    base: str
    secret: str
    page_cap: int | None = None
    """A smaller page than the adapter asks for, which some servers impose."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ticks = 0
        self.requests: list[Asked] = []
        self.received = 0
        self.paging_fault: PagingFault | None = None
        self.extra_headers: dict[str, str] = {}
        self.new: Callable[..., int]
        """Adds an issue as the desk writes it, from the fields of a `Draft`, and tells its number."""
        self._faults: deque[tuple[Fault | Given, str, int]] = deque()

    @property
    def validates(self) -> bool:
        """Whether `check` has a schema to hold things against."""
        return False

    def moment(self) -> datetime:
        """A time later than all before, to the second."""
        self.ticks += 1
        return datetime.fromtimestamp(MOMENT_S + self.ticks, tz=UTC)

    # --- for an adapter to write -------------------------------------------------------------------------

    @abstractmethod
    def handle(self, asked: Asked) -> Given:
        """Answer as the service does."""

    @abstractmethod
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        """Each form in which the service asks for a pause, with the pause in ms, null where it names none."""

    def fault(self, fault: Fault) -> Given:
        """The service's own form of a failure."""
        return PLAIN_FAULTS[fault]

    def check(self, asked: Asked, given: Given) -> None:
        """Hold both against the vendor's schema, where there is one. Raises `AssertionError`."""
        del asked, given

    # --- for the cases -----------------------------------------------------------------------------------

    def fail_next(self, fault: Fault | Given, *, times: int = 1, when: str = "", skip: int = 0) -> None:
        """Let the next requests go wrong: those whose method and address hold `when`, after `skip` others."""
        for number in range(times):
            self._faults.append((fault, when, skip if number == 0 else 0))

    def writes(self) -> list[Asked]:
        """The requests that may have changed something."""
        return [asked for asked in self.requests if self.is_write(asked)]

    def is_write(self, asked: Asked) -> bool:
        return asked.method not in {"GET", "HEAD"}

    @asynccontextmanager
    async def session(self, base: str) -> AsyncIterator[Send]:
        assert base == self.base
        yield self._send

    async def _send(
        self, method: str, address: str, headers: Mapping[str, str], content: bytes | None
    ) -> RawResponse:
        await anyio.lowlevel.checkpoint()
        given = self.exchange(method, address, headers, content)
        names = {**self.extra_headers, **{name.lower(): value for name, value in given.headers.items()}}
        return RawResponse(status=given.status, headers=names, content=given.content)

    def exchange(self, method: str, address: str, headers: Mapping[str, str], content: bytes | None) -> Given:
        """One request and its answer. Raises `ExchangeError` where none comes."""
        asked = self._asked(method, address, headers, content)
        self.requests.append(asked)
        fault = self._next_fault(asked)
        if fault is Fault.NO_CONNECTION or fault is Fault.SILENCE:
            raise ExchangeError("silence for 30 seconds")
        if isinstance(fault, Given):
            given = fault
        elif fault is not None and fault is not Fault.LOST:
            given = self.fault(fault)
        else:
            given = self.handle(asked)
            self.check(asked, given)
        if fault is Fault.LOST:
            raise ExchangeError("the connection failed (ReadError)")
        self.received += len(given.content)
        return given

    def _asked(self, method: str, address: str, headers: Mapping[str, str], content: bytes | None) -> Asked:
        parts = urlsplit(address)
        host = f"{parts.scheme}://{parts.netloc}"
        assert self.base.startswith(host), f"a request to {host}"
        assert self.secret in " ".join(headers.values()), "every request carries the credential"
        assert self.secret not in address, "no credential in an address"
        return Asked(
            method=method,
            path=unquote(parts.path.removeprefix(urlsplit(self.base).path)),
            query=tuple(parse_qsl(parts.query, keep_blank_values=True)),
            headers=headers,
            body=None if content is None else json.loads(content),
            address=address,
        )

    def _next_fault(self, asked: Asked) -> Fault | Given | None:
        if not self._faults:
            return None
        fault, when, skip = self._faults[0]
        if when not in f"{asked.method} {asked.address} {json.dumps(asked.body)}":
            return None
        self._faults.popleft()
        if skip:
            self._faults.appendleft((fault, when, skip - 1))
            return None
        return fault

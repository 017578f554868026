"""What a tracker is asked and what it answers, without a network.

An adapter is written as flows: generators that yield a `Request`, are sent its `Answer` and return what they
were for. `drive` runs one against whatever answers; a test does so with a list, `client.Http` with a network.
A failure is raised inside the flow as `TrackerError`, so that a flow may take it for an answer.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from symphony.domain import Blame, Category, Failure, mask_credentials, one_line
from symphony.trackers.base import TrackerError

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


async def run_flow(flow: Flow[_T], ask: Callable[[Request], Awaitable[Answer]]) -> _T:
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


def run_flow_with(flow: Flow[_T], answer: Callable[[Request], Answer]) -> _T:
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


# What is particular to one service: its names for limits, its way to say no, what to tell people.


THROTTLED = 429
_FORBIDDEN = 403
_SHOWN = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One limit, by the names of the headers that tell of it (lower-case)."""

    name: str
    limit: str
    remaining: str
    reset: str

    @classmethod
    def of(cls, name: str, prefix: str) -> "Bucket":
        """The usual three: `<prefix>-limit`, `-remaining`, `-reset`."""
        return cls(
            name=name, limit=f"{prefix}-limit", remaining=f"{prefix}-remaining", reset=f"{prefix}-reset"
        )


STANDARD = (Bucket.of("requests", "x-ratelimit"), Bucket.of("requests", "ratelimit"))


def plain_status(answer: Answer) -> int:
    """The status, but 429 where a 403 is a limit: it names a wait, or nothing is left (GitHub and others)."""
    if answer.status != _FORBIDDEN:
        return answer.status
    spent = any(answer.headers.get(bucket.remaining, "").strip() == "0" for bucket in STANDARD)
    return THROTTLED if spent or "retry-after" in answer.headers else answer.status


def plain_message(body: Any) -> str:
    """What a JSON error says: `message`, `error`, `errors` or `errorMessages`, whatever their shape."""
    return one_line("; ".join(dict.fromkeys(_texts(body))), _SHOWN)


def _texts(node: Any, depth: int = 0) -> Sequence[str]:
    match node:
        case str() if node.strip():
            return [node.strip()]
        case Mapping() if depth == 0:
            named = ("message", "error", "error_description", "errorMessages", "errors")
            return [text for key in named if key in node for text in _texts(node[key], 1)]
        case Mapping() if depth == 1 and "message" in node:
            return _texts(node["message"], 2)
        case Mapping() if depth == 1:
            return [f"{key}: {text}" for key, value in node.items() for text in _texts(value, 2)]
        case list():
            return [text for entry in node[:5] for text in _texts(entry, max(depth, 1))]
        case _:
            return []


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProfile:
    """One service.

    Attributes:
        service: its name in messages (`GitHub`).
        secret: the setting that holds the credential, for hints (`tracker.provider.token`).
        scope: the setting that names what is in scope (`tracker.provider.repo`).
        status: the status that an answer means, whatever it says it is: 429 for every limit, 401 for a
            credential that is not taken. A GraphQL answer with errors keeps its 200.
        message: what the body of an error says, for people.
        buckets: the limits it tells of.
        resource: the header that says which of several limits of one name an answer tells of.
        write_gap_ms: the least time between two writes.
        fences: whether nothing in a fence of Markdown is a mention, a link or markup in its comments.
    """

    service: str
    secret: str
    scope: str
    status: Callable[[Answer], int] = plain_status
    message: Callable[[Any], str] = plain_message
    buckets: tuple[Bucket, ...] = STANDARD
    resource: str | None = None
    write_gap_ms: int = 0
    fences: bool = True


# The one place where a failed request becomes a typed failure with a hint (TR7).
#
#     tracker_request       nothing came back: no connection, no answer in time, half an answer
#     tracker_status        it answered, and the answer is no
#     tracker_rate_limited  it asks to be left alone for a while
#     tracker_response      it answered something that makes no sense
#     tracker_pagination    its pages lead nowhere, in circles, or to another host
#
# All of them blame the tracker: an attempt that one of them ended does not count against the agent.


UNAUTHORISED = 401
FORBIDDEN = 403
_NOT_FOUND = 404
_GONE = 410
_REDIRECTS = range(300, 400)
_SERVER = 500
_DETAIL = 300


def refused(dialect: ServiceProfile, request: Request, answer: Answer, status: int) -> TrackerError:
    """The tracker said no; limits are `limited`."""
    said = one_line(mask_credentials(dialect.message(answer.body) or answer.text), _DETAIL)
    asked = f"{request.method} {request.endpoint}"
    message = f"{dialect.service} answered {status} to {asked}"
    if status < _REDIRECTS.start:  # GraphQL says no with a 200
        message = f"{dialect.service} refused {asked}"
    return TrackerError(
        Failure(
            category=Category.TRACKER_STATUS,
            blame=Blame.TRACKER,
            message=f"{message}: {said}" if said else message,
            retryable=status >= _SERVER,
            hint=_hint(dialect, answer, status),
            status=status,
        )
    )


def _hint(dialect: ServiceProfile, answer: Answer, status: int) -> str:
    if status == UNAUTHORISED:
        return f"the credential is not taken: renew {dialect.secret}, or the variable it refers to"
    if status == FORBIDDEN:
        return f"the credential of {dialect.secret} may not do this: check its scopes and its access"
    if status in {_NOT_FOUND, _GONE}:
        return f"check {dialect.scope}, and whether the credential may see it"
    if status in _REDIRECTS:
        host = urlsplit(answer.headers.get("location", "")).hostname
        where = f" to {host[:100]}" if host else ""
        return f"the address leads elsewhere{where}: correct it, or {dialect.scope}, in the workflow file"
    if status >= _SERVER:
        return f"{dialect.service} has a problem of its own; it is asked again"
    return "the request does not suit this server: is it of another version?"


def limited(dialect: ServiceProfile, *, wait_ms: int, reason: str, for_all: bool = True) -> TrackerError:
    """The tracker asks for a pause; not `for_all` where our own reserve does, and others may still ask."""
    seconds = -(-wait_ms // 1000)
    return TrackerError(
        Failure(
            category=Category.TRACKER_RATE_LIMITED,
            blame=Blame.TRACKER,
            message=f"{dialect.service} is left alone for {seconds} s: {one_line(reason, _DETAIL)}",
            hint="nothing to do; other users of the same credential spend from the same limit",
            retry_after_ms=wait_ms if for_all else None,
            status=THROTTLED,
        )
    )


def unreachable(
    dialect: ServiceProfile, request: Request, problem: str, *, retry_after_ms: int | None = None
) -> TrackerError:
    """No answer, or half of one."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"{dialect.service} did not answer {request.method} {request.endpoint}: {problem}",
            hint="check the network, a proxy in between, and the address in the workflow file",
            retry_after_ms=retry_after_ms,
        )
    )


def malformed(
    dialect: ServiceProfile, problem: str, *, hint: str | None = None, culprits: frozenset[str] = frozenset()
) -> TrackerError:
    """An answer that makes no sense."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_RESPONSE,
            blame=Blame.TRACKER,
            message=f"{dialect.service} {one_line(mask_credentials(problem), _DETAIL)}",
            hint=hint or "is the address that of the API, without a proxy or a login page in between?",
        ),
        culprits=culprits,
    )


def paging(dialect: ServiceProfile, request: Request, problem: str) -> TrackerError:
    """Pages that cannot be followed; the whole call fails, for half a list would be taken for all of it."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_PAGINATION,
            blame=Blame.TRACKER,
            message=f"{dialect.service}, pages of {request.endpoint}: {problem}",
            hint="is there a proxy in between that changes or keeps answers?",
        )
    )


# Pages without end and pages of others: the guards that every listing passes (TR8).


MAX_PAGES = 500
MAX_ITEMS = 50_000
_LINK = re.compile(r"<([^<>]{1,8000})>\s*((?:;[^,<]*)+)")
_NEXT = re.compile(r";\s*rel\s*=\s*\"?(?:[^\";]*\s)?next(?:\s[^\";]*)?\"?\s*(?:;|$)", re.IGNORECASE)


def next_link(headers: Mapping[str, str]) -> str | None:
    """The address of the next page by the `Link` header, or null on the last one."""
    for address, parameters in _LINK.findall(headers.get("link", "")):
        if _NEXT.search(parameters):
            return str(address)
    return None


class Pager:
    """The way through one listing; each method raises `TrackerError` where it goes wrong."""

    def __init__(self, dialect: ServiceProfile, request: Request, base: str) -> None:
        self._dialect, self._request = dialect, request
        self._origin = origin_of(base)
        self._seen: set[str] = {request.address(base)}
        self._items = 0

    def count(self, items: int) -> None:
        """Take note of what a page held."""
        self._items += items
        if self._items > MAX_ITEMS:
            raise self._lost(f"more than {MAX_ITEMS} records; narrow the scope")

    def cursor(self, value: Any) -> str:
        """The cursor of the next page, when the server says that there is one."""
        if not isinstance(value, str | int) or isinstance(value, bool) or not str(value):
            raise self._lost("there is a next page, and no cursor that leads to it")
        return self._once(str(value), "the same cursor twice")

    def link(self, answer: Answer) -> str | None:
        """The address of the next page on the same host, or null where this was the last."""
        address = next_link(answer.headers)
        if address is None:
            return None
        try:
            same = origin_of(address) == self._origin
        except ValueError:
            same = False
        if not same:
            raise self._lost("the next page is on another host, where the credential must not go")
        return self._once(address, "the same page twice")

    def _once(self, key: str, problem: str) -> str:
        if key in self._seen:
            raise self._lost(problem)
        if len(self._seen) >= MAX_PAGES:
            raise self._lost(f"more than {MAX_PAGES} pages")
        self._seen.add(key)
        return key

    def _lost(self, problem: str) -> TrackerError:
        return paging(self._dialect, self._request, problem)

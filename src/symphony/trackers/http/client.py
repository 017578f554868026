"""Runs an adapter's flows against its service: headers, retries, limits, validators, counters (TR8).

What can be asked again is asked again, twice at most and after a moment, when nothing or a passing error came
back. A write never is: it may have been done. Redirects are followed for reads on the same host only, so the
credential never leaves it.
"""

import random
import ssl
import time
import zlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from symphony.domain import DECODE_ERRORS, MASK, one_line
from symphony.trackers.base import TrackerError
from symphony.trackers.http import exchange
from symphony.trackers.http.exchange import (
    THROTTLED,
    Answer,
    Flow,
    Purpose,
    Request,
    ServiceProfile,
    origin_of,
    run_flow,
)
from symphony.trackers.http.rate_limit import SHARED, QuotaRemaining, RateLimiter, RateLimiters

# What the server was last seen to answer, so that it need not send again what has not changed.
#
# Bounded in count and bytes, least recently used first out. Only answers that carry a validator are kept,
# and packed: lists of issues shrink to a tenth, while decoded they would take several times their size.


_STATUS_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    answer: Answer
    packed: bytes
    validators: Mapping[str, str]


class ResponseCache:
    """Answers by address, for one credential."""

    def __init__(self, *, max_entries: int = 512, max_bytes: int = 8 * 1024 * 1024) -> None:
        self._entries: OrderedDict[str, _Known] = OrderedDict()
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._bytes = 0

    def validators(self, address: str) -> Mapping[str, str]:
        """The headers that make a request conditional; empty where nothing is known."""
        known = self._entries.get(address)
        return {} if known is None else known.validators

    def confirmed(self, address: str, headers: Mapping[str, str]) -> Answer | None:
        """The known answer that a 304 confirms, with what the 304 says of limits; null where it is gone."""
        known = self._entries.get(address)
        if known is None:
            return None
        self._entries.move_to_end(address)
        body = msgspec.json.decode(zlib.decompress(known.packed))
        return replace(known.answer, body=body, headers={**known.answer.headers, **headers}, cached=True)

    def keep(self, answer: Answer, content: bytes) -> None:
        """Remember an answer that was made of `content`, if it has a validator."""
        self._drop(answer.address)
        found = {"if-none-match": answer.headers.get("etag")}
        if found["if-none-match"] is None:
            found = {"if-modified-since": answer.headers.get("last-modified")}
        validators = {name: value for name, value in found.items() if value}
        if answer.status != _STATUS_OK or answer.body is None or not validators:
            return
        packed = zlib.compress(content, 1)
        self._entries[answer.address] = _Known(
            answer=replace(answer, body=None), packed=packed, validators=validators
        )
        self._bytes += len(packed)
        while self._bytes > self._max_bytes or len(self._entries) > self._max_entries:
            self._drop(next(iter(self._entries)))

    def _drop(self, address: str) -> None:
        known = self._entries.pop(address, None)
        self._bytes -= 0 if known is None else len(known.packed)


# The wire itself: one exchange of bytes, bounded in time and size. The only importer of httpx here.
#
# httpx is loaded when the first request is made, in a worker thread, so that starting the program stays
# fast. Connections live as long as one session: a poll's pages share one, and none is left behind by a
# reload.


CONNECT_S = 10.0
READ_S = 30.0
TOTAL_S = 60.0
MAX_BYTES = 32 * 1024 * 1024
_PIECE = 256 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_PLAIN = frozenset({"", "identity"})


class ExchangeError(Exception):
    """No whole answer came back. The text completes "did not answer: "; it names no address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Status, headers (names in lower case) and body as they came; `content` null where it was too long."""

    status: int
    headers: Mapping[str, str]
    content: bytes | None


class Send(Protocol):
    """One exchange."""

    async def __call__(
        self, method: str, address: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        """Send and receive. Raises `ExchangeError`; the server may have acted all the same."""
        ...


class Transport(Protocol):
    """What carries requests. Tests put a server of their own here."""

    def session(self, base: str) -> AbstractAsyncContextManager[Send]:
        """Connections to one host, closed at the end. Redirects are not followed."""
        ...


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine."""
    host = (urlsplit(address).hostname or "").lower()
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class HttpxTransport:
    """Carries requests by httpx, with the proxies and certificates that the environment names."""

    def __init__(
        self,
        *,
        connect_s: float = CONNECT_S,
        read_s: float = READ_S,
        total_s: float = TOTAL_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._connect_s, self._read_s, self._total_s = connect_s, read_s, total_s
        self._max_bytes = max_bytes
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def session(self, base: str) -> AsyncIterator[Send]:
        """As `Transport.session`."""
        if self._tls is None:
            self._tls = await anyio.to_thread.run_sync(_make_tls)
        import httpx  # noqa: PLC0415 - loaded when the first request is made, so launch stays fast

        timeout = httpx.Timeout(self._read_s, connect=self._connect_s)
        async with httpx.AsyncClient(
            timeout=timeout, verify=self._tls, follow_redirects=False, trust_env=not is_loopback(base)
        ) as client:

            async def send(
                method: str, address: str, headers: Mapping[str, str], content: bytes | None
            ) -> Reply:
                return await self._exchange(client, method, address, headers, content)

            yield send

    async def _exchange(
        self, client: Any, method: str, address: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        import httpx  # noqa: PLC0415 - as above

        sent = {**headers, "accept-encoding": "gzip"}
        try:
            with anyio.fail_after(self._total_s):
                async with client.stream(method, address, headers=sent, content=content) as answer:
                    body = await self._body(answer)
                    names = {name.lower(): value for name, value in answer.headers.items()}
                    return Reply(status=answer.status_code, headers=names, content=body)
        except TimeoutError as error:
            raise ExchangeError(f"no whole answer within {self._total_s:g} seconds") from error
        except httpx.ConnectTimeout as error:
            raise ExchangeError(f"no connection within {self._connect_s:g} seconds") from error
        except httpx.TimeoutException as error:
            raise ExchangeError(f"silence for {self._read_s:g} seconds") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ExchangeError(_problem(error)) from error

    async def _body(self, answer: Any) -> bytes | None:
        """The body, unpacked in pieces: neither what comes nor what it unpacks to is ever more than fits."""
        coding = answer.headers.get("content-encoding", "").strip().lower()
        if coding not in _PLAIN | {"gzip", "x-gzip"}:
            raise ExchangeError(f"it is packed as {one_line(coding, 80)!r}, which was not asked for")
        unpacker = None if coding in _PLAIN else zlib.decompressobj(_GZIP)
        body, came = bytearray(), 0
        async for chunk in answer.aiter_raw():
            came += len(chunk)
            if came > self._max_bytes:
                return None
            if unpacker is None:
                body += chunk
            elif not await self._unpack(unpacker, chunk, body):
                return None
        if unpacker is not None and came and not unpacker.eof:
            raise ExchangeError("it ends in the middle")
        return bytes(body)

    async def _unpack(self, unpacker: "zlib._Decompress", chunk: bytes, body: bytearray) -> bool:
        """Add what a chunk unpacks to; false where that is too long."""
        try:
            while chunk and not unpacker.eof:
                body += unpacker.decompress(chunk, _PIECE)
                chunk = unpacker.unconsumed_tail
                if len(body) > self._max_bytes:
                    return False
                await anyio.lowlevel.checkpoint()
        except zlib.error as error:
            raise ExchangeError("it is packed in a way that cannot be undone") from error
        if chunk or unpacker.unused_data:
            raise ExchangeError("there is more behind its end")
        return True


def _make_tls() -> ssl.SSLContext:
    import httpx  # noqa: PLC0415 - as above

    return httpx.create_ssl_context()


def _problem(error: Exception) -> str:
    """What happened, in words that hold no address and nothing of what was sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"its certificate is not accepted ({cause.reason or type(cause).__name__})"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return f"the connection failed ({type(error).__name__})"


_T = TypeVar("_T")
ATTEMPTS = 3
_BACKOFF_S = 0.4
_PASSING = frozenset({502, 503, 504})
_MOVED = frozenset({301, 302, 303, 307, 308})
_OK = range(200, 300)
_NOT_MODIFIED = 304
_MAX_MOVES = 3
_TEXT = 500
_MASK, _TELLING = MASK.encode(), 8


def wall_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What was spent so far, and what is left of the limits that the service tells of.

    `requests` is by endpoint; `bytes` are those of bodies received; `unchanged` counts answers that the
    service had no need to send again.
    """

    requests: Mapping[str, int]
    bytes: int
    unchanged: int
    retries: int
    throttled: int
    quota: tuple[QuotaRemaining, ...]
    paused_ms: int


@dataclass(slots=True)
class _Counts:
    requests: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    unchanged: int = 0
    retries: int = 0
    throttled: int = 0


class Http:
    """One service with one credential."""

    def __init__(
        self,
        *,
        base: str,
        dialect: ServiceProfile,
        credential: str,
        headers: Mapping[str, str],
        transport: Transport | None = None,
        governors: RateLimiters = SHARED,
        now_ms: Callable[[], int] = wall_ms,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.base, self.dialect = base, dialect
        self._headers = {"accept": "application/json", "user-agent": "symphony-orchestrator", **headers}
        self._transport = transport or HttpxTransport()
        self._sleep = sleep
        self._now_ms = now_ms
        self._secrets = _forms(credential, headers.get("authorization", ""))
        self._known = ResponseCache()
        self._counts = _Counts()
        self._writing = anyio.Lock()
        self._written_ms = 0
        self.governor: RateLimiter = governors.of(base, credential, now_ms=now_ms)

    def traffic(self) -> Traffic:
        """What was spent and what is left."""
        counts = self._counts
        return Traffic(
            requests=dict(counts.requests),
            bytes=counts.bytes,
            unchanged=counts.unchanged,
            retries=counts.retries,
            throttled=counts.throttled,
            quota=self.governor.left(),
            paused_ms=self.governor.quiet_ms(),
        )

    async def run(self, flow: Flow[_T], *, purpose: Purpose) -> _T:
        """Run a flow; its requests share a connection.

        Raises:
            TrackerError: the first failure that the flow did not take for an answer.
        """
        try:
            self.governor.check(self.dialect, purpose)
        except TrackerError:
            flow.close()
            raise
        async with self._transport.session(self.base) as send:
            return await run_flow(flow, lambda request: self._ask(send, request, purpose))

    async def _ask(self, send: Send, request: Request, purpose: Purpose) -> Answer:
        if request.repeatable:
            return await self._answer(send, request, purpose)
        async with self._writing:
            gap_s = (self._written_ms + self.dialect.write_gap_ms - self._now_ms()) / 1000
            if gap_s > 0:
                await self._sleep(min(gap_s, self.dialect.write_gap_ms / 1000))
            try:
                return await self._answer(send, request, purpose)
            finally:
                self._written_ms = self._now_ms()

    async def _answer(self, send: Send, request: Request, purpose: Purpose) -> Answer:
        """The answer, redirects on the same host followed and its verdict drawn."""
        address = request.address(self.base)
        self._guard(address, request)
        answer = await self._tried(send, request, address, purpose)
        for _ in range(_MAX_MOVES):
            target = self._moved(request, address, answer)
            if target is None:
                break
            address = target
            answer = await self._tried(send, request, address, purpose)
        return self._judged(request, answer)

    def _moved(self, request: Request, address: str, answer: Answer) -> str | None:
        """Where a redirect of a read leads, or null where it is not to be followed."""
        if not request.repeatable or answer.status not in _MOVED or answer.status in request.accept:
            return None
        target = urljoin(address, answer.headers.get("location", ""))
        return target if target != address and self._at_home(target) else None

    def _guard(self, address: str, request: Request) -> None:
        if not self._at_home(address):
            raise exchange.paging(self.dialect, request, "an address on another host")

    def _at_home(self, address: str) -> bool:
        try:
            return origin_of(address) == origin_of(self.base)
        except ValueError:
            return False

    async def _tried(self, send: Send, request: Request, address: str, purpose: Purpose) -> Answer:
        attempts = ATTEMPTS if request.repeatable else 1
        for attempt in range(1, attempts + 1):
            self.governor.check(self.dialect, purpose)
            last = attempt == attempts
            try:
                answer = await self._exchange(send, request, address)
            except ExchangeError as error:
                if last:
                    raise exchange.unreachable(self.dialect, request, str(error)) from error
            else:
                if last or answer.status not in _PASSING or "retry-after" in answer.headers:
                    return answer
            self._counts.retries += 1
            await self._sleep(_BACKOFF_S * 2 ** (attempt - 1) * (0.5 + random.random()))  # noqa: S311 - jitter
        raise AssertionError(request)

    async def _exchange(self, send: Send, request: Request, address: str) -> Answer:
        headers = {**self._headers, **request.headers}
        if request.conditional:
            headers.update(self._known.validators(address))
        content = None
        if request.body is not None:
            content = msgspec.json.encode(request.body)
            headers["content-type"] = "application/json"
        self._counts.requests[f"{request.method} {request.endpoint}"] += 1
        came = await send(request.method, address, headers, content)
        self._counts.bytes += len(came.content or b"")
        reply = self._masked(came)
        answer = self._confirmed(request, address, reply) or self._decoded(request, address, reply)
        self.governor.learn(self.dialect, answer)
        if request.conditional and not answer.cached:
            self._known.keep(answer, reply.content or b"")
        return answer

    def _masked(self, reply: Reply) -> Reply:
        """The reply without our credential in any form: some servers repeat what they do not take."""
        content = reply.content
        if content is None or not any(secret in content for secret in self._secrets):
            return reply
        for secret in self._secrets:
            content = content.replace(secret, _MASK)
        return replace(reply, content=content)

    def _confirmed(self, request: Request, address: str, reply: Reply) -> Answer | None:
        if not request.conditional or reply.status != _NOT_MODIFIED:
            return None
        self._counts.unchanged += 1
        return self._known.confirmed(address, reply.headers)

    def _decoded(self, request: Request, address: str, reply: Reply) -> Answer:
        if reply.content is None:
            raise exchange.malformed(
                self.dialect,
                f"answered more than fits to {request.method} {request.endpoint}",
                hint=f"narrow {self.dialect.scope}",
            )
        body, sound = _json(reply.content)
        if not sound and reply.status in _OK:
            raise exchange.malformed(
                self.dialect, f"answered {_kind(reply)} to {request.method} {request.endpoint}"
            )
        text = "" if sound else reply.content[:_TEXT].decode("utf-8", "replace")
        if text and len(reply.content) > _TEXT:
            text = f"{text}…"
        return Answer(
            status=reply.status,
            address=address,
            headers=reply.headers,
            body=body,
            text="" if _is_page(text) else text,
        )

    def _judged(self, request: Request, answer: Answer) -> Answer:
        status = self.dialect.status(answer)
        if status == THROTTLED or (status in _PASSING and "retry-after" in answer.headers):
            self._counts.throttled += 1
            raise self.governor.throttled(self.dialect, answer)
        if status in _OK or status in request.accept:
            self.governor.settled()
            return answer
        error = exchange.refused(self.dialect, request, answer, status)
        if status == exchange.UNAUTHORISED:
            self.governor.latch(error)
        raise error


def _forms(credential: str, header: str) -> tuple[bytes, ...]:
    """The forms in which a credential travels: by itself, in a header, and as JSON may write that."""
    sent = header.rpartition(" ")[2]
    forms = {credential, sent, sent.replace("/", "\\/")}
    return tuple(form.encode("utf-8", "surrogatepass") for form in forms if len(form) >= _TELLING)


def _json(content: bytes) -> tuple[Any, bool]:
    """The decoded body and whether it is JSON; nothing at all is null."""
    if not content.strip():
        return None, True
    try:
        return msgspec.json.decode(content), True
    except DECODE_ERRORS:
        return None, False


def _kind(reply: Reply) -> str:
    content = reply.content or b""
    return "with a web page" if _is_page(content[:_TEXT].decode("utf-8", "replace")) else "with broken JSON"


def _is_page(text: str) -> bool:
    return text.lstrip().lower().startswith(("<!doctype", "<html", "<head", "<body", "<?xml"))

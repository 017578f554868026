"""Runs the flows of an adapter against its service: retries, redirects, rate limits, cache, counters.

A read is repeated after a network error or a temporary server error, at most twice. A write is never
repeated, because it may have been carried out. Redirects are followed for reads and on the same host only, so
that the credential never leaves it.
"""

import random
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

import anyio
import msgspec

from symphony.domain import DECODE_ERRORS, MASK, ServiceError
from symphony.http.exchange import Flow, HttpResponse, Purpose, Request, T, origin_of, run_flow
from symphony.http.rate_limit import SHARED, RateLimiter, RateLimiters
from symphony.http.service import THROTTLED, UNAUTHORISED, ServiceProfile
from symphony.http.transport import ExchangeError, HttpxTransport, RawResponse, Send, Transport

ATTEMPTS = 3
_BACKOFF_S = 0.4
_MAX_REDIRECTS = 3
_OK = range(200, 300)
_NOT_MODIFIED = 304
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PASSING = frozenset({502, 503, 504})
_MAX_TEXT = 500
_MIN_SECRET_CHARS = 8


def wall_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class ResponseCache:
    """The last answers of a service by address, so that the service can confirm instead of resend them.

    Keeps answers with a validator, within limits of number and bytes; the least recently used one is dropped
    first. Bodies are compressed: lists of issues shrink to a tenth.
    """

    def __init__(self, *, max_entries: int = 512, max_bytes: int = 8 * 1024 * 1024) -> None:
        self._entries: OrderedDict[str, tuple[HttpResponse, bytes, Mapping[str, str]]] = OrderedDict()
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._bytes = 0

    def validators(self, address: str) -> Mapping[str, str]:
        """The headers that make a request conditional; empty without a cached answer."""
        return self._entries[address][2] if address in self._entries else {}

    def confirmed(self, address: str, headers: Mapping[str, str]) -> HttpResponse | None:
        """The cached answer, with the headers of the 304 that confirms it; `None` if it is gone."""
        if address not in self._entries:
            return None
        self._entries.move_to_end(address)
        answer, packed, _ = self._entries[address]
        body = msgspec.json.decode(zlib.decompress(packed))
        return replace(answer, body=body, headers={**answer.headers, **headers}, cached=True)

    def keep(self, answer: HttpResponse, content: bytes) -> None:
        """Cache an answer with this body, if it has a validator."""
        self._drop(answer.address)
        etag, modified = answer.headers.get("etag"), answer.headers.get("last-modified")
        if etag:
            validators = {"if-none-match": etag}
        elif modified:
            validators = {"if-modified-since": modified}
        else:
            return
        if answer.status != _OK.start or answer.body is None:
            return
        packed = zlib.compress(content, 1)
        self._entries[answer.address] = (replace(answer, body=None), packed, validators)
        self._bytes += len(packed)
        while self._bytes > self._max_bytes or len(self._entries) > self._max_entries:
            self._drop(next(iter(self._entries)))

    def _drop(self, address: str) -> None:
        if address in self._entries:
            self._bytes -= len(self._entries.pop(address)[1])


class Http:
    """One service with one credential."""

    def __init__(
        self,
        *,
        base: str,
        service: ServiceProfile,
        credential: str,
        headers: Mapping[str, str],
        transport: Transport | None = None,
        rate_limiters: RateLimiters = SHARED,
        now_ms: Callable[[], int] = wall_ms,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.base, self.service = base, service
        self.rate_limiter: RateLimiter = rate_limiters.get(base, credential, now_ms=now_ms)
        self._headers = {"accept": "application/json", "user-agent": "symphony-orchestrator", **headers}
        self._secrets = _forms(credential, headers.get("authorization", ""))
        self._transport = transport or HttpxTransport()
        self._now_ms, self._sleep = now_ms, sleep
        self._cache = ResponseCache()
        self._writing = anyio.Lock()
        self._written_ms = 0

    async def run(self, flow: Flow[T], *, purpose: Purpose) -> T:
        """Run a flow; its requests share a connection.

        Raises:
            ServiceError: the first failure that the flow does not handle.
        """
        try:
            self.rate_limiter.check(self.service, purpose)
        except ServiceError:
            flow.close()
            raise
        async with self._transport.session(self.base) as send:

            async def ask(request: Request) -> HttpResponse:
                if request.repeatable:
                    return await self._ask(send, request, purpose)
                async with self._writing:
                    gap_s = (self._written_ms + self.service.write_gap_ms - self._now_ms()) / 1000
                    if gap_s > 0:
                        await self._sleep(min(gap_s, self.service.write_gap_ms / 1000))
                    try:
                        return await self._ask(send, request, purpose)
                    finally:
                        self._written_ms = self._now_ms()

            return await run_flow(flow, ask)

    async def _ask(self, send: Send, request: Request, purpose: Purpose) -> HttpResponse:
        """Send a request, follow redirects, and judge the answer."""
        address = request.address(self.base)
        if not self._is_same_host(address):
            raise self.service.bad_pagination(request, "an address on another host")
        answer = await self._send_with_retries(send, request, address, purpose)
        for _ in range(_MAX_REDIRECTS):
            if (
                not request.repeatable
                or answer.status not in _REDIRECTS
                or answer.status in request.accept
                or (target := urljoin(address, answer.headers.get("location", ""))) == address
                or not self._is_same_host(target)
            ):
                break
            address = target
            answer = await self._send_with_retries(send, request, address, purpose)

        status = self.service.status(answer)
        if status == THROTTLED or (status in _PASSING and "retry-after" in answer.headers):
            raise self.rate_limiter.throttle(self.service, answer)
        if status in _OK or status in request.accept:
            self.rate_limiter.reset()
            return answer
        error = self.service.refused(request, answer, status)
        if status == UNAUTHORISED:
            self.rate_limiter.trip(error)
        raise error

    def _is_same_host(self, address: str) -> bool:
        try:
            return origin_of(address) == origin_of(self.base)
        except ValueError:
            return False

    async def _send_with_retries(
        self, send: Send, request: Request, address: str, purpose: Purpose
    ) -> HttpResponse:
        attempt = 0
        while True:
            attempt += 1
            last = attempt == ATTEMPTS or not request.repeatable
            self.rate_limiter.check(self.service, purpose)
            try:
                answer = await self._exchange(send, request, address)
            except ExchangeError as error:
                if last:
                    raise self.service.unreachable(request, str(error)) from error
            else:
                if last or answer.status not in _PASSING or "retry-after" in answer.headers:
                    return answer
            await self._sleep(_BACKOFF_S * 2 ** (attempt - 1) * (0.5 + random.random()))  # noqa: S311 - jitter

    async def _exchange(self, send: Send, request: Request, address: str) -> HttpResponse:
        """Send a request once and decode the answer.

        Raises:
            ExchangeError: no complete answer.
            ServiceError: the body is too large or not JSON.
        """
        headers = dict(self._headers)
        if request.conditional:
            headers.update(self._cache.validators(address))
        content = None
        if request.body is not None:
            content = msgspec.json.encode(request.body)
            headers["content-type"] = "application/json"
        reply = await send(request.method, address, headers, content)
        body = reply.content
        if body is not None:
            for secret in self._secrets:  # some servers repeat a credential that they reject
                body = body.replace(secret, MASK.encode())

        answer = None
        if request.conditional and reply.status == _NOT_MODIFIED:
            answer = self._cache.confirmed(address, reply.headers)
        if answer is None:
            answer = self._decode(request, address, replace(reply, content=body))
        self.rate_limiter.learn(self.service, answer)
        if request.conditional and not answer.cached:
            self._cache.keep(answer, body or b"")
        return answer

    def _decode(self, request: Request, address: str, reply: RawResponse) -> HttpResponse:
        asked = f"{request.method} {request.endpoint}"
        if reply.content is None:
            raise self.service.malformed(
                f"answered more than fits to {asked}", hint=f"narrow {self.service.scope_key}"
            )
        body: Any = None
        text = ""
        try:
            body = msgspec.json.decode(reply.content) if reply.content.strip() else None
        except DECODE_ERRORS:
            text = reply.content[:_MAX_TEXT].decode("utf-8", "replace")
            is_page = text.lstrip().lower().startswith(("<!doctype", "<html", "<head", "<body", "<?xml"))
            if reply.status in _OK:
                kind = "a web page" if is_page else "broken JSON"
                raise self.service.malformed(f"answered with {kind} to {asked}") from None
            if is_page:
                text = ""
            elif len(reply.content) > _MAX_TEXT:
                text = f"{text}…"
        return HttpResponse(status=reply.status, address=address, headers=reply.headers, body=body, text=text)


def _forms(credential: str, header: str) -> tuple[bytes, ...]:
    """The forms in which an answer may repeat a credential: alone, as in the header, and escaped in JSON."""
    sent = header.rpartition(" ")[2]
    forms = {credential, sent, sent.replace("/", "\\/")}
    return tuple(form.encode("utf-8", "surrogatepass") for form in forms if len(form) >= _MIN_SECRET_CHARS)

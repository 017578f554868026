"""Runs an adapter's flows against its service: headers, retries, limits, validators, counters (TR8).

What can be asked again is asked again, twice at most and after a moment, when nothing or a passing error came
back. A write never is: it may have been done. Redirects are followed for reads on the same host only, so the
credential never leaves it.
"""

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import urljoin

import anyio
import msgspec

from symphony.domain.decoding import UNREADABLE
from symphony.domain.redaction import MASK
from symphony.trackers.base import TrackerError
from symphony.trackers.http import failures
from symphony.trackers.http.dialect import THROTTLED, Dialect
from symphony.trackers.http.governor import SHARED, Governor, Governors, Left
from symphony.trackers.http.known import KnownAnswers
from symphony.trackers.http.model import Answer, Flow, Purpose, Request, drive, origin_of
from symphony.trackers.http.transport import ExchangeError, HttpxTransport, Reply, Send, Transport

__all__ = ["Http", "Traffic", "wall_ms"]

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
    left: tuple[Left, ...]
    quiet_ms: int


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
        dialect: Dialect,
        credential: str,
        headers: Mapping[str, str],
        transport: Transport | None = None,
        governors: Governors = SHARED,
        now_ms: Callable[[], int] = wall_ms,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.base, self.dialect = base, dialect
        self._headers = {"accept": "application/json", "user-agent": "symphony-orchestrator", **headers}
        self._transport = transport or HttpxTransport()
        self._sleep = sleep
        self._now_ms = now_ms
        self._secrets = _forms(credential, headers.get("authorization", ""))
        self._known = KnownAnswers()
        self._counts = _Counts()
        self._writing = anyio.Lock()
        self._written_ms = 0
        self.governor: Governor = governors.of(base, credential, now_ms=now_ms)

    def traffic(self) -> Traffic:
        """What was spent and what is left."""
        counts = self._counts
        return Traffic(
            requests=dict(counts.requests),
            bytes=counts.bytes,
            unchanged=counts.unchanged,
            retries=counts.retries,
            throttled=counts.throttled,
            left=self.governor.left(),
            quiet_ms=self.governor.quiet_ms(),
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
            return await drive(flow, lambda request: self._ask(send, request, purpose))

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
            raise failures.paging(self.dialect, request, "an address on another host")

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
                    raise failures.unreachable(self.dialect, request, str(error)) from error
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
            raise failures.malformed(
                self.dialect,
                f"answered more than fits to {request.method} {request.endpoint}",
                hint=f"narrow {self.dialect.scope}",
            )
        body, sound = _json(reply.content)
        if not sound and reply.status in _OK:
            raise failures.malformed(
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
        error = failures.refused(self.dialect, request, answer, status)
        if status == failures.UNAUTHORISED:
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
    except UNREADABLE:
        return None, False


def _kind(reply: Reply) -> str:
    content = reply.content or b""
    return "with a web page" if _is_page(content[:_TEXT].decode("utf-8", "replace")) else "with broken JSON"


def _is_page(text: str) -> bool:
    return text.lstrip().lower().startswith(("<!doctype", "<html", "<head", "<body", "<?xml"))

"""The wire itself: one exchange of bytes, bounded in time and size. The only importer of httpx here.

httpx is loaded when the first request is made, in a worker thread, so that starting the program stays fast.
Connections live as long as one session: a poll's pages share one, and none is left behind by a reload.
"""

import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import anyio.to_thread

from symphony.domain.plain import one_line

__all__ = ["ExchangeError", "HttpxTransport", "Reply", "Send", "Transport", "is_loopback"]

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

"""Carries requests over the network. The only module that imports httpx.

Bodies are bounded in size and time before and after they are unpacked.
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

from symphony.domain import one_line

CONNECT_S = 10.0
READ_S = 30.0
TOTAL_S = 60.0
MAX_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_GZIP = 16 + zlib.MAX_WBITS


class ExchangeError(Exception):
    """No complete answer. The text follows "did not answer: " and holds no address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A raw answer: header names are lower-case; `content` is `None` if it was too large."""

    status: int
    headers: Mapping[str, str]
    content: bytes | None


class Send(Protocol):
    """Sends one request."""

    async def __call__(
        self, method: str, address: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        """Send and receive.

        Raises:
            ExchangeError: no complete answer; the server may have acted all the same.
        """
        ...


class Transport(Protocol):
    """Carries requests. Tests use an in-memory server."""

    def session(self, base: str) -> AbstractAsyncContextManager[Send]:
        """Connections to one host, closed at the end. Redirects are not followed."""
        ...


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine."""
    host = (urlsplit(address).hostname or "").lower()
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class HttpxTransport:
    """Uses httpx, with the proxies and certificates that the environment names.

    httpx is imported at the first request, which keeps the start of the program fast. The connections of a
    session are shared by the pages of one listing; servers close idle ones before the next poll anyway.
    """

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
        import httpx  # noqa: PLC0415 - imported at the first request

        async with httpx.AsyncClient(
            timeout=httpx.Timeout(self._read_s, connect=self._connect_s),
            verify=self._tls,
            follow_redirects=False,
            trust_env=not is_loopback(base),
        ) as client:

            async def send(
                method: str, address: str, headers: Mapping[str, str], content: bytes | None
            ) -> Reply:
                sent = {**headers, "accept-encoding": "gzip"}
                try:
                    with anyio.fail_after(self._total_s):
                        async with client.stream(method, address, headers=sent, content=content) as answer:
                            return Reply(
                                status=answer.status_code,
                                headers={name.lower(): value for name, value in answer.headers.items()},
                                content=await self._body(answer),
                            )
                except TimeoutError as error:
                    raise ExchangeError(f"no complete answer within {self._total_s:g} seconds") from error
                except httpx.ConnectTimeout as error:
                    raise ExchangeError(f"no connection within {self._connect_s:g} seconds") from error
                except httpx.TimeoutException as error:
                    raise ExchangeError(f"silence for {self._read_s:g} seconds") from error
                except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                    raise ExchangeError(_describe(error)) from error

            yield send

    async def _body(self, answer: Any) -> bytes | None:
        """The unpacked body; `None` as soon as the packed or the unpacked bytes exceed the limit."""
        coding = answer.headers.get("content-encoding", "").strip().lower()
        if coding not in {"", "identity", "gzip", "x-gzip"}:
            raise ExchangeError(f"it is packed as {one_line(coding, 80)!r}, which was not asked for")
        gzip = zlib.decompressobj(_GZIP) if "gzip" in coding else None
        body, received = bytearray(), 0
        async for chunk in answer.aiter_raw():
            received += len(chunk)
            if received > self._max_bytes:
                return None
            if gzip is None:
                body += chunk
            elif not await self._unpack(gzip, chunk, body):
                return None
        if gzip is not None and received and not gzip.eof:
            raise ExchangeError("it ends in the middle")
        return bytes(body)

    async def _unpack(self, gzip: "zlib._Decompress", chunk: bytes, body: bytearray) -> bool:
        """Unpack a chunk into `body`; false if that becomes too large."""
        try:
            while chunk and not gzip.eof:
                body += gzip.decompress(chunk, _CHUNK_BYTES)
                chunk = gzip.unconsumed_tail
                if len(body) > self._max_bytes:
                    return False
                await anyio.lowlevel.checkpoint()
        except zlib.error as error:
            raise ExchangeError("it is packed in a way that cannot be undone") from error
        if chunk or gzip.unused_data:
            raise ExchangeError("there is more behind its end")
        return True


def _make_tls() -> ssl.SSLContext:
    import httpx  # noqa: PLC0415 - as above

    return httpx.create_ssl_context()


def _describe(error: Exception) -> str:
    """What happened, without an address and without anything that was sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"its certificate is not accepted ({cause.reason or type(cause).__name__})"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return f"the connection failed ({type(error).__name__})"

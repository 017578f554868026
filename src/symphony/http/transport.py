"""Sends requests over the network. This is the only module that imports httpx.

Bodies are limited in size and time before and after decompression.
"""

import os
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel

from symphony import to_thread
from symphony.domain import one_line
from symphony.http.proxies import EnvironmentVariableError, Proxy, check_certificates, proxy_for

CONNECT_S = 10.0
READ_S = 30.0
TOTAL_S = 60.0
MAX_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_PROXY_LOGIN = 407
# Messages by the error numbers of OpenSSL (X509_V_ERR_…).
_UNKNOWN = "is of an authority that is not known here; SSL_CERT_FILE may name a file with it"
_CERTIFICATES = {
    9: "is not valid yet",
    10: "has expired",
    18: _UNKNOWN,
    19: _UNKNOWN,
    20: _UNKNOWN,
    62: "is for another host",
    64: "is for another address",
}


class ExchangeError(Exception):
    """No complete answer. The text follows "did not answer: " and contains no address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawResponse:
    """A raw answer: header names are lower-case; `content` is `None` if it was too large."""

    status: int
    headers: Mapping[str, str]
    content: bytes | None


class Send(Protocol):
    """Sends one request."""

    async def __call__(
        self, method: str, address: str, headers: Mapping[str, str], content: bytes | None
    ) -> RawResponse:
        """Send and receive.

        Raises:
            ExchangeError: no complete answer; the server may still have carried out the request.
        """
        ...


class Transport(Protocol):
    """Sends requests. Tests use an in-memory server."""

    def session(self, base: str) -> AbstractAsyncContextManager[Send]:
        """Connections to one host, closed at the end. Redirects are not followed."""
        ...


class HttpxTransport:
    """Uses httpx, with the proxies and certificates of the environment.

    It imports httpx at the first request, so that the program starts fast. The pages of one listing share the
    connections of a session; servers close idle connections before the next poll anyway.
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
        import httpx  # noqa: PLC0415 - imported at the first request
        from socksio import SOCKSError  # noqa: PLC0415 - as above

        try:
            proxy = proxy_for(base, os.environ)
            way = _make_way(proxy)
            tls = await self._tls_for(base)
        except EnvironmentVariableError as error:
            yield _failing(str(error))
            return
        async with httpx.AsyncClient(
            timeout=httpx.Timeout(self._read_s, connect=self._connect_s),
            verify=tls,
            follow_redirects=False,
            trust_env=False,
            proxy=way,
        ) as client:

            async def send(
                method: str, address: str, headers: Mapping[str, str], content: bytes | None
            ) -> RawResponse:
                sent = {**headers, "accept-encoding": "gzip"}
                try:
                    with anyio.fail_after(self._total_s):
                        async with client.stream(method, address, headers=sent, content=content) as answer:
                            if proxy and answer.status_code == _PROXY_LOGIN:
                                raise ExchangeError(_wants_login(proxy))
                            return RawResponse(
                                status=answer.status_code,
                                headers={name.lower(): value for name, value in answer.headers.items()},
                                content=await self._body(answer),
                            )
                except TimeoutError as error:
                    raise ExchangeError(f"no complete answer within {self._total_s:g} seconds") from error
                except httpx.ConnectTimeout as error:
                    reason = f"no connection within {self._connect_s:g} seconds"
                    raise ExchangeError(_with_way(reason, proxy)) from error
                except httpx.TimeoutException as error:
                    raise ExchangeError(f"silence for {self._read_s:g} seconds") from error
                except httpx.ProxyError as error:
                    raise ExchangeError(_describe_proxy(error, proxy)) from error
                except (httpx.HTTPError, httpx.InvalidURL, SOCKSError, ValueError) as error:
                    raise ExchangeError(_with_way(_describe(error), proxy)) from error

            yield send

    async def _tls_for(self, base: str) -> ssl.SSLContext:
        """Certificates are read, which takes long, when they are needed first."""
        if urlsplit(base).scheme == "http":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._tls is None:
            self._tls = await to_thread.run_sync(_make_tls)
        return self._tls

    async def _body(self, answer: Any) -> bytes | None:
        """The decompressed body; `None` as soon as compressed or decompressed bytes exceed the limit."""
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
        """Decompress a chunk into `body`; false if that becomes too large."""
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


def _failing(problem: str) -> Send:
    """A `Send` that fails each request, so that a bad variable is reported like every other failure."""

    async def send(
        method: str, address: str, headers: Mapping[str, str], content: bytes | None
    ) -> RawResponse:
        del method, address, headers, content
        raise ExchangeError(problem)

    return send


def _make_way(proxy: Proxy | None) -> Any:
    import httpx  # noqa: PLC0415 - as above

    try:
        return proxy and httpx.Proxy(proxy.url)
    except (httpx.InvalidURL, ValueError) as error:
        variable = proxy.variable if proxy else ""
        raise EnvironmentVariableError(f"{variable} has an invalid address") from error


def _make_tls() -> ssl.SSLContext:
    import httpx  # noqa: PLC0415 - as above

    check_certificates(os.environ)
    return httpx.create_ssl_context()


def _with_way(reason: str, proxy: Proxy | None) -> str:
    return f"{reason}, by the proxy of {proxy.variable}" if proxy else reason


def _wants_login(proxy: Proxy) -> str:
    return f"the proxy of {proxy.variable} wants another login (407)"


def _describe_proxy(error: Exception, proxy: Proxy | None) -> str:
    """The answer of a proxy, without its own words, which may repeat the login."""
    if proxy is None:
        return _describe(error)
    status = str(error).partition(" ")[0]
    if status == str(_PROXY_LOGIN) or str(error) == "Invalid username/password":
        return _wants_login(proxy)
    answered = f"with {status}" if status.isdigit() else "with a refusal"
    return f"the proxy of {proxy.variable} answered {answered}"


def _describe(error: Exception) -> str:
    """What happened, without an address and without anything that was sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code in _CERTIFICATES:
            return f"its certificate {_CERTIFICATES[cause.verify_code]}"
        if isinstance(cause, ssl.SSLError):
            return f"its certificate is not accepted ({cause.reason or type(cause).__name__})"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return f"the connection failed ({type(error).__name__})"

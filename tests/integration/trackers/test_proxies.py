"""Proxies and certificates of the environment, with real proxies and TLS servers."""

import gc
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from symphony.http import ExchangeError, HttpxTransport, RawResponse

pytestmark = pytest.mark.asyncio

HOST = "service.invalid"  # only the proxy knows where it is
LOGIN = "Basic dXNlcjpzZWNyZXQtcGFzc3dvcmQ="  # user:secret-password
PASSWORD = "secret-password"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def certificate(folder: Path, *, host: str = HOST, ends_in: timedelta = timedelta(days=1)) -> Path:
    """A certificate that is its own authority, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=9))
        .not_valid_after(now + ends_in)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "certificate.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


async def pump(source: SocketStream, target: SocketStream) -> None:
    try:
        async for data in source:
            await target.send(data)
        await target.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        return


class World:
    """A TLS server and a proxy in front of it that speaks both HTTP and SOCKS5."""

    def __init__(self, pem: Path, login: str | None) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(pem)
        self._login = login
        self.asked: list[bytes] = []
        self.server = self.proxy = 0

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            try:
                tls = await TLSStream.wrap(
                    stream, server_side=True, ssl_context=self._tls, standard_compatible=False
                )
                await tls.receive()
                await tls.send(ANSWER)
            except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream):
                return

    async def pass_on(self, stream: SocketStream) -> None:
        async with stream:
            first = await stream.receive()
            if first[0] == 5:
                await stream.send(b"\5\0")
                self.asked.append(await stream.receive())
                await stream.send(b"\5\0\0\1\0\0\0\0\0\0")
            else:
                self.asked.append(first)
                if self._login and self._login.encode() not in first:
                    head = b"HTTP/1.1 407 secret-password\r\ncontent-length: 0\r\n\r\n"
                    await stream.send(head)
                    return
                if not first.startswith(b"CONNECT"):
                    await stream.send(ANSWER)
                    return
                await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
            async with (
                await anyio.connect_tcp("127.0.0.1", self.server) as far,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(pump, stream, far)
                tasks.start_soon(pump, far, stream)


@asynccontextmanager
async def world(pem: Path, login: str | None = None) -> AsyncIterator[World]:
    made = World(pem, login)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as server,
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as proxy,
        anyio.create_task_group() as tasks,
    ):
        made.server = server.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
        made.proxy = proxy.extra(SocketAttribute.local_port)  # noqa: S610 - as above
        tasks.start_soon(server.serve, made.serve)
        tasks.start_soon(proxy.serve, made.pass_on)
        yield made
        tasks.cancel_scope.cancel()


async def get(address: str = f"https://{HOST}/x") -> RawResponse:
    async with HttpxTransport().session(address) as send:
        return await send("GET", address, {}, None)


async def refused(address: str = f"https://{HOST}/x") -> str:
    with pytest.raises(ExchangeError) as caught:
        await get(address)
    told = str(caught.value)
    assert PASSWORD not in told
    assert "\n" not in told
    return told


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTPS_PROXY", "http://user:secret-password@127.0.0.1:{}"),
        ("https_proxy", "user:secret-password@127.0.0.1:{}"),
        ("ALL_PROXY", "socks5://127.0.0.1:{}"),
        ("all_proxy", "socks5h://127.0.0.1:{}"),
    ],
)
async def test_a_service_is_reached_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    monkeypatch.setenv("NO_PROXY", "localhost,[::1],::1,10.0.0.0/8,fd00::/8,other.invalid")
    async with world(pem, LOGIN) as made:
        monkeypatch.setenv(variable, value.format(made.proxy))
        assert (await get()).content == b"hi"
    assert HOST.encode() in made.asked[0]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("login", ["", "user:secret-password2@"])
async def test_a_proxy_that_wants_a_login_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, login: str
) -> None:
    async with world(certificate(tmp_path), LOGIN) as made:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://{login}127.0.0.1:{made.proxy}")
        told = await refused(f"{scheme}://{HOST}/x")
    assert "407" in told
    assert f"{scheme}_proxy" in told


@pytest.mark.parametrize(
    ("host", "days", "known", "words"),
    [
        (HOST, -1, "known", "expired"),
        (HOST, 1, "", "authority"),
        ("other.invalid", 1, "known", "another host"),
    ],
)
async def test_a_certificate_that_is_not_accepted_is_told_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, days: int, known: str, words: str
) -> None:
    pem = certificate(tmp_path, host=host, ends_in=timedelta(days=days))
    if known:
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    async with world(pem) as made:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{made.proxy}")
        assert words in await refused()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTPS_PROXY", "socks4://user:secret-password@127.0.0.1:1"),
        ("HTTPS_PROXY", "http://user:secret-password@127.0.0.1:port"),
        ("HTTPS_PROXY", "http://user:secret-password@[::1"),
        ("HTTPS_PROXY", "http://user:secret-password@"),
        ("HTTPS_PROXY", "http://user:secret-password@ho st:1"),
        ("ALL_PROXY", "socks5://user:secret-password@127.0.0.1:1"),
        ("HTTPS_PROXY", "http://user:secret-password@127.0.0.1:1"),
        ("SSL_CERT_FILE", "/does/not/exist"),
        ("SSL_CERT_FILE", "/"),
        ("SSL_CERT_FILE", __file__),
        ("SSL_CERT_DIR", "/does/not/exist"),
    ],
)
async def test_a_variable_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert variable in await refused()


# httpcore leaves the connection to the garbage collector then.
@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_proxy_that_does_not_speak_socks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as proxy,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(proxy.serve, handle)
        port = proxy.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
        monkeypatch.setenv("ALL_PROXY", f"socks5://127.0.0.1:{port}")
        assert "ALL_PROXY" in await refused()
        tasks.cancel_scope.cancel()
    gc.collect()

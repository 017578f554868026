"""The wire itself, against a server on the loopback interface that behaves as badly as it is told to."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from symphony.domain import Category
from symphony.http import (
    ExchangeError,
    Http,
    HttpxTransport,
    Purpose,
    RateLimiters,
    Request,
    ServiceProfile,
)
from symphony.http.exchange import Flow, HttpResponse
from symphony.trackers.base import TrackerError

pytestmark = pytest.mark.asyncio

SECRET = "secret-0123456789"
SERVICE = ServiceProfile(
    name="Service", credential_key="tracker.provider.token", scope_key="tracker.provider.repo"
)
Handler = Callable[[SocketStream], Coroutine[Any, Any, None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server on a free port; its address."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's

        async def handle(stream: SocketStream) -> None:
            async with stream:
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream):  # the client had enough
                    await handler(stream)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, handle)
            yield f"http://127.0.0.1:{port}/api"
            tasks.cancel_scope.cancel()


def answer(body: bytes, *, status: str = "200 OK", headers: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\ncontent-length: {size}\r\nconnection: close\r\n{headers}\r\n"
    return head.encode() + body


def saying(data: bytes, heard: list[bytes] | None = None) -> Handler:
    async def handle(stream: SocketStream) -> None:
        said = await stream.receive()
        if heard is not None:
            heard.append(said)
        await stream.send(data)

    return handle


async def no_sleep(seconds: float) -> None:
    del seconds
    await anyio.lowlevel.checkpoint()


def http(base: str, **limits: Any) -> Http:
    return Http(
        base=base,
        service=SERVICE,
        credential=SECRET,
        headers={"authorization": f"Bearer {SECRET}"},
        transport=HttpxTransport(**limits),
        rate_limiters=RateLimiters(),
        sleep=no_sleep,
    )


def one(request: Request) -> Flow[HttpResponse]:
    return (yield request)


async def ask(base: str, request: Request | None = None, **limits: Any) -> HttpResponse:
    flow = one(request or Request(endpoint="/x", path="/x"))
    return await http(base, **limits).run(flow, purpose=Purpose.POLL)


async def test_a_request_is_made_and_its_answer_read() -> None:
    heard: list[bytes] = []
    async with serving(saying(answer(b'{"a": [1]}', headers="ETag: W/1\r\n"), heard)) as base:
        request = Request(
            endpoint="/x/{}", method="POST", path="/x/1", query=[("q", "a b&c")], body={"é": 1}, reads=True
        )
        found = await ask(base, request)
    assert (found.status, found.body, found.headers["etag"]) == (200, {"a": [1]}, "W/1")
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api/x/1?q=a+b%26c HTTP/1.1")
    assert b"authorization: Bearer " + SECRET.encode() in head
    assert b"user-agent: symphony-orchestrator" in head.lower()
    assert body in {'{"é":1}'.encode(), b""}


async def test_an_answer_without_end_is_refused() -> None:
    async with serving(saying(answer(b"[" + b"1," * 200_000 + b"1]"))) as base:
        with pytest.raises(TrackerError) as caught:
            await ask(base, max_bytes=10_000)
    assert caught.value.failure.category is Category.TRACKER_RESPONSE
    assert caught.value.failure.hint == "narrow tracker.provider.repo"


async def test_half_an_answer_is_no_answer() -> None:
    async with serving(saying(answer(b'{"a": ', length=500))) as base:
        with pytest.raises(TrackerError) as caught:
            await ask(base)
    assert caught.value.failure.category is Category.TRACKER_REQUEST


async def test_nobody_there_is_told_without_the_address_of_the_request() -> None:
    async with serving(saying(b"")) as base:
        pass
    with pytest.raises(TrackerError) as caught:
        await ask(base, Request(endpoint="/x/{}", path="/x/confidential"))
    failure = caught.value.failure
    assert failure.category is Category.TRACKER_REQUEST
    assert "confidential" not in failure.message
    assert SECRET not in repr(caught.value.__cause__)


async def test_silence_ends() -> None:
    async def silent(stream: SocketStream) -> None:
        await stream.receive()
        await anyio.sleep_forever()

    async with serving(silent) as base:
        limits: dict[str, Any]
        for limits in ({"read_s": 0.05}, {"total_s": 0.05}):
            with pytest.raises(TrackerError) as caught:
                await ask(base, None, **limits)
            assert caught.value.failure.category is Category.TRACKER_REQUEST


async def test_an_answer_that_trickles_ends() -> None:
    async def trickle(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(answer(b"", length=1_000_000))
        while True:
            await stream.send(b" ")
            await anyio.lowlevel.checkpoint()

    async with serving(trickle) as base:
        with pytest.raises(TrackerError) as caught:
            await ask(base, total_s=0.2, max_bytes=10_000_000)
    assert caught.value.failure.category in {Category.TRACKER_REQUEST, Category.TRACKER_RESPONSE}


async def test_what_is_no_http_is_no_answer() -> None:
    async with serving(saying(b"SSH-2.0-OpenSSH_9.9\r\n")) as base:
        with pytest.raises(TrackerError) as caught:
            await ask(base)
    assert caught.value.failure.category is Category.TRACKER_REQUEST


async def test_a_redirect_is_followed_on_the_same_host_only() -> None:
    heard: list[bytes] = []

    async def moved(stream: SocketStream) -> None:
        said = await stream.receive()
        heard.append(said)
        if b"GET /api/x " in said:
            await stream.send(answer(b"", status="301 Moved", headers="location: /api/y\r\n"))
        elif b"GET /api/y " in said:
            await stream.send(answer(b'"here"'))
        else:
            where = "location: http://127.0.0.2:9/api/y\r\n"
            await stream.send(answer(b"", status="302 Found", headers=where))

    async with serving(moved) as base:
        assert (await ask(base)).body == "here"
        for request in (
            Request(endpoint="/z", path="/z"),
            Request(endpoint="/x", path="/x", method="POST", body={}),
        ):
            with pytest.raises(TrackerError) as caught:
                await ask(base, request)
            assert caught.value.failure.status == 302
    assert len(heard) == 4


async def test_an_address_on_another_host_is_never_asked() -> None:
    heard: list[bytes] = []
    async with serving(saying(answer(b"1"), heard)) as base:
        for path in ("http://127.0.0.2/x", base.replace("/api", "").replace("http", "https") + "/x"):
            with pytest.raises(TrackerError):
                await ask(base, Request(endpoint="/x", path=path))
    assert heard == []


async def test_exchanges_fail_with_words_of_ours() -> None:
    async with HttpxTransport().session("http://127.0.0.1:1") as send:
        with pytest.raises(ExchangeError) as caught:
            await send("GET", "http://127.0.0.1:1/x?secret=1", {}, None)
    assert "secret" not in str(caught.value)

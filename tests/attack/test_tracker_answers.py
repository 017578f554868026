"""Answers of a tracker, or of what stands in the way to it, cost a typed failure, and a bounded memory."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Thread
from typing import Any

import anyio
import pytest
from typing_extensions import override

from attack.conftest import Rounds
from contract.desk import Desk, remote_kind
from contract.desks import DESKS
from contract.vendor import Clock
from symphony.domain import Category
from symphony.http import (
    Http,
    HttpxTransport,
    Purpose,
    RateLimiters,
    RawResponse,
    Request,
    Send,
    ServiceProfile,
)
from symphony.http.exchange import Flow, HttpResponse
from symphony.trackers.base import TrackerError
from symphony.trackers.remote import RemoteTracker

SERVICE = ServiceProfile(
    name="Service", credential_key="tracker.provider.token", scope_key="tracker.provider.repo"
)
MIB = 1024 * 1024
BOMB = 128 * MIB


@contextmanager
def answering(body: bytes, *codings: str, heard: list[str] | None = None) -> Iterator[str]:
    """A server on this machine that answers everything with one body, said to be packed in these ways."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if heard is not None:
                heard.append(self.headers.get("accept-encoding", ""))
            self.send_response(200)
            for coding in codings:
                self.send_header("content-encoding", coding)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(body)

        @override
        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def ask(base: str) -> HttpResponse:
    async def no_sleep(seconds: float) -> None:
        del seconds
        await anyio.lowlevel.checkpoint()

    def one() -> Flow[HttpResponse]:
        return (yield Request(endpoint="/x", path="/x"))

    http = Http(
        base=base,
        service=SERVICE,
        credential="secret-0123456789",
        headers={},
        transport=HttpxTransport(),
        rate_limiters=RateLimiters(),
        sleep=no_sleep,
    )
    return await http.run(one(), purpose=Purpose.POLL)


async def failing(base: str) -> tuple[Category, float]:
    """What asking ends with, and the most memory that it took, in MiB."""
    tracemalloc.start()
    try:
        with pytest.raises(TrackerError) as caught:
            await ask(base)
        return caught.value.failure.category, tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def packed(size: int, layers: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()
    for _ in range(layers - 1):
        body = gzip.compress(body, mtime=0)
    return body


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("codings", [("gzip, gzip",), ("gzip", "gzip"), ("gzip,gzip,gzip",)])
async def test_a_body_that_is_packed_more_than_once_is_not_unpacked(codings: Sequence[str]) -> None:
    with answering(packed(BOMB, 2), *codings) as base:
        category, most = await failing(base)
    assert category is Category.TRACKER_REQUEST
    assert most < 16, f"{most:.0f} MiB"


@pytest.mark.asyncio
async def test_a_body_that_unpacks_to_more_than_fits_is_given_up_in_time() -> None:
    with answering(packed(BOMB, 1), "gzip") as base:
        category, most = await failing(base)
    assert category is Category.TRACKER_RESPONSE
    assert most < 72, f"{most:.0f} MiB"


@pytest.mark.asyncio
@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "compress", "rot13\u00e9"])
async def test_a_coding_that_nobody_asked_for_is_refused(coding: str) -> None:
    with answering(zlib.compress(b"{}"), coding) as base:
        assert (await failing(base))[0] is Category.TRACKER_REQUEST


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "body", [b"no gzip at all", gzip.compress(b'{"a": 1}', mtime=0)[:-6], 2 * gzip.compress(b"{}", mtime=0)]
)
async def test_a_body_that_is_packed_wrongly_is_no_answer(body: bytes) -> None:
    with answering(body, "gzip") as base:
        assert (await failing(base))[0] is Category.TRACKER_REQUEST


@pytest.mark.asyncio
@pytest.mark.parametrize("codings", [(), ("identity",), ("gzip",), ("GZip",)])
async def test_plain_and_packed_answers_are_read(codings: Sequence[str]) -> None:
    told = {"a": list(range(200_000))}
    body = json.dumps(told).encode()
    heard: list[str] = []
    is_packed = any(coding.lower() == "gzip" for coding in codings)
    with answering(gzip.compress(body, mtime=0) if is_packed else body, *codings, heard=heard) as base:
        assert (await ask(base)).body == told
    assert heard == ["gzip"]


# --- answers of wrong types, sizes and depths, to every adapter --------------------------------------------


class Spoiled:
    """A service whose answers are changed at random on their way."""

    def __init__(self, desk: Desk, random: Random) -> None:
        self._vendor, self._random = desk.vendor, random

    @asynccontextmanager
    async def session(self, base: str) -> AsyncIterator[Send]:
        async with self._vendor.session(base) as send:

            async def spoiled(
                method: str, address: str, headers: Mapping[str, str], content: bytes | None
            ) -> RawResponse:
                with suppress(AssertionError, KeyError, ValueError):  # the service cannot make sense of it
                    reply = await send(method, address, headers, content)
                    return RawResponse(
                        status=reply.status, headers=reply.headers, content=spoil(reply.content, self._random)
                    )
                return RawResponse(status=200, headers={}, content=spoil(b"{}", self._random))

            yield spoiled


def spoil(content: bytes | None, random: Random) -> bytes | None:
    if random.random() < 0.1:
        return random.choice([b"[" * 100_000, b"\xff\xfe{", b'{"a":' * 5_000, b"", b"<html>", None])
    try:
        body = json.loads(content or b"null")
    except ValueError:
        return content
    for _ in range(random.randrange(3)):
        body = changed(body, random)
    return json.dumps(body).encode()


def changed(value: Any, random: Random) -> Any:
    """The value with something in it replaced."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        return {**value, key: changed(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.85:
        place = random.randrange(len(value))
        return [*value[:place], changed(value[place], random), *value[place + 1 :]]
    return anything(random, 3)


TEXTS = ["", " ", "a\nb", "x" * 5_000, "\u202e\x1b[2J", "\ud800", "1", "2026-01-01T00:00:00Z"]
PLAIN = [None, True, False, 0, -1, 2**53, 2**80, 10**400, -(10**4_299), 0.5, 1e308, *TEXTS]
NAMES = ("id", "name", "nodes", "state", "number", "data", "errors", "title", "body")


def anything(random: Random, depth: int) -> Any:
    shape = random.randrange(4) if depth else 0
    if shape == 1:
        return [anything(random, depth - 1) for _ in range(random.randrange(4))]
    if shape == 2:
        return {random.choice(NAMES): anything(random, depth - 1) for _ in range(random.randrange(4))}
    return random.choice(PLAIN)


def tracker_on(desk: Desk, random: Random) -> RemoteTracker:
    return remote_kind(desk.kind).connect(
        desk.settings(),
        desk.environment(),
        transport=Spoiled(desk, random),
        rate_limiters=RateLimiters(),
        now_ms=Clock().now_ms,
        sleep=desk.clock.sleep,
    )


@pytest.mark.parametrize("kind", DESKS)
def test_no_answer_raises_anything_but_a_tracker_error(kind: str, rounds: Rounds) -> None:
    async def once(random: Random) -> None:
        desk = DESKS[kind]()
        labels = ["a\nb"] if "labels" in desk.can else []
        ids = [desk.put(number, labels=labels) for number in (1, 2)]
        tracker = tracker_on(desk, random)
        attempts = (
            lambda: tracker.fetch_issues_by_states([desk.todo, desk.done]),
            lambda: tracker.fetch_issues_by_ids(ids),
            lambda: tracker.list_comments(ids[0]),
            lambda: tracker.who_may_answer(ids[0], ["1", "x"]),
            lambda: tracker.put_comment(ids[0], "text", key="0" * 32, comment_id=None),
            lambda: tracker.move_issue(ids[0], desk.doing),
            tracker.account_info,
        )
        for attempt in attempts:
            with suppress(TrackerError):
                await attempt()

    for random in rounds(12):
        anyio.run(once, random)

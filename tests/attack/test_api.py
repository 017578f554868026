"""Whoever asks the daemon, and whoever pretends to be one, harms nobody else.

A Host header is a name or an address of this machine and nothing besides, a head is small, and a command
waits for an answer no longer than its limit, however it comes.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from random import Random

import pytest

from harness.asking import BEARER, LOOPBACK, FakeOperator, asking
from symphony.api.http import MAX_HEAD_BYTES
from symphony.cli.client import Client
from symphony.cli.endpoint import Endpoint, UnreachableError

Rounds = Callable[..., Iterator[Random]]


# --- who asks --------------------------------------------------------------------------------------------


async def status(host: str, **headers: str) -> tuple[int, str | None]:
    async with asking(FakeOperator(), LOOPBACK) as client:
        response = await client.get("/api/v1/state", headers={**BEARER, **headers, "host": host})
        error = response.json().get("error")
        return response.status_code, None if error is None else error["code"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "host",
    [
        "[::1]evil",
        "[::1].evil.com:80",
        "localhost:evil.com",
        "localhost:80:80",
        "localhost:80evil",
        "localhost:123456",
        "[localhost]",
        "[127.0.0.1",
        "::1",
        "evil@localhost",
        "localhost/",
        "localhost.",
        "",
    ],
)
async def test_a_host_that_only_begins_like_ours_is_refused(host: str) -> None:
    assert await status(host) == (403, "forbidden_host")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:80", "localhost:", "127.0.0.1:65535", "[::1]", "[::1]:1"]
)
async def test_every_way_to_write_our_own_name_passes(host: str) -> None:
    assert await status(host) == (200, None)


@pytest.mark.asyncio
async def test_whatever_is_hung_on_our_name_is_another_name(rounds: Rounds) -> None:
    for random in rounds(60):
        name = random.choice(["localhost", "127.0.0.1", "[::1]", "::1"])
        more = "".join(random.choices("abz.-:[]@/\\,;%0", k=random.randrange(1, 12)))
        host = random.choice([name + more, more + name])
        code, _ = await status(host)
        assert code == 403 or is_ours_with_a_port(host), host


def is_ours_with_a_port(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return name in {"localhost", "127.0.0.1", "[::1]"} and bool(colon) and (not port or port.isdigit())


@pytest.mark.asyncio
async def test_a_head_above_the_documented_size_is_refused() -> None:
    assert await status("localhost", x="x" * (MAX_HEAD_BYTES - 1_000)) == (200, None)
    assert await status("localhost", x="x" * (MAX_HEAD_BYTES + 1)) == (431, "head_too_large")


# --- who answers -----------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\n"
MOST = 400


class FakeDaemon:
    """Says one thing after the other, slowly and at most `MOST` of them; knows whether it was hung up on."""

    def __init__(self, path: Path, said: Iterator[bytes]) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._said = said
        self.hung_up = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        rest = threading.Event()
        try:
            connected, _ = self._listener.accept()
            with connected:
                connected.recv(65_536)
                for _, piece in zip(range(MOST), self._said, strict=False):
                    connected.sendall(piece)
                    rest.wait(0.01)
        except OSError:
            self.hung_up = True

    def end(self) -> None:
        """Wait until it has nothing more to say; where it was not asked in time, nobody waited either."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize(
    "said",
    [
        chain([HEAD], repeat(b"x: y\r\n")),
        repeat(b"H"),
        chain([HEAD + b"x: "], repeat(b"y")),
        repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
        chain([HEAD + b"transfer-encoding: chunked\r\n\r\n"], repeat(b"1\r\nx\r\n")),
        chain([HEAD + b"content-length: 100000\r\n\r\n"], repeat(b" ")),
    ],
    ids=["headers", "status line", "one header", "nothing but continue", "chunks", "body"],
)
def test_a_daemon_that_drips_holds_nobody_up(tmp_path: Path, said: Iterator[bytes]) -> None:
    path = tmp_path / "s"
    daemon = FakeDaemon(path, said)
    endpoint = Endpoint(socket=path, host=None, port=None, pid=os.getpid(), started=None)
    client = Client(endpoint, answer_s=0.3)
    with pytest.raises(UnreachableError):
        client.state()
    daemon.end()
    assert daemon.hung_up


@pytest.mark.parametrize(
    "said",
    [
        HEAD + b"x: " + b"y" * 2_000_000 + b"\r\n\r\n{}",
        HEAD + b"\r\n" + b"[" * 100_000,
        HEAD + b"\r\n" + json.dumps({"health": {}}).encode() + b" " * 2_000_000,
        HEAD + b"content-encoding: gzip\r\n\r\n\x1f\x8b",
    ],
    ids=["a head of megabytes", "deep", "a body of megabytes", "not what was asked for"],
)
def test_an_answer_beyond_its_bounds_is_an_error_and_no_more(tmp_path: Path, said: bytes) -> None:
    path = tmp_path / "s"
    daemon = FakeDaemon(path, iter([said]))
    endpoint = Endpoint(socket=path, host=None, port=None, pid=os.getpid(), started=None)
    client = Client(endpoint, max_bytes=1_000_000)
    with pytest.raises(UnreachableError):
        client.state()
    daemon.end()

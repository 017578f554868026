"""Logs of checks over real connections: they lie on another host, and are long."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typing_extensions import override

from symphony.domain import Check, CheckState, ServiceError
from symphony.http import RateLimiters
from symphony.services.github.pulls import GithubForge

pytestmark = pytest.mark.asyncio
TOKEN = "ghp_0123456789abcdefghijklmnop"
CHECK = Check(
    id="7", name="test", state=CheckState.FAILED, sha="a" * 40, log="/repos/o/r/actions/jobs/7/logs"
)
MIB = 1024 * 1024

Answer = Callable[[], tuple[int, Mapping[str, str], int]]
"""Status, headers, and how many bytes of log follow before its last line."""


@contextmanager
def host(answer: Answer) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """A server on the loopback interface, and the headers of what it was asked."""
    asked = list[Mapping[str, str]]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append({name.lower(): value for name, value in self.headers.items()})
            status, headers, length = answer()
            last = b"AssertionError: 1 != 2\n"
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(length + len(last)))
            self.end_headers()
            line = b"x" * 1023 + b"\n"
            try:
                for _ in range(length // len(line)):
                    self.wfile.write(line)
                self.wfile.write(last)
            except ConnectionError:
                pass  # it is too long for who asked

        @override
        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("size", "is_read"), [(50 * MIB, True), (65 * MIB, False)])
async def test_a_log_of_50_mb_on_another_host_is_read_to_its_end_without_the_token(
    size: int, *, is_read: bool
) -> None:
    """As GitHub Enterprise Server, which keeps its logs in the storage of somebody else."""
    with (
        host(lambda: (200, {}, size)) as (storage, asked_there),
        host(lambda: (302, {"location": f"{storage}/log?sig=abc"}, 0)) as (server, asked_here),
    ):
        forge = GithubForge("o/r", TOKEN, url=f"{server}/api/v3", rate_limiters=RateLimiters())
        if is_read:
            tail = await forge.log_tail(CHECK)
            assert tail is not None
            assert tail.splitlines()[-1] == "AssertionError: 1 != 2"
            assert len(tail.splitlines()) == 100
        else:
            with pytest.raises(ServiceError, match="more than 64 MiB"):
                await forge.log_tail(CHECK)
    assert [headers["authorization"] for headers in asked_here] == [f"Bearer {TOKEN}"]
    (headers,) = asked_there
    assert TOKEN not in str(headers)
    assert "authorization" not in headers

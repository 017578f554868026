"""A loopback server that receives notifications, and answers as a test likes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from harness.project import until

__all__ = ["HANG", "Receiver", "receiving"]

HANG: tuple[int, dict[str, str]] = (0, {})
"""An answer that never comes."""


@dataclass
class Receiver:
    """`answers` are statuses with headers, used up one by one; then 200."""

    port: int = 0
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/K7aPzQ91xWv3"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """The bodies once there are that many."""
        return until(lambda: self.bodies if len(self.requests) >= count else None, lambda: str(self.bodies))


@contextmanager
def receiving(*answers: tuple[int, dict[str, str]]) -> Iterator[Receiver]:
    """A receiver that listens until the end."""
    receiver = Receiver(answers=[*answers])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.append((self.path, headers, body))
            status, extra = receiver.answers.pop(0) if receiver.answers else (200, {})
            if status == 0:
                receiver.release.wait()
                return
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        @override
        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.release.set()
        server.shutdown()
        server.server_close()
        thread.join()

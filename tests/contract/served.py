"""A service of the contract on the loopback interface, for a daemon that is a process of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import urlsplit

from typing_extensions import override

from contract.vendor import Vendor
from symphony.http import ExchangeError

_BAD_GATEWAY = 502


class Service(Protocol):
    """What is served: a `Desk`, or less."""

    @property
    def vendor(self) -> Vendor:
        """The service itself."""
        ...

    def provider(self) -> dict[str, Any]:
        """The settings of `tracker.provider` that lead to its `base`."""
        ...


@contextmanager
def served(desk: Service) -> Iterator[dict[str, Any]]:
    """Serve the desk's service; the settings of `tracker.provider` that lead there.

    What the service refuses to be asked (`AssertionError`) is raised at the end.
    """
    vendor = desk.vendor
    parts = urlsplit(vendor.base)
    origin = f"{parts.scheme}://{parts.netloc}"
    wrong: list[AssertionError] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(vendor, origin, wrong))
    here = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    provider = desk.provider()
    try:
        yield {
            key: value.replace(origin, here) if isinstance(value, str) else value
            for key, value in provider.items()
        }
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    if wrong:
        raise wrong[0]


def _handler(vendor: Vendor, origin: str, wrong: list[AssertionError]) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", 0))) or None
            headers = {name.lower(): value for name, value in self.headers.items()}
            here = f"http://{self.headers['host']}"
            try:
                with lock:
                    given = vendor.exchange(self.command, f"{origin}{self.path}", headers, content)
            except (ExchangeError, AssertionError) as error:
                if isinstance(error, AssertionError):
                    wrong.append(error)
                self.send_error(_BAD_GATEWAY)
                return
            body = given.content.replace(origin.encode(), here.encode())
            self.send_response(given.status)
            for name, value in {**vendor.extra_headers, **given.headers}.items():
                self.send_header(name, value.replace(origin, here))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

        @override
        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    return Handler

"""A receiver of traces on the loopback interface: it takes what an OTLP exporter sends and decodes it."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from typing_extensions import override

CONTENT_TYPE = "application/x-protobuf"


class Received:
    """What arrived so far; `status` is the answer to the next requests."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self._changed = threading.Condition()

    def add(self, headers: dict[str, str], body: bytes) -> None:
        with self._changed:
            self.headers.append(headers)
            self.bodies.append(body)
            self._changed.notify_all()

    def wait_for_request(self, number: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.bodies) >= number, timeout=30), self.bodies

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def tree(self) -> dict[str, list[str]]:
        """The names of the spans below each span, by its name; roots are below the empty name."""
        names = {span.span_id: span.name for span in self.spans}
        below: dict[str, list[str]] = {}
        for span in sorted(self.spans, key=lambda one: one.start_time_unix_nano):
            below.setdefault(names.get(span.parent_span_id, ""), []).append(span.name)
        return below


def attributes(span: Span) -> dict[str, str | int | float]:
    values = {one.key: one.value for one in span.attributes}
    return {key: getattr(value, str(value.WhichOneof("value"))) for key, value in values.items()}


@contextmanager
def otlp_receiver() -> Iterator[Received]:
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            status = received.status if self.headers["content-type"] == CONTENT_TYPE else 415
            if status == 200:
                received.add(dict(self.headers), body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        @override
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        received.url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()

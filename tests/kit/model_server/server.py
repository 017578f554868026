"""The HTTP server: records each request and answers with the step of the scenario that it asks for."""

import json
import re
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, assert_never

from typing_extensions import override

from kit.model_server.bodies import BodyError, read_body
from kit.model_server.chat import ChatCompletions
from kit.model_server.gemini import GeminiContent
from kit.model_server.messages import Messages
from kit.model_server.responses import Responses
from kit.model_server.scenario import HARMLESS, Answer, Cut, Hang, HttpError, Reset, Scenario, Step
from kit.model_server.wire_format import Asked, WireFormat

__all__ = ["ModelServer", "Recorded"]

_MARKER = re.compile(r"\[\[([\w.-]+)\]\]")
_WAIT_S = 20.0
_MODELS = {"object": "list", "data": [{"id": "gpt-5.5", "object": "model", "owned_by": "symphony"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A request that asked for an answer; header names are in lower case, `body` is decoded JSON.

    `scenario` is null where no known marker was found; `step` counts from 0.
    """

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    scenario: str | None
    step: int


class ModelServer:
    """Serves `scenarios` on `address` while its context is open; safe to use from any thread.

    `otherwise` answers a text without a known marker, such as the one by which a session goes on.
    `headers` go on every answer (rate limits, for example). Leaving the context releases whatever hangs, ends
    all connections, waits for the server's threads and raises the first error that happened in one.
    """

    def __init__(
        self,
        scenarios: Mapping[str, Scenario] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        otherwise: Scenario = (),
        address: str = "127.0.0.1",
    ) -> None:
        self._scenarios = dict(scenarios or {})
        self._headers = dict(headers or {})
        self._otherwise = otherwise
        self._formats: Sequence[WireFormat] = (
            Responses(),
            Messages(),
            ChatCompletions(),
            GeminiContent(streamed=True),
            GeminiContent(streamed=False),
        )
        self._recorded: list[Recorded] = []
        self._failures: deque[Step | None] = deque()
        self._changed = threading.Condition()
        self.closing = threading.Event()
        self._http = _Http(self, address)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.end_connections()
        self._http.server_close()
        if self._http.errors and value is None:
            raise self._http.errors[0]

    @property
    def base_url(self) -> str:
        """What an agent's configuration takes as the address of the API, without a slash at its end."""
        address, port = self._http.server_address[:2]
        return f"http://{address!s}:{port}/v1"

    def learn(self, name: str, scenario: Scenario) -> None:
        """Serve one more scenario from now on, or another one under a known name."""
        with self._changed:
            self._scenarios[name] = scenario

    def fail(self, *steps: Step | None) -> None:
        """Answer the next requests with these steps, whatever they ask; null is the usual answer."""
        with self._changed:
            self._failures.extend(steps)

    @property
    def requests(self) -> tuple[Recorded, ...]:
        """All requests for an answer so far."""
        with self._changed:
            return tuple(self._recorded)

    def wait_for(self, count: int, timeout_s: float = _WAIT_S) -> tuple[Recorded, ...]:
        """Wait until there were `count` requests, and return all.

        Raises:
            TimeoutError: there were fewer in that time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._recorded) >= count, timeout_s):
                raise TimeoutError(f"{len(self._recorded)} of {count} requests after {timeout_s:g} s")
            return tuple(self._recorded)

    def format_of(self, path: str) -> WireFormat | None:
        """The wire format that serves a path."""
        return next((each for each in self._formats if each.serves(path)), None)

    def take(self, path: str, headers: Mapping[str, str], body: Mapping[str, Any], asked: Asked) -> Step:
        """Record a request and say what answers it."""
        names = [name for name in _MARKER.findall(asked.user_text) if name in self._scenarios]
        name = names[-1] if names else None
        with self._changed:
            self._recorded.append(
                Recorded(path=path, headers=headers, body=body, scenario=name, step=asked.tool_results)
            )
            self._changed.notify_all()
            failure = self._failures.popleft() if self._failures else None
        if failure is not None:
            return failure
        steps = self._otherwise if name is None else self._scenarios[name]
        return steps[asked.tool_results] if asked.tool_results < len(steps) else HARMLESS

    def headers_for(self, step: Answer | HttpError) -> Mapping[str, str]:
        """The headers of every answer and those of this one."""
        return {**self._headers, **step.headers}


class _Http(ThreadingHTTPServer):
    """Keeps its connections, to end them at the close, and its errors, to show them."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, model: ModelServer, address: str) -> None:
        super().__init__((address, 0), _Handler)
        self.model = model
        self.errors: list[BaseException] = []
        self._open: set[socket.socket] = set()

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.errors.append(error)

    def end_connections(self) -> None:
        for connection in tuple(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has ended by itself meanwhile


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: _Http

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: what was asked is in `ModelServer.requests`."""

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        known = self._path.endswith("/models")
        self._json(200 if known else 404, _MODELS if known else _no_such(self._path))

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = json.loads(read_body(headers, self.rfile))
        except (BodyError, ValueError) as error:
            self.close_connection = True
            self._json(400, {"error": {"message": str(error), "type": "invalid_request_error"}})
            return
        wire = self.server.model.format_of(self._path)
        if wire is None:
            self._json(404, _no_such(self._path))
            return
        asked = wire.read(body)
        self._answer(self.server.model.take(self._path, headers, body, asked), wire, asked)

    @property
    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _answer(self, step: Step, wire: WireFormat, asked: Asked) -> None:
        match step:
            case HttpError():
                self._json(step.status, step.body, self.server.model.headers_for(step))
            case Reset():
                self.close_connection = True
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            case Hang(after_start=False):
                self.close_connection = True
                self.server.model.closing.wait()
            case Hang() | Cut():
                self._start_stream({}, wire.opening(asked))
                if isinstance(step, Hang):
                    self.server.model.closing.wait()
            case Answer() if not asked.streamed:
                whole = wire.whole(asked, step)
                self._json(200, whole, self.server.model.headers_for(step))
            case Answer():
                self._start_stream(self.server.model.headers_for(step), wire.opening(asked))
                for chunk in wire.chunks(asked, step):
                    self.server.model.closing.wait(step.delta_ms / 1000)
                    self._send(chunk)
            case _:
                assert_never(step)

    def _start_stream(self, headers: Mapping[str, str], opening: bytes) -> None:
        self.close_connection = True
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", "connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self._send(opening)

    def _send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def _json(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self._send(data)


def _no_such(path: str) -> Mapping[str, Any]:
    return {"error": {"message": f"no such path: {path}", "type": "invalid_request_error"}}

"""A git server on the loopback interface: `git http-backend` behind HTTP, with a login where one is set."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from typing_extensions import override

__all__ = ["GitServer", "git_server"]


@dataclass
class GitServer:
    """A server of the bare repositories below a directory.

    Attributes:
        root: that directory.
        login: `user:password` that it asks for; None lets everybody in.
        port: where it listens.
        elsewhere: the address of another server to which it sends everybody on.
        stalls: `git-receive-pack` or `git-upload-pack`: posts to it get half an answer.
        seen: the values of `Authorization` that came.
    """

    root: Path
    login: str | None
    port: int = 0
    elsewhere: str | None = None
    stalls: str | None = None
    over: threading.Event = field(default_factory=threading.Event)
    seen: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where it is, without a login."""
        return f"http://127.0.0.1:{self.port}"

    def lets_in(self, given: str | None) -> bool:
        """Whether an `Authorization` is the right one."""
        if self.login is None:
            return True
        return given == f"Basic {base64.b64encode(self.login.encode()).decode()}"


class _Listening(ThreadingHTTPServer):
    git: GitServer


class _Handler(BaseHTTPRequestHandler):
    server: _Listening

    @override
    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        given = self.headers.get("Authorization")
        git = self.server.git
        git.seen += [] if given is None else [given]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if git.elsewhere is not None:
            self._reply(302, {"Location": f"{git.elsewhere}{self.path}"}, b"")
        elif not git.lets_in(given):
            self._reply(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
        elif git.stalls is not None and self.command == "POST" and git.stalls in self.path:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"0000")
            git.over.wait()
        else:
            self._reply(*self._backend(git.root, body))

    do_POST = do_GET  # noqa: N815 - called by that name

    def _backend(self, root: Path, body: bytes) -> tuple[int, dict[str, str], bytes]:
        path, _, query = self.path.partition("?")
        settings = ["-c", "http.receivepack=true", "-c", "safe.directory=*"]
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", *settings, "http-backend"], input=body, env=variables, capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        return int(fields.pop("Status", "200").split()[0]), fields, content

    def _reply(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def git_server(root: Path, login: str | None) -> Iterator[GitServer]:
    """Serve for as long as the context lasts."""
    with _Listening(("127.0.0.1", 0), _Handler) as listening:
        listening.git = GitServer(root=root, login=login, port=listening.server_address[1])
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield listening.git
        finally:
            listening.git.over.set()
            listening.shutdown()
            thread.join()

"""Commands as forks of a process that has loaded the program, which saves each the start of an interpreter.

Every command is a process with its own directory, environment and output, and ends as any other.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["CRASHING", "SYMPHONY", "Fork", "Forks"]

SYMPHONY = "symphony.__main__"
CRASHING = "kit.crashing"
_SERVER = f"""
import atexit, contextlib, gc, importlib, io, json, os, pathlib, pkgutil, select, socket, sys
code = 1  # of what ends by an exception
def leave():
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
atexit.register(leave)  # called last; to take apart what is loaded would copy all of it
import symphony, {CRASHING}
for module in pkgutil.walk_packages(symphony.__path__, "symphony."):
    if "demo_content" not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
main = {{name: importlib.import_module(name).main for name in ({SYMPHONY!r}, {CRASHING!r})}}
workflow = pathlib.Path(sys.argv[1]).with_name("WORKFLOW.md")
workflow.write_text("---\\ntracker: {{kind: markdown}}\\n---\\n{{{{ issue.title }}}}\\n")
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    symphony.cli.main.main(["check", str(workflow)])  # makes what is made when needed: the models of settings
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
gc.freeze()  # a collection in a fork would copy all that is loaded
print("ready", flush=True)
while listener in select.select([listener, 0], [], [])[0]:  # the end of 0 is that of the tests
    connection, _ = listener.accept()
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    if os.fork():
        connection.close()
        continue
    listener.close()  # the parent of one command, which tells how that ends
    with connection, connection.makefile("r") as reader:
        asked = json.loads(reader.readline())
        if asked["terminal"]:  # open until the end of the command, so that it has no end before
            terminal = os.open(asked["terminal"], os.O_RDWR | os.O_NOCTTY)
        if child := os.fork():
            connection.sendall(b"%d\\n" % child)
            connection.sendall(b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            os._exit(0)
    break
else:
    code = 0
    sys.exit()
if asked["terminal"]:
    os.close(terminal)
    os.setsid()  # the first terminal that it opens is its own
os.chdir(asked["cwd"])
os.environ.clear()
os.environ.update(asked["env"])
for number, path in enumerate((asked["terminal"] or os.devnull, asked["out"], asked["err"])):
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.dup2(opened, number)
    os.close(opened)
sys.argv[1:] = asked["arguments"]
try:
    sys.exit(main[asked["main"]]())
except SystemExit as end:
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
"""


class Fork:
    """A running command, which is used like a `subprocess.Popen`."""

    def __init__(self, connection: socket.socket, arguments: list[str]) -> None:
        self._connection = connection
        self._arguments = arguments
        self.pid = self._answer()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        try:
            return self.wait(0.001)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; minus the signal's number where one ended it.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = self._answer()
            except TimeoutError:
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0) from None
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _answer(self) -> int:
        """The next number that its parent tells."""
        digits = b""
        while not digits.endswith(b"\n"):
            digit = self._connection.recv(1)
            assert digit, "the process that forks has ended"
            digits += digit
        return int(digits)


class Forks:
    """A process that has loaded everything; a context manager that ends it."""

    def __enter__(self) -> Self:
        self._place = tempfile.TemporaryDirectory(prefix="symphony-forks-", dir="/var/tmp")
        self._address = str(Path(self._place.name, "socket"))
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, self._address],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._place, self._server:
            self._server.kill()

    def start(
        self, main: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: Path, err: Path
    ) -> Fork:
        """Start the `main` of a module; the files `out` and `err` get what it prints."""
        asked = {
            "main": main,
            "arguments": [*arguments],
            "cwd": str(cwd),
            "env": dict(env),
            "out": str(out),
            "err": str(err),
        }
        return self._fork({**asked, "terminal": None})

    def on_terminal(
        self, main: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], terminal: str
    ) -> Fork:
        """Start the `main` of a module as the leader of a session whose terminal has that path."""
        asked = {"main": main, "arguments": [*arguments], "cwd": str(cwd), "env": dict(env)}
        return self._fork({**asked, "terminal": terminal, "out": terminal, "err": terminal})

    def _fork(self, asked: Mapping[str, Any]) -> Fork:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        connection.sendall(json.dumps(asked).encode() + b"\n")
        return Fork(connection, [asked["main"], *asked["arguments"]])

    def run(
        self,
        main: str,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        output: Path,
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run the `main` of a module to its end; files in the directory `output` get what it prints.

        Raises:
            subprocess.TimeoutExpired: it took too long, and was killed.
        """
        out, err = output / "out", output / "err"
        for path in (out, err):
            path.write_bytes(b"")
        fork = self.start(main, arguments, cwd=cwd, env=env, out=out, err=err)
        try:
            code = fork.wait(timeout_s)
        except subprocess.TimeoutExpired:
            fork.kill()
            fork.wait()
            raise
        return subprocess.CompletedProcess([main, *arguments], code, out.read_text(), err.read_text())

"""Commands in forks of a process that has loaded the program, which saves each the start of an interpreter.

Every command is a process of its own, with its own directory, environment and output, and ends as any other.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["CRASHING", "SYMPHONY", "Forks"]

SYMPHONY = "symphony.__main__"
CRASHING = "kit.crashing"
_SERVER = f"""
import importlib, json, os, pkgutil, sys
import symphony, {CRASHING}
for module in pkgutil.walk_packages(symphony.__path__, "symphony."):
    if "demo_content" not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
main = {{}}
for name in ({SYMPHONY!r}, {CRASHING!r}):
    main[name] = importlib.import_module(name).main
print("ready", flush=True)
while line := os.read(0, 1_000_000):
    asked = json.loads(line)
    if child := os.fork():
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    for number, path in enumerate((os.devnull, asked["out"], asked["err"])):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv[1:] = asked["arguments"]
    sys.exit(main[asked["main"]]())
"""


class Forks:
    """A process that has loaded everything; a context manager that ends it."""

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._answer(60) == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._server as server:
            server.kill()

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
        """Run the `main` of a module to its end; files in the directory `output` get what it prints."""
        words, out, err = [*arguments], output / "out", output / "err"
        asked = {
            "main": main,
            "arguments": words,
            "cwd": str(cwd),
            "env": dict(env),
            "out": str(out),
            "err": str(err),
        }
        for path in (out, err):
            path.write_bytes(b"")
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(asked).encode())
        child = int(self._answer(timeout_s))
        try:
            code = int(self._answer(timeout_s))
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            self._answer(timeout_s)
            raise
        return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())

    def _answer(self, timeout_s: float) -> str:
        stream = self._server.stdout
        assert stream is not None
        if not select.select([stream], [], [], timeout_s)[0]:
            raise TimeoutError
        return stream.readline().decode().strip()

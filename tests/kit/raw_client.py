"""A blocking app-server client that shows single frames, to test agents without the daemon."""

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["RawClient"]

Frame = dict[str, Any]
_DEADLINE_S = 60.0
_END_S = 5.0


class RawClient:
    """Starts an agent and talks to it line by line; leaving the context ends it.

    Attributes:
        frames: every frame received so far, in order.
        noise: every line that was no JSON object.
        process: the agent.
    """

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stderr: Path) -> None:
        self.frames: list[Frame] = []
        self.noise: list[bytes] = []
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._next_id = 0
        with stderr.open("ab") as sink:
            self.process = subprocess.Popen(
                argv, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_stdin()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def send(self, frame: Mapping[str, Any]) -> None:
        """Send one frame as it is."""
        self.send_bytes(json.dumps(frame).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close_stdin(self) -> None:
        """Close the agent's stdin; harmless when that has been done."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            return

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Frame:
        """Send a request and return its answer, which holds `result` or `error`."""
        self._next_id += 1
        wanted = self._next_id
        self.send({"method": method, "id": wanted, "params": params or {}})
        return self.until(lambda frame: "method" not in frame and frame.get("id") == wanted)

    def until_method(self, method: str) -> Frame:
        """Read up to the next notification or request of this method and return it."""
        return self.until(lambda frame: frame.get("method") == method)

    def until(self, wanted: Callable[[Frame], bool]) -> Frame:
        """Read up to the next frame that is wanted and return it.

        Raises:
            EOFError: the agent closed its stdout before.
            TimeoutError: nothing came for 20 seconds.
        """
        while True:
            frame = self._next()
            if frame is not None and wanted(frame):
                return frame

    def open_thread(self, cwd: Path, **params: Any) -> str:
        """Do the handshake, start a thread in `cwd` and return its id."""
        client = {"name": "symphony-test", "title": "Symphony", "version": "0"}
        self.call("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
        self.send({"method": "initialized"})
        asked = {"cwd": str(cwd), "approvalPolicy": "never", "sandbox": "workspace-write", **params}
        answer = self.call("thread/start", asked)
        return str(answer["result"]["thread"]["id"])

    def start_turn(self, thread_id: str, prompt: str, **params: Any) -> str:
        """Start a turn and return its id; frames are read up to the answer."""
        content = [{"type": "text", "text": prompt}]
        answer = self.call("turn/start", {"threadId": thread_id, "input": content, **params})
        return str(answer["result"]["turn"]["id"])

    def run_turn(self, thread_id: str, prompt: str, **params: Any) -> Frame:
        """Run a turn that asks nothing of the client and return the `turn` object of its end."""
        self.start_turn(thread_id, prompt, **params)
        ended: Frame = self.until_method("turn/completed")["params"]["turn"]
        return ended

    def items(self, kind: str) -> list[Frame]:
        """The items of a type that have ended so far."""
        ended = (frame["params"]["item"] for frame in self.frames if frame.get("method") == "item/completed")
        return [item for item in ended if item["type"] == kind]

    def methods(self) -> list[str]:
        """The methods of all notifications and requests received so far."""
        return [frame["method"] for frame in self.frames if "method" in frame]

    def _next(self) -> Frame | None:
        try:
            line = self._lines.get(timeout=_DEADLINE_S)
        except queue.Empty:
            raise TimeoutError(f"no line for {_DEADLINE_S:g} s; the last ones: {self.frames[-3:]}") from None
        if not line:
            self._lines.put(b"")
            raise EOFError(f"the agent closed its output; the last frames: {self.frames[-3:]}")
        try:
            frame = json.loads(line)
        except ValueError:
            frame = None
        if not isinstance(frame, dict):
            self.noise.append(line)
            return None
        self.frames.append(frame)
        return frame

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

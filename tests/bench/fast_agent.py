"""`fast_agent.c` in Python, for machines without a C compiler; same switches, same journal, same protocol."""

import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

Params = dict[str, Any]


class Agent:
    def __init__(self, words: list[str]) -> None:
        self.hold = "--hold" in words
        words = [word for word in words if word != "--hold"]
        switches = dict(zip(words[::2], words[1::2], strict=True))
        self.events = int(switches.get("--events", 0))
        self.bursts = int(switches.get("--bursts", 0))
        self.turn_s = int(switches.get("--turn-ms", 0)) / 1000
        self.gate = switches.get("--gate")
        self.move = switches.get("--move")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.journal = os.open(switches["--journal"], flags, 0o600) if "--journal" in switches else None
        self.issue = Path.cwd().name
        self.buffer = b""
        self.sent = self.tokens = self.turns = 0
        self.interrupted = self.answered = False

    def note(self, event: str) -> None:
        if self.journal is not None:
            line = f"{time.monotonic_ns()} {os.getpid()} {self.issue} {event} {self.sent} {self.tokens}\n"
            os.write(self.journal, line.encode())

    def say(self, frame: Params) -> None:
        data = json.dumps(frame, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]

    def tell(self, method: str, **params: Any) -> None:
        self.sent += 1
        self.say({"method": method, "params": {"threadId": "t", **params}})

    def tell_usage(self) -> None:
        half = self.tokens // 2
        total = {"totalTokens": self.tokens, "inputTokens": half, "outputTokens": self.tokens - half}
        self.tell("thread/tokenUsage/updated", turnId=f"u{self.turns}", tokenUsage={"total": total})

    def burst(self) -> None:
        turn = f"u{self.turns}"
        for number in range(self.events):
            match number % 100, number % 50:
                case (99, _):
                    self.tokens += 7
                    self.tell_usage()
                case (_, 0 | 48 as place):
                    item = {"type": "commandExecution", "id": f"call_{number // 50}", "command": "make test"}
                    self.tell("item/completed" if place else "item/started", turnId=turn, item=item)
                case _:
                    text = f"a piece of text as long as what a model writes between two flushes, {number:08}"
                    self.tell("item/agentMessage/delta", turnId=turn, itemId=f"m{number // 50}", delta=text)
            if number == self.events // 2:
                self.note("half")

    def listen(self, wait_s: float | None) -> None:
        """Read once, waiting at most so long, and handle whole lines; the end of input ends the process."""
        if not select.select([0], [], [], wait_s)[0]:
            return
        data = os.read(0, 65536)
        if not data:
            self.note("exit")
            os._exit(0)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            self.handle(json.loads(line))

    def handle(self, frame: Params) -> None:
        method, number = frame.get("method"), frame.get("id")
        results: dict[str, Params] = {
            "initialize": {"userAgent": "fast-agent/1.0", "platformOs": "linux"},
            "account/read": {"account": None, "requiresOpenaiAuth": False},
            "thread/start": {"thread": {"id": "t"}},
            "thread/name/set": {},
            "turn/interrupt": {},
        }
        if method is None:
            self.answered = True
        elif method == "turn/start":
            self.turn(number)
        elif method in results:
            self.interrupted = self.interrupted or method == "turn/interrupt"
            self.say({"id": number, "result": results[method]})
        elif number is not None:
            self.say({"id": number, "error": {"code": -32601, "message": "unknown method"}})

    def until_gate(self, name: str) -> None:
        if self.gate is not None:
            path = f"{self.gate}/{self.issue}.{name}"
            while not Path(path).exists() and not self.interrupted:
                self.listen(0.001)

    def work(self) -> None:
        for number in range(1, self.bursts + 1):
            self.until_gate(str(number))
            if self.interrupted:
                return
            self.note("burst")
            self.burst()
            self.note("burst_end")
        if self.bursts:
            self.until_gate("end")
        until = time.monotonic() + self.turn_s
        while not self.interrupted and (self.hold or time.monotonic() < until):
            self.listen(None if self.hold else max(until - time.monotonic(), 0))
        if self.move is not None and not self.interrupted:
            self.answered = False
            call = {
                "tool": "board_move",
                "arguments": {"state": self.move},
                "callId": "c1",
                "namespace": None,
            }
            params = {"threadId": "t", "turnId": f"u{self.turns}", **call}
            self.say({"method": "item/tool/call", "id": 0, "params": params})
            while not self.answered and not self.interrupted:
                self.listen(None)

    def turn(self, number: object) -> None:
        self.turns += 1
        turn = {"id": f"u{self.turns}", "status": "inProgress"}
        self.say({"id": number, "result": {"turn": turn}})
        self.tell("turn/started", turn=turn)
        self.note("turn")
        self.work()
        self.tokens += 11
        self.tell_usage()
        self.tell(
            "turn/completed", turn={**turn, "status": "interrupted" if self.interrupted else "completed"}
        )
        self.interrupted = False
        self.note("turn_end")


def main() -> None:
    agent = Agent(sys.argv[1:])
    agent.note("start")
    while True:
        agent.listen(None)


if __name__ == "__main__":
    main()

"""The floor: the least that any Python program pays for spawning these agents and pumping these events.

Reads the same WORKFLOW.md and the same board once, drives the same agent over the same protocol, counts what
it says and its token totals. It has no retries, no timeouts, no reconciliation, no skills, no stop ladder, no
logs, no safety. A bound, not a product. It loads an HTTP client, as whoever talks to a tracker does.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import httpx
import msgspec
import yaml
from typing_extensions import override


class Envelope(msgspec.Struct):
    method: str | None = None
    id: int | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Totals(msgspec.Struct, rename="camel"):
    total_tokens: int = 0


class TokenUsage(msgspec.Struct):
    total: Totals


class UsageParams(msgspec.Struct, rename="camel"):
    token_usage: TokenUsage


client = httpx.AsyncClient  # what any daemon of this kind has loaded before its first agent; not used here
decode = msgspec.json.Decoder(Envelope).decode
decode_usage = msgspec.json.Decoder(UsageParams).decode
encode = msgspec.json.encode


def front_matter(path: Path) -> dict[str, Any]:
    head = path.read_text("utf-8").split("---\n")[1]
    found: dict[str, Any] = yaml.load(head, Loader=yaml.CSafeLoader)
    return found


class Session(asyncio.SubprocessProtocol):
    def __init__(self, pool: "Pool", issue: str) -> None:
        self.pool, self.issue = pool, issue
        self.rest, self.events, self.tokens = b"", 0, 0
        self.stdin: Any = None

    @override
    def connection_made(self, transport: Any) -> None:
        self.stdin = transport.get_pipe_transport(0)
        self.ask("initialize", 1, {"clientInfo": {"name": "floor", "version": "1"}})

    def ask(self, method: str, number: int, params: dict[str, Any]) -> None:
        self.stdin.write(encode({"method": method, "id": number, "params": params}) + b"\n")

    @override
    def pipe_data_received(self, fd: int, data: bytes) -> None:
        del fd
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            message = decode(line)
            method = message.method
            if method is None:
                self.answered(message.id)
            elif message.id is not None:
                self.stdin.write(
                    encode({"id": message.id, "result": {"success": True, "contentItems": []}}) + b"\n"
                )
            else:
                self.events += 1
                if method == "thread/tokenUsage/updated":
                    self.tokens = max(
                        self.tokens, decode_usage(message.params).token_usage.total.total_tokens
                    )
                elif method == "turn/completed":
                    self.stdin.close()

    def answered(self, number: int | None) -> None:
        if number == 1:
            self.ask("thread/start", 2, {"cwd": str(self.pool.root / self.issue)})
        elif number == 2:
            text = {"type": "text", "text": f"{self.issue}: work on it"}
            self.ask("turn/start", 3, {"threadId": "t", "input": [text]})

    @override
    def process_exited(self) -> None:
        self.pool.ended(self)


class Pool:
    def __init__(self, workflow: Path, journal: Path) -> None:
        settings = front_matter(workflow)
        self.base = workflow.parent
        self.command = settings["codex"]["command"]
        self.limit = settings["agent"]["max_concurrent_agents"]
        self.root = Path(settings["workspace"]["root"])
        self.repo = settings["workspace"].get("repo")
        self.journal = journal.open("a", buffering=1)
        self.waiting = deque[str]()
        self.running = 0
        self.starts = set[asyncio.Task[None]]()

    def read_board(self) -> None:
        for path in sorted((self.base / ".symphony" / "issues").glob("*.md")):
            if front_matter(path)["state"] == "Todo":
                self.waiting.append(path.stem)
        self.fill()

    def seen(self) -> None:
        """One line of stdin names an issue that there is now."""
        for issue in os.read(0, 65536).decode().split():
            self.note("seen", issue)
            self.waiting.append(issue)
        self.fill()

    def note(self, event: str, issue: str, *figures: int) -> None:
        print(time.monotonic_ns(), event, issue, *figures, file=self.journal)

    def fill(self) -> None:
        while self.waiting and self.running < self.limit:
            self.running += 1
            task = asyncio.ensure_future(self.start(self.waiting.popleft()))
            self.starts.add(task)
            task.add_done_callback(self.starts.discard)

    async def start(self, issue: str) -> None:
        place = self.root / issue
        if self.repo:
            argv = ("git", "-C", self.repo, "worktree", "add", "--quiet", "-b", f"floor/{issue}", str(place))
            await (await asyncio.create_subprocess_exec(*argv)).wait()
        else:
            place.mkdir(parents=True, exist_ok=True)
        await asyncio.get_running_loop().subprocess_exec(
            lambda: Session(self, issue), "bash", "-lc", f"exec {self.command}",
            cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None,
        )  # fmt: skip

    def ended(self, session: Session) -> None:
        self.running -= 1
        self.note("ended", session.issue, session.events, session.tokens)
        self.fill()


async def main(workflow: Path, journal: Path) -> None:
    if sys.version_info < (3, 12):  # later versions choose it themselves
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)
    pool = Pool(workflow, journal)
    pool.read_board()
    asyncio.get_running_loop().add_reader(0, pool.seen)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))

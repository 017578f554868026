"""One turn on the wire: items in the order of the original, token totals, and what the end looks like."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symphony.testing.scripted_agent import frames
from symphony.testing.scripted_agent.wire import Wire

__all__ = ["InterruptedTurnError", "Thread", "Turn", "new_id"]

_USAGE_KEYS = (
    "totalTokens",
    "inputTokens",
    "cachedInputTokens",
    "cacheWriteInputTokens",
    "outputTokens",
    "reasoningOutputTokens",
)
_CHARS_PER_TOKEN = 4


class InterruptedTurnError(Exception):
    """The client interrupted the turn."""


def new_id() -> str:
    """An id in the original's form (UUID version 7: time first, then chance)."""
    random = os.urandom(10).hex()
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{random[:3]}-8{random[3:6]}-{random[6:18]}"


@dataclass(slots=True, kw_only=True)
class Thread:
    """What lasts from turn to turn: place, system text, script, memory of a skill, totals.

    `usage` counts a token per four characters that went to and fro, so that totals move as a model's would.
    `script` is the prompt that held the script, `turns_done` how many turns of it ended, `asked` the
    questions that people have been asked.
    """

    id: str
    cwd: Path
    instructions: str = ""
    skill_value: str | None = None
    script: str | None = None
    turns_done: int = 0
    asked: list[str] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_USAGE_KEYS, 0))


class Turn:
    """Sends what happens in one turn. Its methods are called by the thread that runs the steps."""

    def __init__(
        self, wire: Wire, thread: Thread, prompt: str, *, keep: Callable[[Thread], None] = lambda _: None
    ) -> None:
        self.id = new_id()
        self.thread = thread
        self.prompt = prompt
        self.interrupted = threading.Event()
        self._wire = wire
        self._keep = keep
        self._last_said: dict[str, Any] | None = None
        self._items = 0
        self._exchanged = len(prompt) + len(thread.instructions)

    def begin(self) -> None:
        """Say that the turn runs."""
        self._status({"type": "active", "activeFlags": []})
        self._notify("turn/started", turn=frames.turn(self.id, "inProgress"), turn_id=False)
        self._wire.garbage()
        item = frames.user_message(new_id(), self.prompt)
        self.item_started(item)
        self.item_completed(item)

    def end(self, status: str, error: str | None = None, *, info: str = "other") -> None:
        """Say how the turn ended: `completed`, `interrupted`, or `failed` with a message and its kind."""
        items = [] if self._last_said is None or status != "completed" else [self._last_said]
        ended = frames.turn(self.id, status, items=items, error=error, info=info)
        self._status({"type": "idle"} if error is None else {"type": "systemError"})
        if error is not None:
            self._notify("error", error=ended["error"], willRetry=False)
        self._notify("turn/completed", turn=ended, turn_id=False)

    def say(self, text: str) -> None:
        """A message to people."""
        item = frames.agent_message(self.item_id("msg"), text)
        self.item_started({**item, "text": ""})
        self._notify("item/agentMessage/delta", itemId=item["id"], delta=text)
        self.item_completed(item)
        self._last_said = item
        self._exchanged += len(text)

    def item_id(self, kind: str) -> str:
        """An id for the next item, unique on the thread."""
        self._items += 1
        return f"{kind}_{self.id[-12:]}_{self._items}"

    def item_started(self, item: Mapping[str, Any]) -> None:
        """A piece of work began."""
        self._notify("item/started", item=item, startedAtMs=_now_ms())

    def item_completed(self, item: Mapping[str, Any]) -> None:
        """A piece of work ended."""
        self._notify("item/completed", item=item, completedAtMs=_now_ms())

    def output(self, item_id: str, text: str) -> None:
        """What a command wrote."""
        self._notify("item/commandExecution/outputDelta", itemId=item_id, delta=text)
        self._exchanged += len(text)

    def diff(self, text: str) -> None:
        """What changed."""
        self._notify("turn/diff/updated", diff=text)

    def step_done(self) -> None:
        """Report token totals and rate limits, as the original does after each call of its model."""
        last = _usage(self._exchanged)
        self._exchanged = 0
        total = self.thread.usage
        total.update({key: total[key] + last[key] for key in _USAGE_KEYS})
        self.keep()
        self._notify("thread/tokenUsage/updated", tokenUsage=frames.token_usage(total, last))
        self._wire.notify("account/rateLimits/updated", {"rateLimits": frames.rate_limits()})

    def keep(self) -> None:
        """Write down how the thread stands."""
        self._keep(self.thread)

    def ask(self, method: str, *, flag: str | None = None, **params: Any) -> Mapping[str, Any]:
        """Ask the client and return its answer, in which `result` or `error` is; `flag` shows meanwhile.

        Raises:
            InterruptedTurnError: the client interrupted the turn instead.
            ClientGoneError: nobody is there any more.
        """
        if flag is not None:
            self._status({"type": "active", "activeFlags": [flag]})
        answer = self._wire.ask(
            method, {"threadId": self.thread.id, "turnId": self.id, **params}, self.interrupted
        )
        if answer is None:
            raise InterruptedTurnError
        if flag is not None:
            self._notify("serverRequest/resolved", requestId=answer["id"], turn_id=False)
            self._status({"type": "active", "activeFlags": []})
        return answer

    def wait(self, ready: Callable[[], bool], step_s: float) -> None:
        """Wait until `ready`, looking every `step_s` seconds.

        Raises:
            InterruptedTurnError: the client interrupted the turn.
        """
        while not ready():
            if self.interrupted.wait(step_s):
                raise InterruptedTurnError

    def interrupt(self) -> None:
        """End the turn at the next step; whatever waits stops waiting."""
        self.interrupted.set()
        self._wire.wake()

    def _status(self, status: Mapping[str, Any]) -> None:
        self._notify("thread/status/changed", status=status, turn_id=False)

    def _notify(self, method: str, *, turn_id: bool = True, **params: Any) -> None:
        ids = {"threadId": self.thread.id} | ({"turnId": self.id} if turn_id else {})
        self._wire.notify(method, ids | params)


def _usage(characters: int) -> dict[str, int]:
    tokens = characters // _CHARS_PER_TOKEN + 2
    counts = (tokens, tokens - 1, 0, 0, 1, 0)
    return dict(zip(_USAGE_KEYS, counts, strict=True))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""What a transcript costs: the same stream of an agent taken in without one and with one, by turns."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import anyio
import msgspec

from bench.kit import Kind
from symphony.agents.codex import protocol
from symphony.agents.codex.protocol import message_piece
from symphony.agents.event_queue import EventQueue
from symphony.agents.run_stats import RunStats
from symphony.agents.session import PendingMessage
from symphony.agents.wire import JsonRpcCodec, ServerNotification, Suppressed
from symphony.daemon.runs.transcript import RunTranscript
from symphony.domain import Redaction
from symphony.journal.transcripts import TranscriptWriter

DELTA = "item/agentMessage/delta"
_READ_BYTES = 65_536
_DELTAS = 47


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcribed:
    """Processor seconds per 10,000 events: without a transcript (`floor`) and with one."""

    cpu_s: dict[Kind, float]


def transcribing(place: Path, *, events: int, rounds: int) -> Transcribed:
    """Both take in the same bytes; the one with a transcript also writes its file."""
    data = _stream(events)
    spent: dict[Kind, list[float]] = {"floor": [], "symphony": []}

    async def measure() -> None:
        for number in range(rounds + 1):
            for kind, taken in spent.items():
                path = place / "transcripts" / f"{number}.jsonl" if kind == "symphony" else None
                began = time.process_time()
                await _take_in(data, path)
                taken.append(time.process_time() - began)

    place.mkdir(parents=True, exist_ok=True)
    anyio.run(measure)
    return Transcribed(cpu_s={kind: median(taken[1:]) / events * 10_000 for kind, taken in spent.items()})


async def _take_in(data: bytes, path: Path | None) -> None:  # noqa: C901 - a session and a run in one
    """What a session, the progress of a run and its transcript do with what an agent writes."""
    codec = JsonRpcCodec(kept=None if path is None else DELTA)
    codec.suppress(DELTA)
    events, stats = EventQueue(), RunStats()
    pending = PendingMessage(lambda params: message_piece(params, "t"))
    transcript = None
    if path is not None:
        redaction = Redaction(["a secret that is long enough"])
        transcript = RunTranscript(
            TranscriptWriter(path),
            redaction,
            tokens=lambda: stats.tokens,
            pending_message=lambda: pending.text,
        )
    for start in range(0, len(data), _READ_BYTES):
        for message in codec.receive(data[start : start + _READ_BYTES]):
            match message:
                case Suppressed():
                    events.count(message.count)
                    pending.add(message.params)
                case ServerNotification():
                    for event in protocol.translate(message).events:
                        events.emit(event)
                        if message.method == "item/completed":
                            pending.clear()
        events.flush_activity()
        while events:
            event = events.take()
            stats.add(event)
            if transcript is not None:
                transcript.on_event(event)
    if transcript is not None:
        await transcript.write_now()
        await transcript.close()


def _stream(events: int) -> bytes:
    """Messages in pieces, each followed by a command and the totals of tokens."""
    lines: list[bytes] = []

    def tell(method: str, **params: object) -> None:
        message = {"method": method, "params": {"threadId": "t", "turnId": "u", **params}}
        lines.append(msgspec.json.encode(message))

    for number in range(events):
        place, item = number % 50, number // 50
        text = f"a piece of text as long as what a model writes between two flushes, {number:08} "
        command = {"type": "commandExecution", "id": f"c{item}", "command": "make test"}
        if place < _DELTAS:
            tell(DELTA, itemId=f"m{item}", delta=text)
        elif place == _DELTAS:
            tell("item/completed", item={"type": "agentMessage", "id": f"m{item}", "text": text * _DELTAS})
        elif place == _DELTAS + 1:
            tell("item/started", item=command)
        elif number % 100 == 99:
            totals = {"totalTokens": number, "inputTokens": number // 2, "outputTokens": number - number // 2}
            tell("thread/tokenUsage/updated", tokenUsage={"total": totals})
        else:
            tell("item/completed", item={**command, "exitCode": 0})
    return b"\n".join(lines) + b"\n"

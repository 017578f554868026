"""What a wire format has to do for the server: recognise, read and answer a request (interface)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kit.model_server.scenario import Answer

__all__ = ["Asked", "WireFormat", "event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of an agent, understood.

    Attributes:
        user_text: the last text of the user.
        tool_results: how many results of tools follow it.
        position: how long the whole conversation is; makes the ids of an answer unique in it.
        streamed: whether a stream of events was asked for; else the answer is one JSON object.
        wants_json: whether the answer's text must be JSON: a question of the agent's own, and no step.
    """

    user_text: str
    tool_results: int
    position: int
    streamed: bool = True
    wants_json: bool = False


class WireFormat(Protocol):
    """One API. Chunks of an answer are sent one by one, each after the answer's pause."""

    def serves(self, path: str) -> bool:
        """Whether requests to this path (without the query) are of this format."""
        ...

    def read(self, body: dict[str, Any]) -> Asked:
        """Understand a request's body."""
        ...

    def opening(self, asked: Asked) -> bytes:
        """What a stream begins with; all that a stream cut short sends."""
        ...

    def chunks(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        """The rest of the stream, up to its regular end."""
        ...

    def whole(self, asked: Asked, answer: Answer) -> Mapping[str, Any]:
        """The answer to a request that did not ask for a stream."""
        ...


def event(data: str, name: str | None = None) -> bytes:
    """One server-sent event."""
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()

"""The worker's end of the frames: requests to the daemon, and the tools that the daemon runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import anyio

from symphony.daemon.frames import Request, RequestAnswered, ToolCallAsked, Withdraw, WorkerFrame
from symphony.domain import Issue, SymphonyError, ToolResult, ToolSpec


class DaemonLink:
    """Sends frames to the daemon, and waits for the answers to requests; `send` never waits."""

    def __init__(self, send: Callable[[WorkerFrame], None]) -> None:
        self.send = send
        self._numbers = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._lost = False

    async def request(self, make: Callable[[int], Request]) -> RequestAnswered | None:
        """Send the request that `make` returns for a number, and return the answer.

        Without a daemon return `None` at once.

        Raises:
            SymphonyError: the request failed.
        """
        if self._lost:
            return None
        number, waiting = next(self._numbers), _Waiting()
        self._waiting[number] = waiting
        try:
            self.send(make(number))
            await waiting.answered.wait()
        finally:
            del self._waiting[number]
            if waiting.answer is None:
                self.send(Withdraw(request=number))
        if waiting.answer is not None and waiting.answer.failure is not None:
            raise SymphonyError(waiting.answer.failure)
        return waiting.answer

    def lose(self) -> None:
        """Note that the daemon is gone: no request is answered any more."""
        self._lost = True
        for waiting in self._waiting.values():
            waiting.answered.set()

    def on_answer(self, answer: RequestAnswered) -> None:
        """Hand the answer to the task that waits for it, if it still does."""
        if waiting := self._waiting.get(answer.request):
            waiting.answer = answer
            waiting.answered.set()


@dataclass(slots=True)
class _Waiting:
    """A request without an answer so far."""

    answer: RequestAnswered | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class LinkedTools:
    """The tools of the tracker, which the daemon runs with its credential (`ToolProvider`).

    Args:
        link: the connection to the daemon.
        tools: the tools that the tracker offers to sessions.
        session_id: the present session, for the log of the daemon.
    """

    def __init__(
        self, link: DaemonLink, tools: tuple[ToolSpec, ...], *, session_id: Callable[[], str]
    ) -> None:
        self._link = link
        self._tools = tools
        self._session_id = session_id

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        """The tools to offer to a session."""
        return self._tools

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        """Let the daemon run a tool on the issue of the run.

        Raises:
            SymphonyError: the tool raised, or the daemon is ending.
        """
        del issue
        answer = await self._link.request(
            lambda number: ToolCallAsked(
                request=number, name=name, arguments=arguments, session_id=self._session_id()
            )
        )
        result = None if answer is None else answer.result
        return result or ToolResult.error("the daemon gave no result")

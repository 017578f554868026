"""Sessions of the claude backend on a workspace, for the scripted speaker and for the real one."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.sessions import COMMENT, SessionBench
from symphony.agents.claude.backend import ClaudeBackend
from symphony.agents.claude.session import ClaudeSession
from symphony.config import ClaudeSettings

__all__ = ["COMMENT", "ClaudeBench"]


@dataclass
class ClaudeBench(SessionBench):
    """Opens sessions of `command`."""

    command: str = field(kw_only=True)

    def backend(self, *, context: Mapping[str, Any] | None = None, **settings: Any) -> ClaudeBackend:
        return ClaudeBackend(
            settings=ClaudeSettings(**{"command": self.command, "read_timeout_ms": 30_000, **settings}),
            context=self.context(**(context or {})),
        )

    @asynccontextmanager
    async def session(
        self, changes: Mapping[str, Any] | None = None, **settings: Any
    ) -> AsyncIterator[ClaudeSession]:
        async with self.backend(**settings).open(self.request(**(changes or {}))) as session:
            yield session

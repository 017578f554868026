"""Sessions of the acp backend on a workspace, for the scripted speaker and for the real agents."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.sessions import COMMENT, SessionBench
from symphony.agents.acp.backend import AcpBackend
from symphony.agents.acp.session import AcpSession
from symphony.config import AcpSettings

__all__ = ["COMMENT", "ENVELOPE", "AcpBench"]

ENVELOPE = "## Available skills\n\n- greet — when greeting"


@dataclass
class AcpBench(SessionBench):
    """Opens sessions by `settings`."""

    settings: dict[str, Any] = field(kw_only=True)

    def backend(self, *, context: Mapping[str, Any] | None = None, **settings: Any) -> AcpBackend:
        return AcpBackend(
            settings=AcpSettings(**{"read_timeout_ms": 30_000, **self.settings, **settings}),
            context=self.context(**{"secret_names": self.secret_names, **(context or {})}),
        )

    @asynccontextmanager
    async def session(
        self, changes: Mapping[str, Any] | None = None, **settings: Any
    ) -> AsyncIterator[AcpSession]:
        async with self.backend(**settings).open(self.request(**(changes or {}))) as session:
            yield session

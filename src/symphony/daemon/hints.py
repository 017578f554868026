"""Hints that something changed: acted on while they come, and never needed."""

from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

__all__ = ["heed"]

_log = structlog.get_logger(__name__)


async def heed(what: str, changes: AsyncIterator[None], act: Callable[[], Awaitable[None]]) -> None:
    """Act on hints about `what`; where they fail, polling goes on without them."""
    try:
        async for _ in changes:
            await act()
    except Exception as error:  # noqa: BLE001 - inotify limits, odd file systems: hints are not needed
        _log.warning("watch_failed", what=what, reason=str(error) or type(error).__name__)

"""A hint whenever an issue file changed: a low-latency wake-up, never a source of truth.

Only the folder itself is watched, not what is below it, so comments wake nobody; temporary files are
filtered out. The folder's parent is watched as well, to notice when the folder is made, removed or
replaced; while neither is there, the nearest directory that is. A folder that was swapped without telling
is noticed within half a second.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import anyio
import structlog
import watchfiles

from symphony.trackers.markdown.names import is_issue_file

__all__ = ["folder_changes"]

_DEBOUNCE_MS = 50
_STEP_MS = 25
_RECHECK_MS = 500
_PAUSE_S = 30.0
_LOG = structlog.get_logger(__name__)


async def folder_changes(folder: Path, *, pause_s: float = _PAUSE_S) -> AsyncGenerator[None, None]:
    """Yield when an issue file changed, and once whenever a watch begins, for what happened before it did.

    Ends only by cancellation. Where the system cannot watch (no more inotify watches, say) it says so once
    in the log and tries again after `pause_s` seconds; polling goes on meanwhile.
    """
    told = False
    while True:
        try:
            async with aclosing(_watched(folder)) as hints:
                async for _ in hints:
                    told = False
                    yield
        except FileNotFoundError:
            await anyio.sleep(_RECHECK_MS / 1_000)
        except (OSError, RuntimeError) as error:
            if not told:
                _LOG.warning("board_watch_failed", board=str(folder), error=str(error))
            told = True
            await anyio.sleep(pause_s)


async def _watched(folder: Path) -> AsyncGenerator[None, None]:
    """One watch, until the folder is another one than when it began."""
    place, paths = _place(folder), _paths(folder)
    begun = False
    async with aclosing(_changes(folder, paths)) as batches:
        async for names in batches:
            issues = any(name.parent == folder for name in names)
            if place is not None and (issues or not begun):
                yield
            begun = True
            if folder in names or _place(folder) != place or _paths(folder) != paths:
                return


async def _changes(folder: Path, paths: tuple[Path, ...]) -> AsyncGenerator[set[Path], None]:
    """Names of issue files, of the folder and of what is beside it; empty when it is time for a look."""
    watching = watchfiles.awatch(
        *paths,
        watch_filter=lambda _, name: Path(name).parent != folder or is_issue_file(Path(name).name),
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        rust_timeout=_RECHECK_MS,
        yield_on_timeout=True,
        recursive=False,
    )
    async with aclosing(watching) as batches:
        async for batch in batches:
            yield {Path(name) for _, name in batch}


def _paths(folder: Path) -> tuple[Path, ...]:
    """What to watch: the folder and its parent; without a folder the nearest directory above it."""
    if folder.is_dir():
        return (folder, folder.parent)
    return (next((path for path in folder.parents if path.is_dir()), Path("/")),)


def _place(folder: Path) -> tuple[int, int] | None:
    """Which directory the folder is now; null where there is none."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino)

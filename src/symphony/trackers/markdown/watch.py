"""A hint whenever an issue file changed: a low-latency wake-up, never a source of truth.

Only the folder itself is watched, not what is below it, so comments wake nobody; temporary files are
filtered out. The folder's parent is watched as well, to notice when the folder is made, removed or
replaced; while neither is there, the nearest directory that is. A folder that was swapped without telling
is noticed within half a second.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread
import structlog

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
    first = await anyio.to_thread.run_sync(_look, folder, abandon_on_cancel=True)
    begun = False
    async with aclosing(_changes(folder, first.paths)) as batches:
        async for names in batches:
            issues = any(name.parent == folder for name in names)
            if first.place is not None and (issues or not begun):
                yield
            begun = True
            now = await anyio.to_thread.run_sync(_look, folder, abandon_on_cancel=True)
            if folder in names or now != first:
                return


async def _changes(folder: Path, paths: tuple[Path, ...]) -> AsyncGenerator[set[Path], None]:
    """Names of issue files, of the folder and of what is beside it; empty when it is time for a look."""
    import watchfiles  # noqa: PLC0415 - loaded when a watch begins, behind the first dispatch

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


class _Look(NamedTuple):
    """What there is: the folder's device and inode, null where there is no folder; and what to watch then."""

    place: tuple[int, int] | None
    paths: tuple[Path, ...]


def _look(folder: Path) -> _Look:
    """Look at the disk, in a worker thread: a network file system may take its time."""
    try:
        found = folder.stat()
    except OSError:
        nearest = next((path for path in folder.parents if path.is_dir()), Path("/"))
        return _Look(place=None, paths=(nearest,))
    return _Look(place=(found.st_dev, found.st_ino), paths=(folder, folder.parent))
